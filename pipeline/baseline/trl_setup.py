"""TRL's trainer with our settings: its configuration, data set, stop tokens, and its variant for a CPU.

Trains nothing by itself and writes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import torch
from datasets import Dataset
from transformers import PreTrainedTokenizerBase
from trl import GRPOConfig, GRPOTrainer
from trl.trainer.utils import selective_log_softmax_and_entropy

from configs.schema import Config
from curriculum.task import Task
from pipeline.models.prompts import encode_prompt, render_prompt, stop_strings

FENCE = "```"
# All other settings of training and grpo are TRL's by name. The generator's correction is for another policy
# than the trainer's, which there is none of here; compilation, TF32, attention, and what adapts to the memory
# are left to TRL.
_NOT_TRLS = {
    *("importance_sampling_mode", "importance_sampling_cap", "mismatch_kl_warning", "warm_start_steps"),
    *("lr_scheduler_type", "torch_compile", "tf32", "memory", "activation_offloading", "attn_implementation"),
}


def trl_config(config: Config, output_dir: Path, device: str) -> GRPOConfig:
    """TRL's settings for ``config``: one generation batch an optimiser step, as in the main job."""
    training, grpo, generation = config.training, config.grpo, config.generation
    scheduler: str = training.lr_scheduler_type
    if scheduler == "constant" and training.warmup_steps > 0:
        # Transformers' "constant" ignores the warm-up.
        scheduler = "constant_with_warmup"
    settings = {**training.model_dump(exclude=_NOT_TRLS), **grpo.model_dump(exclude=_NOT_TRLS)}
    if training.optim == "adamw_torch":
        # Fused, as ours is.
        settings["optim"] = "adamw_torch_fused"
    return GRPOConfig(
        output_dir=str(output_dir),
        **settings,
        lr_scheduler_type=scheduler,
        temperature=generation.temperature,
        top_p=generation.top_p,
        top_k=generation.top_k,
        max_completion_length=generation.max_completion_length,
        # Every step goes into the ledger; the account thins out metrics.jsonl.
        logging_steps=1,
        use_cpu=device == "cpu",
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )


def prompt_dataset(tasks: Sequence[Task], tokenizer: PreTrainedTokenizerBase, config: Config) -> Dataset:
    """Rows with ``prompt`` (the text that the model continues, prefill included) and ``task_id``.

    The prompts are plain text, not messages, so that TRL's tokens are those of the main job. Raises
    ValueError for a prompt that TRL would tokenise differently.
    """
    prefill = config.generation.assistant_prefill
    rows = []
    for task in tasks:
        token_ids = encode_prompt(tokenizer, task, prefill)
        text = render_prompt(tokenizer, task, prefill)
        rows.append({"prompt": _as_trl_reads_it(text, token_ids, tokenizer, task), "task_id": task.task_id})
    # TRL leaves out what does not fill a step: all of a data set that is smaller than one.
    return Dataset.from_list(rows * math.ceil(config.prompts_per_step / len(rows)))


def stop_token_ids(
    tokenizer: PreTrainedTokenizerBase, eos_token_id: int | list[int] | None, config: Config
) -> list[int]:
    """The model's end tokens and, where the main job stops at it, those that spell a closing code fence.

    TRL gives Transformers' ``generate`` no tokenizer, so stop strings cannot be used with it; but it
    ends a completion at every end token that the model declares. This differs from stopping at a line
    that begins with a fence in two rare cases: a fence in mid-line ends the completion too, and one
    spelled with shorter tokens does not. Raises ValueError when no single token is a fence.
    """
    known = [] if eos_token_id is None else [eos_token_id] if isinstance(eos_token_id, int) else eos_token_id
    if not stop_strings(config.generation):
        return sorted({tokenizer.eos_token_id, *known})
    fences = [
        token_id
        for token, token_id in tokenizer.get_vocab().items()
        if FENCE in token and tokenizer.convert_tokens_to_string([token]).strip() == FENCE
    ]
    if not fences:
        raise ValueError(
            "generation.stop_at_code_fence: value True: the model's tokenizer has no token for a code fence, "
            "so TRL cannot stop there; set it to false for the baseline"
        )
    return sorted({tokenizer.eos_token_id, *known, *fences})


class CpuGRPOTrainer(GRPOTrainer):  # type: ignore[misc]
    """TRL's trainer where there is no GPU.

    TRL 1.15 computes token log-probabilities with a Triton kernel on every device, so its own trainer
    ends in an error on a CPU (1.14 and 1.16 do not). This is the same computation from the model's
    logits, with TRL's own function for CPU tensors; all else is TRL's.
    """

    def _get_per_token_logps_and_entropies(
        self,
        model: torch.nn.Module,
        input_ids: torch.Tensor,  # (B, P + C)
        attention_mask: torch.Tensor,  # (B, P + C)
        logits_to_keep: int,  # C
        batch_size: int | None = None,
        compute_entropy: bool = False,
        **unused: object,
    ) -> tuple[torch.Tensor, torch.Tensor | None, None]:
        """Log-probabilities and entropies of the completion tokens, (B, C) each, in fp32."""
        all_logprobs, all_entropies = [], []
        size = batch_size or input_ids.size(0)
        for start in range(0, input_ids.size(0), size):
            ids, mask = input_ids[start : start + size], attention_mask[start : start + size]
            with self.accelerator.autocast():
                output = model(
                    input_ids=ids, attention_mask=mask, logits_to_keep=logits_to_keep + 1, use_cache=False
                )
            logprobs, entropies = selective_log_softmax_and_entropy(
                output.logits[:, -logits_to_keep - 1 : -1].float(),  # (b, C, V)
                ids[:, -logits_to_keep:],
                entropy_requires_grad=False,
                temperature=self.temperature,
            )
            all_logprobs.append(logprobs)
            all_entropies.append(entropies)
        return torch.cat(all_logprobs), torch.cat(all_entropies) if compute_entropy else None, None


def _as_trl_reads_it(
    text: str, token_ids: Sequence[int], tokenizer: PreTrainedTokenizerBase, task: Task
) -> str:
    """``text`` such that the tokenizer's defaults, which TRL uses, give ``token_ids``."""
    candidates = [text]
    if tokenizer.bos_token is not None:
        # A chat template may write the BOS that the tokenizer adds by itself.
        candidates.append(text.removeprefix(tokenizer.bos_token))
    for candidate in candidates:
        if tuple(tokenizer(text=candidate)["input_ids"]) == tuple(token_ids):
            return candidate
    raise ValueError(
        f"model.name: the tokenizer adds special tokens to a rendered chat prompt ({task.task_id}), so TRL "
        "would train on another prompt than the main job; the baseline does not support this model"
    )
