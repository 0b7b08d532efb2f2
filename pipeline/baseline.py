"""The baseline: TRL's own GRPOTrainer on our tasks, prompts, rewards and sampling settings.

Synchronous: generate with Transformers, score one completion after the other without a cache, train,
repeat. It exists to be compared with, so it writes the run folder and the metric names of the main
job. Patches nothing in TRL; on a CPU it overrides one method (see ``CpuGRPOTrainer``). Called by
pipeline.cli (``train_code_grpo``).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from datasets import Dataset
from transformers import (
    PreTrainedTokenizerBase,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)
from trl import GRPOConfig, GRPOTrainer
from trl.trainer.utils import selective_log_softmax_and_entropy

from configs.load import render
from configs.schema import Config
from curriculum.sources import load_tasks
from curriculum.task import Task
from pipeline.metrics import MetricsWriter
from pipeline.models import load_model, load_tokenizer, resolve_model
from pipeline.prompts import encode_prompt, render_prompt
from pipeline.run_folder import RunFolder
from rewards.rubric import Scorer
from rewards.trl import make_reward_function
from sandbox.pool import SandboxPool

FENCE = "```"
# TRL's name -> ours; what is not here (its own names, per reward function) is left out.
_METRIC_NAMES = {
    "reward": "rollout/reward_mean",
    "reward_std": "rollout/reward_std",
    "frac_reward_zero_std": "rollout/zero_signal_share",
    "completions/mean_length": "rollout/completion_length",
    "completions/clipped_ratio": "rollout/truncated_share",
    "loss": "train/loss",
    "grad_norm": "train/grad_norm",
    "learning_rate": "train/learning_rate",
    "clip_ratio/region_mean": "train/clipped_share",
}
_OUR_STAGES = ("rollout/", "rewards/")


def run_baseline(config: Config) -> None:
    """Train with TRL as ``config`` says and leave a run folder: config.yaml, metrics.jsonl, the model.

    The final model is in ``checkpoints/final``. Raises ValueError for settings that this trainer cannot
    honour, before a model is loaded.
    """
    _refuse_unsupported(config)
    tasks = load_tasks(config.dataset)
    model_path = resolve_model(config.model)
    with RunFolder.create(config.output, render(config)) as folder:
        train_baseline(config, tasks, model_path, folder)


def train_baseline(config: Config, tasks: Sequence[Task], model_path: Path, folder: RunFolder) -> Path:
    """Train the model in ``model_path`` on ``tasks``; returns the folder of the trained model."""
    _refuse_unsupported(config)
    if config.runtime.trainer_threads is not None:
        torch.set_num_threads(config.runtime.trainer_threads)
    trust = config.model.trust_remote_code
    tokenizer = load_tokenizer(model_path, trust_remote_code=trust)
    dataset = prompt_dataset(tasks, tokenizer, config)
    model = load_model(model_path, dtype=torch.float32, trust_remote_code=trust)
    eos_token_id = model.generation_config.eos_token_id
    if config.generation.stop_at_code_fence:
        model.generation_config.eos_token_id = stop_token_ids(tokenizer, eos_token_id)
    final = folder.checkpoints / "final"
    metrics = MetricsWriter(folder.path)
    sandbox = SandboxPool(num_workers=1) if config.execution.enabled else None
    try:
        with Scorer(config.rewards, config.execution, None, sandbox) as scorer:
            settings = trl_config(config, folder.checkpoints)
            trainer_class = CpuGRPOTrainer if settings.use_cpu else GRPOTrainer
            trainer = trainer_class(
                model=model,
                reward_funcs=make_reward_function(
                    {task.task_id: task for task in tasks},
                    scorer,
                    prefill=config.generation.assistant_prefill,
                ),
                args=settings,
                train_dataset=dataset,
                processing_class=tokenizer,
                callbacks=[MetricsCallback(metrics, config.completions_per_step)],
            )
            trainer.train()
        # The fence was this run's stop sign, not the model's end of text.
        model.generation_config.eos_token_id = eos_token_id
        trainer.save_model(str(final))
    finally:
        metrics.close()
        if sandbox is not None:
            sandbox.close()
    return final


def trl_config(config: Config, output_dir: Path) -> GRPOConfig:
    """TRL's settings for ``config``: one generation batch an optimiser step, as in the main job."""
    training, grpo, generation = config.training, config.grpo, config.generation
    scheduler: str = training.lr_scheduler_type
    if scheduler == "constant" and training.warmup_steps > 0:
        # Transformers' "constant" ignores the warm-up.
        scheduler = "constant_with_warmup"
    return GRPOConfig(
        output_dir=str(output_dir),
        learning_rate=training.learning_rate,
        max_steps=training.max_steps,
        lr_scheduler_type=scheduler,
        warmup_steps=training.warmup_steps,
        weight_decay=training.weight_decay,
        adam_beta1=training.adam_beta1,
        adam_beta2=training.adam_beta2,
        adam_epsilon=training.adam_epsilon,
        max_grad_norm=training.max_grad_norm,
        per_device_train_batch_size=training.per_device_train_batch_size,
        gradient_accumulation_steps=training.gradient_accumulation_steps,
        bf16=training.bf16,
        gradient_checkpointing=training.gradient_checkpointing,
        seed=training.seed,
        num_generations=grpo.num_generations,
        beta=grpo.beta,
        epsilon=grpo.epsilon,
        epsilon_high=grpo.epsilon_high,
        loss_type=grpo.loss_type,
        scale_rewards=grpo.scale_rewards,
        mask_truncated_completions=grpo.mask_truncated_completions,
        temperature=generation.temperature,
        top_p=generation.top_p,
        top_k=generation.top_k,
        max_completion_length=generation.max_completion_length,
        logging_steps=config.output.logging_steps,
        use_cpu=config.runtime.device == "cpu" or not torch.cuda.is_available(),
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )


def prompt_dataset(tasks: Sequence[Task], tokenizer: PreTrainedTokenizerBase, config: Config) -> Dataset:
    """Rows with ``prompt`` (the text that the model continues, prefill included) and ``task_id``.

    The prompts are plain text, not messages, so that TRL's tokens are those of the main job. Raises
    ValueError for a prompt that is too long or that TRL would tokenise differently.
    """
    prefill = config.generation.assistant_prefill
    rows = []
    for task in tasks:
        token_ids = encode_prompt(tokenizer, task, prefill)
        if len(token_ids) > config.generation.max_prompt_length:
            raise ValueError(
                f"generation.max_prompt_length: value {config.generation.max_prompt_length}: the prompt of "
                f"{task.task_id} has {len(token_ids)} tokens; raise the limit or leave the task out"
            )
        text = render_prompt(tokenizer, task, prefill)
        rows.append({"prompt": _as_trl_reads_it(text, token_ids, tokenizer, task), "task_id": task.task_id})
    return Dataset.from_list(rows)


def stop_token_ids(tokenizer: PreTrainedTokenizerBase, eos_token_id: int | list[int] | None) -> list[int]:
    """The model's end tokens and those that spell a closing code fence.

    TRL gives Transformers' ``generate`` no tokenizer, so stop strings cannot be used with it; but it
    ends a completion at every end token that the model declares. This differs from stopping at a line
    that begins with a fence in two rare cases: a fence in mid-line ends the completion too, and one
    spelled with shorter tokens does not. Raises ValueError when no single token is a fence.
    """
    known = [] if eos_token_id is None else [eos_token_id] if isinstance(eos_token_id, int) else eos_token_id
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


class MetricsCallback(TrainerCallback):
    """Writes TRL's metrics to metrics.jsonl under the names of the main job, one line a logged step."""

    def __init__(self, writer: MetricsWriter, completions_per_step: int) -> None:
        self._writer = writer
        self._completions_per_step = completions_per_step
        self._step_start = time.perf_counter()
        self._step_seconds: list[float] = []

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **unused: object
    ) -> None:
        """Start the step's clock; generation and scoring are inside the step."""
        self._step_start = time.perf_counter()

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **unused: object
    ) -> None:
        """Stop the step's clock."""
        self._step_seconds.append(time.perf_counter() - self._step_start)

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: Mapping[str, float | None] | None = None,
        **unused: object,
    ) -> None:
        """Write one line; the summary that TRL logs at the end of training is left out."""
        if logs is None or "loss" not in logs or not self._step_seconds:
            return
        seconds = sum(self._step_seconds) / len(self._step_seconds)
        self._step_seconds.clear()
        metrics = rename_metrics(logs)
        self._writer.log(
            state.global_step,
            {
                **metrics,
                "train/tokens": metrics["rollout/completion_length"] * self._completions_per_step,
                "step/seconds": seconds,
                "step/samples_per_s": self._completions_per_step / seconds,
            },
        )


def rename_metrics(logs: Mapping[str, float | None]) -> dict[str, float]:
    """TRL's metrics under our names, and those that our reward function logged."""
    renamed = {_METRIC_NAMES.get(name, name): value for name, value in logs.items()}
    ours = set(_METRIC_NAMES.values())
    return {
        name: float(value)
        for name, value in renamed.items()
        if value is not None and (name in ours or (name.startswith(_OUR_STAGES) and name.count("/") == 1))
    }


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


def _refuse_unsupported(config: Config) -> None:
    if config.lora.enabled:
        raise ValueError("lora.enabled: value True: the baseline trains all weights; set it to false")
