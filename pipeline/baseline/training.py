"""TRL's trainer on our tasks, prompts, rewards and sampling settings: what a TrainingJob asks for.

Measures nothing; pipeline.baseline.sampling says what it is given, and it runs in a process of its own.
"""

from __future__ import annotations

from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel, get_peft_model
from transformers import PreTrainedModel, PreTrainedTokenizerBase, PrinterCallback
from transformers.utils.import_utils import is_torch_tf32_available
from trl import GRPOConfig, GRPOTrainer
from trl.generation.vllm_generation import VLLMGeneration
from trl.trainer.utils import selective_log_softmax_and_entropy

from configs.schema import Config
from curriculum.judging import start_sandbox
from pipeline.baseline.account import BaselineAccount, StepCheckpoints
from pipeline.baseline.sampling import (
    Trained,
    TrainingJob,
    baseline_engine,
    end_token_ids,
    prompt_dataset,
    stop_token_ids,
)
from pipeline.evaluation.forms import ChatForm
from pipeline.host.files import written_whole
from pipeline.host.shares import engine_share
from pipeline.host.spans import Stopwatch
from pipeline.models.loading import load_model, load_tokenizer
from pipeline.models.prompts import stop_strings
from pipeline.record.ledger import Ledger
from pipeline.record.metrics import MetricsWriter
from pipeline.record.progress import Progress, make_progress
from pipeline.record.tracking import start_tracking
from pipeline.training.adapters import peft_settings
from rewards.scorer import Scorer
from sandbox.pool import SandboxPool

# All other settings of training and grpo are TRL's by name. The generator's correction has another name there
# and is for vLLM alone; attention and what adapts to the memory are left to TRL.
_NOT_TRLS = {
    *("importance_sampling_mode", "importance_sampling_cap", "mismatch_kl_warning", "warm_start_steps"),
    *("lr_scheduler_type", "tf32", "memory", "activation_offloading"),
}


def train(job: TrainingJob) -> Trained:
    """Train; the model is in ``job.final`` when this returns.

    Raises:
        ValueError: the model cannot be trained by TRL.
        StageError: no group of a step has two completions that could be scored.
    """
    config, stopwatch = job.config, Stopwatch()
    if config.runtime.trainer_threads is not None:
        torch.set_num_threads(config.runtime.trainer_threads)
    with ExitStack() as stack:
        progress = stack.enter_context(closing(make_progress(config.runtime.progress, title=job.folder.name)))
        progress.activity("starting TRL's trainer")
        with stopwatch.timed("startup"):
            trust = config.model.trust_remote_code
            tokenizer = load_tokenizer(job.model, trust_remote_code=trust)
            base = load_model(job.model, dtype=torch.float32, trust_remote_code=trust)
            # TRL seeds later, when adapters have been drawn.
            torch.manual_seed(config.training.seed)
            model = get_peft_model(base, peft_settings(base, config.lora)) if config.lora.enabled else base
            own_end_ids = model.generation_config.eos_token_id
            end_ids = end_token_ids(tokenizer, own_end_ids)
            if baseline_engine(config, job.device) == "transformers":
                end_ids = stop_token_ids(tokenizer, own_end_ids, config)
            model.generation_config.eos_token_id = end_ids
            sandbox = (
                stack.enter_context(start_sandbox(config.execution)) if config.execution.enabled else None
            )
            account = _account(job, tokenizer, frozenset(end_ids), sandbox, progress, stack)
            trainer = _trainer(job, model, tokenizer, own_end_ids, account)
        progress.start(config.training.max_steps)
        with stopwatch.timed("training"):
            trainer.train()
        # The fence was this run's stop sign, not the model's end of text.
        model.generation_config.eos_token_id = own_end_ids
        progress.activity("saving the model")
        with written_whole(job.final) as folder:
            trainer.save_model(str(folder))
        return Trained(level=sandbox.level if sandbox else "none", seconds=stopwatch.seconds)


def _trainer(
    job: TrainingJob,
    model: PreTrainedModel | PeftModel,
    tokenizer: PreTrainedTokenizerBase,
    own_end_ids: int | list[int] | None,
    account: BaselineAccount,
) -> GRPOTrainer:
    config = job.config
    settings = trl_config(config, job.folder.checkpoints, job.device)
    checkpoints = StepCheckpoints(
        model=model,
        tokenizer=tokenizer,
        end_ids=own_end_ids,
        checkpoint=job.folder.checkpoint,
        save_steps=config.output.save_steps,
        limit=config.output.save_total_limit,
    )
    trainer_class = CpuGRPOTrainer if settings.use_cpu else GRPOTrainer
    trainer = trainer_class(
        model=model,
        reward_funcs=account.code_reward,
        args=settings,
        train_dataset=prompt_dataset(job.tasks, tokenizer, config),
        processing_class=tokenizer,
        callbacks=[account, checkpoints],
    )
    account.watch(trainer)
    if not job.is_verbose:
        trainer.remove_callback(PrinterCallback)
    return trainer


def _account(
    job: TrainingJob,
    tokenizer: PreTrainedTokenizerBase,
    end_ids: frozenset[int],
    sandbox: SandboxPool | None,
    progress: Progress,
    stack: ExitStack,
) -> BaselineAccount:
    """The account with its ledger, files and scorer, which ``stack`` closes."""
    config, folder = job.config, job.folder
    ledger = stack.enter_context(closing(Ledger(folder.db)))
    tracking = start_tracking(config, folder.name, folder.path, 0, progress.message)
    stack.callback(tracking.close)
    ledger.note_tasks(job.tasks)
    ledger.event("isolation", f"sandbox level {sandbox.level if sandbox else 'none'}")
    return BaselineAccount(
        config=config,
        tasks=job.tasks,
        scorer=stack.enter_context(Scorer(config.rewards, config.execution, sandbox)),
        prompt_ids=ChatForm(tokenizer=tokenizer, generation=config.generation).prompt_ids,
        end_ids=end_ids,
        ledger=ledger,
        open_metrics=lambda: stack.enter_context(closing(MetricsWriter(folder.path))),
        samples=folder.samples,
        progress=progress,
        tracking=tracking,
    )


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
    if device == "cuda":
        # Transformers refuses it of a card that has none; ours does without there.
        settings["tf32"] = training.tf32 and is_torch_tf32_available()
    if baseline_engine(config, device) == "vllm":
        settings |= _vllm_settings(config, device)
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
        trust_remote_code=config.model.trust_remote_code,
    )


def _vllm_settings(config: Config, device: str) -> dict[str, Any]:
    """TRL's own vLLM, in the trainer's process and on its card, which it gives back while it sleeps.

    Its completions end where the main job's do.
    """
    generation, grpo = config.generation, config.grpo
    settings: dict[str, Any] = {
        "use_vllm": True,
        "vllm_mode": "colocate",
        "vllm_enable_sleep_mode": device == "cuda",
        "vllm_gpu_memory_utilization": engine_share(config, beside_trainer=True),
        "vllm_max_model_length": generation.max_prompt_length + generation.max_completion_length,
    }
    if stops := stop_strings(generation):
        settings["generation_kwargs"] = {"stop": list(stops), "include_stop_str_in_output": True}
    if grpo.importance_sampling_mode != "none":
        settings["vllm_importance_sampling_mode"] = grpo.importance_sampling_mode
        settings["vllm_importance_sampling_clip_max"] = grpo.importance_sampling_cap
    return settings


class CpuGRPOTrainer(GRPOTrainer):  # type: ignore[misc]
    """TRL's trainer where there is no GPU.

    TRL 1.15 computes token log-probabilities with a Triton kernel on every device, so its own trainer
    ends in an error on a CPU (1.14 and 1.16 do not). This is the same computation from the model's
    logits, with TRL's own function for CPU tensors; all else is TRL's.
    """

    vllm_generation: Any  # what generates, with ``generate`` and ``sync_weights``

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        if self.use_vllm:
            self.vllm_generation = CpuVllm(self.vllm_generation)

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


class CpuVllm:
    """TRL's colocated vLLM where there is no GPU: it generates as TRL has it, and takes new weights.

    TRL hands each weight to the loader of the running model. On a CPU the layers are packed for their kernels
    by then and have none, so that TRL ends in an error at its first step.
    """

    def __init__(self, theirs: VLLMGeneration) -> None:
        self.generate = theirs.generate
        self.llm = theirs.llm
        self._theirs = theirs

    def sync_weights(self) -> None:
        """See TRL's VLLMGeneration."""
        # Imported here: it takes vLLM.
        from pipeline.generation.vllm.transfer import reload_on_cpu

        runner = self.llm.llm_engine.model_executor.driver_worker.model_runner
        reload_on_cpu(runner.model, runner.model_config, self._theirs._iter_named_params())
        self.llm.reset_prefix_cache()
