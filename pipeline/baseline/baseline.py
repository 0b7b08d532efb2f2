"""The baseline: TRL's own GRPOTrainer on our tasks, prompts, rewards and sampling settings.

Synchronous: generate with Transformers, score one completion after the other without a cache, train,
repeat. It exists to be compared with, so it leaves the run folder of the main job, with the same names in
it, and is measured on the same held-out tasks by the same code. Patches nothing in TRL; on a CPU it
overrides one method (see trl_setup.CpuGRPOTrainer).

What stays different from the main job, being TRL's own: tasks come in shuffled passes over the data set
instead of uniform draws; completions end at a fence token, not at a fence in the text (see
trl_setup.stop_token_ids); with bf16 the weights are cast anew at every decoded token (autocast); and learning
rates warm up from 0, so that the first step of a warm-up trains nothing, where the main job's first step
has 1/(warmup_steps + 1) of the peak. TRL's vLLM is not used: on a CPU it fails (a weight loader is missing).
The checkpoints on the way hold weights only and there is no --resume: a run is one process's work.
"""

from __future__ import annotations

import asyncio
import gc
import os
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import ray
import torch
from datasets import Dataset
from peft import PeftModel, get_peft_model
from transformers import PreTrainedModel, PreTrainedTokenizerBase, PrinterCallback
from trl import GRPOTrainer

from configs.load import render
from configs.schema import Config
from curriculum.judging import start_sandbox
from curriculum.sources import load_tasks
from curriculum.task import Task
from pipeline.baseline.account import BaselineAccount, StepCheckpoints
from pipeline.baseline.trl_setup import CpuGRPOTrainer, prompt_dataset, stop_token_ids, trl_config
from pipeline.evaluation.evaluate import EvaluationReport
from pipeline.evaluation.heldout import heldout_tasks, measure, tasks_that_fit
from pipeline.evaluation.scorers import SandboxScorer, check_sandbox
from pipeline.evaluation.summary import print_summary, write_summary
from pipeline.generation.start import running_generator
from pipeline.handover.command import finish_run, refuse_push
from pipeline.host.shares import choose_device, with_precision
from pipeline.host.spans import Stopwatch
from pipeline.models.check import refuse_damaged_model
from pipeline.models.find import resolve_model
from pipeline.models.loading import load_model, load_tokenizer
from pipeline.models.prompts import encode_prompt
from pipeline.record.ledger import Ledger
from pipeline.record.metrics import MetricsWriter
from pipeline.record.progress import Progress, make_progress
from pipeline.record.run_folder import RunFolder
from pipeline.record.tracking import start_tracking, tracker_names
from pipeline.training.adapters import peft_settings, refuse_unknown_layers
from rewards.custom import load_custom
from rewards.scorer import Scorer


def run_baseline(config: Config, verbose: bool) -> int:
    """Measure, train with TRL as ``config`` says, measure again; returns the exit status.

    The final model is in ``checkpoints/final``. ``verbose`` also prints what TRL logs.

    Raises:
        ValueError: the configuration cannot be run, or not by this trainer; before a model is loaded
            where that can be known.
        StageError: the generator of a measurement failed, or no completion of a step could be scored.
    """
    if config.lora.load_in_4bit:
        raise ValueError("lora.load_in_4bit: value True: the baseline does not quantise; set it to false")
    if config.grpo.warm_start_steps > 0:
        found = config.grpo.warm_start_steps
        raise ValueError(f"grpo.warm_start_steps: value {found}: the baseline has no warm start; set it to 0")
    refuse_damaged_model(config.model.name)
    tasks = load_tasks(config.dataset)
    heldout = heldout_tasks(config)
    device = choose_device(config)
    config = with_precision(config, device)
    load_custom(config.rewards.custom)
    if config.evaluation.every_steps is not None:
        raise ValueError(
            f"evaluation.every_steps: value {config.evaluation.every_steps}: the baseline measures before "
            "and after training only; leave it out"
        )
    tracker_names(config)
    if config.output.push_to_hub is not None:
        refuse_push(config.output.push_to_hub)
    if config.execution.enabled or heldout:
        check_sandbox(config.execution)
    with RunFolder.create(config.output, render(config), is_baseline=True) as folder:
        progress = make_progress(config.runtime.progress, title=folder.name)
        try:
            run = _Baseline(
                config=config, folder=folder, progress=progress, tasks=tasks, heldout=heldout, device=device
            )
            run.run(verbose=verbose)
        finally:
            progress.close()
        print_summary(folder.path)
        finish_run(folder.path, config)
    return 0


@dataclass(kw_only=True)
class _Baseline:
    """One run: measure, train, measure, each with the machine to itself."""

    config: Config
    folder: RunFolder
    progress: Progress
    tasks: tuple[Task, ...]
    heldout: tuple[Task, ...]
    device: str
    _level: str = "none"
    _stopwatch: Stopwatch = field(default_factory=Stopwatch)

    def run(self, *, verbose: bool) -> None:
        config = self.config
        self.progress.activity("loading the model")
        model_path = resolve_model(config.model)
        refuse_unknown_layers(config, model_path)
        tokenizer = load_tokenizer(model_path, trust_remote_code=config.model.trust_remote_code)
        self.tasks = tasks_that_fit(
            tokenizer,
            self.tasks,
            self.heldout,
            config,
            lambda kind, text: self.progress.message(f"{kind}: {text}"),
        )
        dataset = prompt_dataset(self.tasks, tokenizer, config)
        before = self._evaluate("before", model_path, tokenizer)
        final = self._train(model_path, tokenizer, dataset, verbose=verbose)
        # What the trainer held would be missing to the generator that follows.
        _free_memory()
        # Adapters are measured merged into the model that they belong to.
        trained = resolve_model(config.model.model_copy(update={"name": str(final)}))
        after = self._evaluate("after", trained, tokenizer)
        self._stopwatch.note("total")
        write_summary(
            self.folder,
            config,
            self.device,
            self._level,
            before,
            after,
            self._stopwatch.seconds,
            trainer="trl",
        )

    def _evaluate(
        self, when: str, model_path: Path, tokenizer: PreTrainedTokenizerBase
    ) -> EvaluationReport | None:
        """Measure the model in ``model_path`` with a generator that is gone when this returns."""
        if not self.heldout:
            return None
        is_ray_ours = not ray.is_initialized()
        try:
            return asyncio.run(self._measure(when, model_path, tokenizer))
        finally:
            if is_ray_ours:
                ray.shutdown()
            _free_memory()

    async def _measure(
        self, when: str, model_path: Path, tokenizer: PreTrainedTokenizerBase
    ) -> EvaluationReport:
        config = self.config
        self.progress.activity(f"starting the generator to measure {when} training")
        with start_sandbox(config.execution, max(1, (os.cpu_count() or 2) // 2)) as sandbox:
            async with running_generator(config, str(model_path), self.device) as generator:
                return await measure(
                    when,
                    self.heldout,
                    generator,
                    SandboxScorer(sandbox, config.execution),
                    config=config,
                    tokenizer=tokenizer,
                    folder=self.folder,
                    progress=self.progress,
                    stopwatch=self._stopwatch,
                )

    def _train(
        self, model_path: Path, tokenizer: PreTrainedTokenizerBase, dataset: Dataset, *, verbose: bool
    ) -> Path:
        """Train the model in ``model_path``; returns the folder of the trained one."""
        config = self.config
        if config.runtime.trainer_threads is not None:
            torch.set_num_threads(config.runtime.trainer_threads)
        self.progress.activity("starting TRL's trainer")
        with ExitStack() as stack:
            with self._stopwatch.timed("startup"):
                base = load_model(
                    model_path, dtype=torch.float32, trust_remote_code=config.model.trust_remote_code
                )
                model: PreTrainedModel | PeftModel = base
                if config.lora.enabled:
                    model = get_peft_model(base, peft_settings(base, config.lora))
                end_ids = model.generation_config.eos_token_id
                stop_ids = stop_token_ids(tokenizer, end_ids, config)
                model.generation_config.eos_token_id = stop_ids
                settings = trl_config(config, self.folder.checkpoints, self.device)
                account = self._account(tokenizer, frozenset(stop_ids), stack)
                checkpoints = StepCheckpoints(
                    model=model,
                    tokenizer=tokenizer,
                    end_ids=end_ids,
                    checkpoint=self.folder.checkpoint,
                    save_steps=config.output.save_steps,
                    limit=config.output.save_total_limit,
                )
                trainer_class = CpuGRPOTrainer if settings.use_cpu else GRPOTrainer
                trainer = trainer_class(
                    model=model,
                    reward_funcs=account.code_reward,
                    args=settings,
                    train_dataset=dataset,
                    processing_class=tokenizer,
                    callbacks=[account, checkpoints],
                )
                if not verbose:
                    trainer.remove_callback(PrinterCallback)
            self.progress.start(config.training.max_steps)
            with self._stopwatch.timed("training"):
                trainer.train()
            # The fence was this run's stop sign, not the model's end of text.
            model.generation_config.eos_token_id = end_ids
            final = self.folder.checkpoints / "final"
            self.progress.activity("saving the model")
            trainer.save_model(str(final))
        return final

    def _account(
        self, tokenizer: PreTrainedTokenizerBase, end_ids: frozenset[int], stack: ExitStack
    ) -> BaselineAccount:
        """The account with its ledger, sandbox and scorer, which ``stack`` closes."""
        config = self.config
        ledger = Ledger(self.folder.db)
        stack.callback(ledger.close)
        metrics = MetricsWriter(self.folder.path)
        stack.callback(metrics.close)
        tracking = start_tracking(config, self.folder.name, self.folder.path, 0, self.progress.message)
        stack.callback(tracking.close)
        ledger.note_tasks(self.tasks)
        sandbox = None
        if config.execution.enabled:
            sandbox = stack.enter_context(start_sandbox(config.execution))
            self._level = sandbox.level
        ledger.event("isolation", f"sandbox level {self._level}")
        scorer = stack.enter_context(Scorer(config.rewards, config.execution, None, sandbox))
        prefill = config.generation.assistant_prefill
        return BaselineAccount(
            config=config,
            tasks=self.tasks,
            scorer=scorer,
            prompt_ids=lambda task: encode_prompt(tokenizer, task, prefill),
            end_ids=end_ids,
            ledger=ledger,
            metrics=metrics,
            samples=self.folder.samples,
            progress=self.progress,
            tracking=tracking,
        )


def _free_memory() -> None:
    """Give back what a model that is no longer in use held."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
