"""Tables of docs/ that follow from the code: TRL's settings in ours, and the techniques with their proofs.

    python -m benchmarks.docs_tables trl            # or: techniques
    python -m benchmarks.docs_tables --write        # puts both into their pages

Prints a table, or writes it between the marks of its page; tests/test_docs.py holds the pages against it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from configs.techniques import TECHNIQUES


@dataclass(frozen=True, slots=True, kw_only=True)
class FromTrl:
    """``theirs`` is a field of TRL's GRPOConfig 1.15, ``ours`` a dotted setting; "" where there is none."""

    theirs: str
    ours: str
    note: str = ""


def _same(ours: str, note: str = "") -> FromTrl:
    """A setting of ours that has TRL's name."""
    return FromTrl(theirs=ours.rpartition(".")[2], ours=ours, note=note)


TRL_SETTINGS: Final = (
    _same("training.learning_rate", "default 3e-5 for the built-in 135M model; TRL's 1e-6 suits larger ones"),
    _same("training.max_steps", "there are no epochs"),
    _same("training.lr_scheduler_type", "constant, linear, cosine"),
    _same("training.warmup_steps"),
    _same("training.weight_decay"),
    _same("training.adam_beta1"),
    _same("training.adam_beta2", "default 0.99"),
    _same("training.adam_epsilon"),
    _same("training.max_grad_norm"),
    _same("training.per_device_train_batch_size", "completions in a micro-batch, as in TRL"),
    _same("training.gradient_accumulation_steps", "times the former: the completions of an optimiser step"),
    _same("training.bf16", "fp32 masters are kept, as with TRL's autocast"),
    _same("training.tf32"),
    _same("training.gradient_checkpointing"),
    _same("training.torch_compile", "layer by layer"),
    _same("training.auto_find_batch_size", "goes on with the same step"),
    _same("training.seed"),
    _same("output.save_steps"),
    _same("output.save_total_limit"),
    _same("output.logging_steps"),
    _same("output.report_to", "trackio, wandb, tensorboard"),
    FromTrl(theirs="output_dir", ours="output.dir", note="a folder of runs; each has one of its own"),
    FromTrl(theirs="run_name", ours="output.name"),
    FromTrl(theirs="push_to_hub", ours="output.push_to_hub", note="the hub id instead of true; at the end"),
    FromTrl(theirs="hub_private_repo", ours="output.hub_private", note="default true"),
    _same("model.trust_remote_code"),
    _same("grpo.num_generations"),
    _same("grpo.beta"),
    _same("grpo.epsilon"),
    _same("grpo.epsilon_high"),
    _same("grpo.delta"),
    _same("grpo.loss_type", "grpo, dr_grpo, dapo, bnpo, cispo; not sapo, vespo and others"),
    _same("grpo.importance_sampling_level"),
    _same("grpo.scale_rewards", "group, batch, none"),
    _same("grpo.mask_truncated_completions"),
    FromTrl(
        theirs="vllm_importance_sampling_mode",
        ours="grpo.importance_sampling_mode",
        note="default none: the ratio to the generator's policy is clipped",
    ),
    FromTrl(theirs="vllm_importance_sampling_clip_max", ours="grpo.importance_sampling_cap"),
    _same("generation.temperature"),
    _same("generation.top_p"),
    _same("generation.top_k"),
    _same("generation.max_completion_length", "default 128"),
    FromTrl(
        theirs="use_vllm", ours="generation.engine", note="vllm (default) or transformers; no server to start"
    ),
    FromTrl(
        theirs="vllm_mode",
        ours="runtime.placement",
        note="colocated or split, asynchronous in both",
    ),
    FromTrl(theirs="vllm_gpu_memory_utilization", ours="generation.gpu_memory_utilization"),
    FromTrl(theirs="vllm_tensor_parallel_size", ours="generation.tensor_parallel_size"),
    FromTrl(
        theirs="reward_weights", ours="rewards.custom_weights", note="and rewards.weights: own_rewards.md"
    ),
    FromTrl(
        theirs="generation_batch_size", ours="", note="always one optimiser step; asynchrony: max_staleness"
    ),
    FromTrl(
        theirs="steps_per_generation",
        ours="acceleration.max_staleness",
        note="not the same: how many steps old a trained token may be, with generation going on meanwhile",
    ),
    FromTrl(theirs="num_iterations", ours="", note="each completion is trained on once"),
    FromTrl(theirs="sync_ref_model", ours="", note="the reference is the model as loaded"),
    FromTrl(theirs="min_p", ours="", note="not offered"),
    FromTrl(theirs="repetition_penalty", ours="", note="not offered"),
    FromTrl(theirs="top_entropy_quantile", ours="", note="not built"),
    FromTrl(theirs="entropy_coef", ours="", note="not built"),
    FromTrl(theirs="log_completions", ours="", note="always kept, in run.db and samples.jsonl"),
    FromTrl(theirs="deepspeed", ours="runtime.trainer_ranks", note="FSDP2 instead"),
)


def trl_table() -> str:
    """Markdown, a row a setting."""
    rows = [
        f"| `{one.theirs}` | {f'`{one.ours}`' if one.ours else '-'} | {one.note} |" for one in TRL_SETTINGS
    ]
    return "\n".join(["| TRL's GRPOConfig | here | what differs |", "|---|---|---|", *rows])


def techniques_table() -> str:
    """Markdown, a row a technique: its class, its switch, its test."""
    rows = []
    for one in TECHNIQUES:
        switch, *_ = one.off
        file, _, function = one.proof.partition("::")
        rows.append(f"| {one.name} | {one.exactness} | `{switch}` | {one.gain} | [{function}](../{file}) |")
    heads = "| technique | class | switch | what it gains | test against the plain version |"
    return "\n".join([heads, "|---|---|---|---|---|", *rows])


TABLES: Final = {"trl": trl_table, "techniques": techniques_table}
PAGES: Final = {"trl": "from_trl.md", "techniques": "techniques.md"}
_DOCS: Final = Path(__file__).parents[1] / "docs"
_END: Final = "<!-- end -->"


def with_table(page: str, name: str) -> str:
    """``page`` with the present table ``name`` between its marks."""
    mark = f"<!-- {name} -->\n"
    before, _, rest = page.partition(mark)
    assert _END in rest
    return f"{before}{mark}{TABLES[name]()}\n{_END}{rest.partition(_END)[2]}"


def main(arguments: Sequence[str]) -> int:
    """Print the table that is named, or write all; returns the exit status."""
    if list(arguments) == ["--write"]:
        for name, file in PAGES.items():
            page = _DOCS / file
            page.write_text(with_table(page.read_text(encoding="utf-8"), name), encoding="utf-8")
        return 0
    if len(arguments) != 1 or arguments[0] not in TABLES:
        print(f"usage: python -m benchmarks.docs_tables {'|'.join(TABLES)}|--write", file=sys.stderr)
        return 2
    print(TABLES[arguments[0]]())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
