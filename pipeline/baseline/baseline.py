"""The baseline: TRL's own GRPOTrainer on our tasks, prompts, rewards and sampling settings.

Synchronous: generate, with TRL's own colocated vLLM or with Transformers (``generation.baseline_engine``),
score one completion after the other without a cache, train, repeat. It exists to be compared with, so it
leaves the run folder of the main job, with the same names in it, and is measured on the same held-out tasks
by the same code. Patches nothing in TRL; on a CPU it does two things in its own way (see
pipeline.baseline.training).

What stays different from the main job, being TRL's own: tasks come in shuffled passes over the data set
whatever a curriculum would choose; learning rates warm up from 0, so that the first step of a warm-up trains
nothing, where the main job's first step has 1/(warmup_steps + 1) of the peak. With vLLM, and
``grpo.importance_sampling_mode`` none, TRL masks sequences whose importance ratio is too large; with
Transformers completions end at a fence token, not at a fence in the text (see sampling.stop_token_ids), and
with bf16 the weights are cast anew at every decoded token (autocast). The checkpoints on the way hold weights
only and there is no --resume: a run is one process's work.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Mapping
from concurrent.futures import Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from transformers import PreTrainedTokenizerBase

from configs.command_line import run_async
from configs.load import render
from configs.schema import Config
from configs.techniques import value_at
from curriculum.judging import start_sandbox
from curriculum.sources import load_tasks
from curriculum.task import Task
from pipeline.baseline.sampling import (
    Trained,
    TrainingJob,
    baseline_engine,
    prompt_dataset,
    stop_token_ids,
    vllm_environment,
)
from pipeline.errors import StageError
from pipeline.evaluation.evaluate import EvaluationReport
from pipeline.evaluation.heldout import heldout_tasks, measure
from pipeline.evaluation.scorers import SandboxScorer, check_sandbox
from pipeline.evaluation.sound_tasks import sound_tasks, tasks_that_fit
from pipeline.evaluation.summary import print_summary, write_summary
from pipeline.generation.start import running_generator
from pipeline.generation.vllm_arguments import check_vllm_arguments
from pipeline.handover.command import finish_run, refuse_push
from pipeline.host.device import check_precision, choose_device, for_device, refuse_unusable_packages
from pipeline.host.limits import num_oom_kills, why_killed
from pipeline.host.spans import Stopwatch
from pipeline.models.files import refuse_misfit, refuse_unfit_weights
from pipeline.models.find import local_folder, refuse_damaged_model, resolve_model, with_absolute_models
from pipeline.models.loading import load_tokenizer
from pipeline.record.checkpoints import keep_for
from pipeline.record.progress import Progress, make_progress
from pipeline.record.run_folder import RunFolder, RunPaths
from pipeline.record.tracking import tracker_names
from pipeline.training.adapters import refuse_unknown_layers
from rewards.custom import load_custom
from sandbox.jail import die_with_parent

# So long what is interrupted may take to close its files.
_GRACE_S = 15.0
# Settings of which the baseline knows one value only.
_ALLOWED = (
    ("model.loader", "transformers", "loads models with Transformers; set it to transformers"),
    ("generation.quantization", "none", "samples from weights as they are; set it to none"),
    ("generation.kv_cache_dtype", "auto", "samples with a cache of the weights' precision; set it to auto"),
    ("lora.load_in_4bit", False, "does not quantise; set it to false"),
    ("grpo.warm_start_steps", 0, "has no warm start; set it to 0"),
    ("rollouts.max_turns", 1, "has one turn; set it to 1"),
    ("generation.seed_requests", False, "has no seed for each request; set it to false"),
    ("generation.tensor_parallel_size", 1, "generates on the trainer's card; set it to 1"),
    ("training.activation_offloading", False, "keeps activations on the card; set it to false"),
    ("runtime.trainer_ranks", 1, "trains in one process; set it to 1"),
    ("runtime.strict", False, "has no alarms; leave it out"),
    ("runtime.keep_alive", False, "has the machine to itself while it trains; set it to false"),
    ("runtime.attach", False, "starts an engine for each measurement; set it to false"),
    ("evaluation.every_steps", None, "measures before and after training only; leave it out"),
)


def run_baseline(config: Config, verbose: bool) -> int:
    """Measure, train with TRL as ``config`` says, measure again; returns the exit status.

    The final model is in ``checkpoints/final``. ``verbose`` also prints what TRL logs.

    Raises:
        ValueError: the configuration cannot be run, or not by this trainer; before a model is loaded
            where that can be known.
        StageError: the generator of a measurement failed, TRL's process was killed, or no group of a step has
            two completions that could be scored.
    """
    for name, allowed, why in _ALLOWED:
        if (value := value_at(config, name)) != allowed:
            raise ValueError(f"{name}: value {value}: the baseline {why}")
    if config.cluster.is_joined:
        value = config.cluster.address
        raise ValueError(f"cluster.address: value {value}: the baseline trains on this machine; leave it out")
    refuse_damaged_model(config.model.name)
    config = with_absolute_models(config)
    tasks = load_tasks(config.dataset)
    heldout = heldout_tasks(config)
    device = choose_device(config)
    config = for_device(config, device)
    load_custom(config.rewards.custom)
    tracker_names(config)
    if config.output.push_to_hub is not None:
        refuse_push(config.output.push_to_hub)
    if config.execution.enabled or heldout:
        check_sandbox(config.execution)
    # Refused before anything is made.
    check_vllm_arguments(config, device)
    check_precision(config, device)
    refuse_unusable_packages(config, device)
    if (model := local_folder(config.model)) is not None:
        refuse_unfit_weights(model)
        refuse_misfit(config, model, device)
    baseline_engine(config, device)
    with RunFolder.create(config.output, render(config), is_baseline=True) as folder:
        run = _Baseline(config=config, folder=folder, tasks=tasks, heldout=heldout, device=device)
        run.run(verbose=verbose)
        print_summary(folder.path)
        finish_run(folder.path, config)
    return 0


@dataclass(kw_only=True)
class _Baseline:
    """One run: measure, train, measure, each with the machine to itself."""

    config: Config
    folder: RunFolder
    tasks: tuple[Task, ...]
    heldout: tuple[Task, ...]
    device: str
    _stopwatch: Stopwatch = field(default_factory=Stopwatch)

    def run(self, *, verbose: bool) -> None:
        config = self.config
        with self._display() as progress:
            progress.activity("loading the model")
            model_path = resolve_model(config.model)
            # What is on the hub is known only now.
            refuse_unfit_weights(model_path)
            refuse_misfit(config, model_path, self.device)
            refuse_unknown_layers(config, model_path)
            # Another run may remove the checkpoint that it is, or that adapters rest on.
            keep_for(self.folder.path, Path(model_path).resolve())
            tokenizer = load_tokenizer(model_path, trust_remote_code=config.model.trust_remote_code)
            tasks = self._tasks_to_train(tokenizer, progress)
            # Refused before anything is measured.
            prompt_dataset(tasks, tokenizer, config)
            if baseline_engine(config, self.device) == "transformers":
                stop_token_ids(tokenizer, None, config)
            before = run_async(self._evaluate("before", model_path, tokenizer, progress))
        job = TrainingJob(
            config=config,
            folder=RunPaths(self.folder.path),
            model=model_path,
            tasks=tasks,
            device=self.device,
            is_verbose=verbose,
        )
        trained = _train_apart(job, vllm_environment(config, self.device))
        self._stopwatch.seconds |= trained.seconds
        # Adapters are measured merged into the model that they belong to.
        final = resolve_model(config.model.model_copy(update={"name": str(job.final)}))
        with self._display() as progress:
            after = run_async(self._evaluate("after", final, tokenizer, progress))
        self._stopwatch.note("total")
        write_summary(
            self.folder,
            config,
            self.device,
            trained.level,
            before,
            after,
            self._stopwatch.seconds,
            trainer="trl",
        )

    def _tasks_to_train(self, tokenizer: PreTrainedTokenizerBase, progress: Progress) -> tuple[Task, ...]:
        """Those that the main job would train on. Raises ValueError where none is left."""

        def note(kind: str, text: str) -> None:
            progress.message(f"{kind}: {text}")

        tasks = tasks_that_fit(tokenizer, self.tasks, self.heldout, self.config, note)
        return sound_tasks(tasks, self.config, note)

    def _display(self) -> closing[Progress]:
        """One for each part: the training shows its own."""
        return closing(make_progress(self.config.runtime.progress, title=self.folder.name))

    async def _evaluate(
        self, when: str, model_path: Path, tokenizer: PreTrainedTokenizerBase, progress: Progress
    ) -> EvaluationReport | None:
        """Measure the model in ``model_path`` with a generator that is gone when this returns."""
        if not self.heldout:
            return None
        config = self.config
        progress.activity(f"starting the generator to measure {when} training")
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
                    progress=progress,
                    stopwatch=self._stopwatch,
                )


def _train_apart(job: TrainingJob, environment: Mapping[str, str]) -> Trained:
    """Do ``job`` in a process with ``environment`` added to ours; it prints where this one does.

    What it holds, on a card above all, is free when it ends: vLLM cannot be taken out of a process.
    Raises what the training raises, and StageError where its process was killed.
    """
    kills = num_oom_kills()
    with ProcessPoolExecutor(
        1, multiprocessing.get_context("spawn"), initializer=_begin, initargs=(dict(environment),)
    ) as process:
        training = process.submit(_train, job)
        try:
            return training.result()
        except BrokenProcessPool as error:
            raise StageError(f"the process of TRL's trainer was killed: {why_killed(kills)}") from error
        except KeyboardInterrupt:
            # Sent to this process alone, it would be obeyed when all is trained.
            for child in multiprocessing.active_children():
                _interrupt(child, training)
            raise


def _interrupt(child: multiprocessing.process.BaseProcess, training: Future[Trained]) -> None:
    """Have ``child`` end its ``training`` as on Ctrl-C, which a terminal has sent it too; then end it."""
    if not wait([training], _GRACE_S).done and child.pid is not None:
        os.kill(child.pid, signal.SIGINT)
        wait([training], 2 * _GRACE_S)
    # What is left of it waits for work.
    child.kill()


def _begin(environment: Mapping[str, str]) -> None:
    die_with_parent()
    os.environ.update(environment)


def _train(job: TrainingJob) -> Trained:
    # Imported here: TRL takes ten seconds, and vLLM, which it imports, reads the environment.
    from pipeline.baseline.training import train

    return train(job)
