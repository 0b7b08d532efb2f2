"""TRL's trainer on our tasks, prompts, rewards and sampling settings: what a TrainingJob asks for.

Measures nothing; pipeline.baseline.job runs it in a process of its own.
"""

from __future__ import annotations

from contextlib import ExitStack, closing

import torch
from peft import PeftModel, get_peft_model
from transformers import PreTrainedModel, PreTrainedTokenizerBase, PrinterCallback
from trl import GRPOTrainer

from curriculum.judging import start_sandbox
from pipeline.baseline.account import BaselineAccount, StepCheckpoints
from pipeline.baseline.job import Trained, TrainingJob
from pipeline.baseline.sampling import baseline_engine, end_token_ids, prompt_dataset, stop_token_ids
from pipeline.baseline.trl_setup import CpuGRPOTrainer, trl_config
from pipeline.host.files import written_whole
from pipeline.host.spans import Stopwatch
from pipeline.models.loading import load_model, load_tokenizer
from pipeline.models.prompts import encode_prompt
from pipeline.record.ledger import Ledger
from pipeline.record.metrics import MetricsWriter
from pipeline.record.progress import Progress, make_progress
from pipeline.record.tracking import start_tracking
from pipeline.training.adapters import peft_settings
from rewards.scorer import Scorer
from sandbox.pool import SandboxPool


def train(job: TrainingJob) -> Trained:
    """Train; the model is in ``job.final`` when this returns.

    Raises:
        ValueError: the model cannot be trained by TRL.
        StageError: no completion of a step could be scored.
    """
    config, stopwatch = job.config, Stopwatch()
    if config.runtime.trainer_threads is not None:
        torch.set_num_threads(config.runtime.trainer_threads)
    with ExitStack() as stack:
        progress = stack.enter_context(closing(make_progress(config.runtime.progress, title=job.folder.name)))
        progress.activity("starting TRL's trainer")
        with stopwatch.timed("startup"):
            tokenizer = load_tokenizer(job.model, trust_remote_code=config.model.trust_remote_code)
            model = _model(job)
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


def _model(job: TrainingJob) -> PreTrainedModel | PeftModel:
    config = job.config
    base = load_model(job.model, dtype=torch.float32, trust_remote_code=config.model.trust_remote_code)
    return get_peft_model(base, peft_settings(base, config.lora)) if config.lora.enabled else base


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
    prefill = config.generation.assistant_prefill
    return BaselineAccount(
        config=config,
        tasks=job.tasks,
        scorer=stack.enter_context(Scorer(config.rewards, config.execution, None, sandbox)),
        prompt_ids=lambda task: encode_prompt(tokenizer, task, prefill),
        end_ids=end_ids,
        ledger=ledger,
        open_metrics=lambda: stack.enter_context(closing(MetricsWriter(folder.path))),
        samples=folder.samples,
        progress=progress,
        tracking=tracking,
    )
