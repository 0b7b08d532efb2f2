"""What a run does, and all for which it is refused before any model is loaded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from configs.schema import Config
from configs.task_sets import is_fetched
from curriculum.sources import load_tasks
from curriculum.stages import refuse_empty_stages
from curriculum.task import Task
from pipeline.evaluation.heldout import heldout_tasks
from pipeline.evaluation.scorers import refuse_unusable_sandbox
from pipeline.evaluation.sound_tasks import Note, sound_tasks, tasks_that_fit
from pipeline.generation.vllm_arguments import check_vllm_arguments
from pipeline.host import spans
from pipeline.host.device import (
    check_precision,
    choose_device,
    for_device,
    num_gpus,
    refuse_conflicts,
    refuse_unusable_packages,
)
from pipeline.host.shares import (
    check_residence,
    check_sleep,
    check_tensor_parallel,
    gpu_shares,
    sends_weights,
)
from pipeline.models.files import refuse_misfit, refuse_untrainable
from pipeline.models.find import local_folder, refuse_damaged_model, with_absolute_models
from pipeline.models.prompts import PromptTokenizer, refuse_useless_seeds
from pipeline.record.run_folder import refuse_unusable_output
from pipeline.record.tracking import tracker_names
from pipeline.run.resume import begun_with, refuse_other_tasks, refuse_resume, with_commit_of
from rewards.custom import CustomFeedback, load_custom
from rewards.feedback import refuse_feedback


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What a run does: its settings, the tasks that are trained on, those that are measured, the device."""

    config: Config
    tasks: tuple[Task, ...]
    heldout: tuple[Task, ...]
    device: str


def prepare(config: Config) -> Job:
    """What ``config`` asks for; raises ValueError for what can be refused before any model loads."""
    with spans.span("driver", "load the tasks"):
        _refuse_models(config, "")
        config = with_absolute_models(config)
        device = choose_device(config)
        config = for_device(config, device)
        tasks = _tasks(config)
        job = Job(config=config, tasks=tasks, heldout=heldout_tasks(config), device=device)
        for refuse in (*_OF_SETTINGS, *_OF_MACHINE):
            refuse(config, device)
    with spans.span("driver", "check the sandbox"):
        refuse_unusable_sandbox(config, device)
    return job


def prepare_resume(config: Config, run: Path) -> tuple[Job, list[str]]:
    """The job of ``config`` as ``run`` goes on with it, and what differs from the run's settings, in words.

    Raises as ``prepare`` and ``refuse_resume``.
    """
    job = prepare(with_commit_of(run, config))
    return job, refuse_resume(run, job.config)


def choose_tasks(
    tasks: tuple[Task, ...],
    heldout: Sequence[Task],
    config: Config,
    tokenizer: PromptTokenizer | None,
    note: Note,
    *,
    run: Path | None,
    is_unwanted: Callable[[], bool] = lambda: False,
) -> tuple[Task, ...]:
    """Those of ``tasks`` that a run trains on; ``note`` hears of what is left out.

    ``tokenizer`` counts their prompts and those of ``heldout``, if it is there. A run that goes on from
    a checkpoint, in the folder ``run``, keeps the tasks that it began with. Raises ValueError for prompts
    that are too long, where no task is left, and for others than the checkpoint's.
    """
    if tokenizer is not None:
        tasks = tasks_that_fit(tokenizer, tasks, heldout, config, note)
    begun = None if run is None else begun_with(run, tasks, config)
    tasks = sound_tasks(tasks, config, note, is_unwanted) if begun is None else begun
    refuse_empty_stages(tasks, config.acceleration.curriculum)
    if run is not None and begun is None:
        refuse_other_tasks(run, tasks, config)
    return tasks


def faults_of(config: Config, device: str, is_here: bool, *, resume: str | None) -> list[str]:
    """All for which a run, new or resumed, would be refused, beside what the hub alone can tell.

    ``device`` is this machine's, or where not ``is_here`` another one's, of which nothing is known.
    """
    faults: list[str] = []
    checks: list[_Refusal] = [_refuse_models, _refuse_tasks, _refuse_adapters, *_OF_SETTINGS]
    if is_here:
        checks += [*_OF_MACHINE, refuse_unusable_sandbox]
    if resume is not None:
        run = Path(resume)
        checks.append(lambda config, _: refuse_resume(run, with_commit_of(run, config)))
    elif is_here:
        checks.append(lambda config, _: refuse_unusable_output(config.output))
    for refuse in checks:
        try:
            refuse(config, device)
        except ValueError as error:
            faults += str(error).splitlines()
    return faults


def _refuse_models(config: Config, _: str) -> None:
    named = {
        "model.name": config.model.name,
        "acceleration.speculative.draft_model": config.acceleration.speculative.draft_model,
    }
    for field, name in named.items():
        if name is not None:
            refuse_damaged_model(name, field)


def _tasks(config: Config) -> tuple[Task, ...]:
    tasks = load_tasks(config.dataset)
    refuse_empty_stages(tasks, config.acceleration.curriculum)
    if config.rollouts.max_turns > 1:
        refuse_feedback(config.rollouts.feedback, tasks, "rollouts.feedback")
    return tasks


def _refuse_tasks(config: Config, _: str) -> None:
    if not is_fetched(config.dataset.name):
        _tasks(config)
    if not is_fetched(config.evaluation.tasks):
        heldout_tasks(config)


def _refuse_misfit(config: Config, device: str) -> None:
    if (folder := local_folder(config.model)) is not None:
        refuse_untrainable(config, folder)
        refuse_misfit(config, folder, device)


def _refuse_adapters(config: Config, _: str) -> None:
    """What a run asks when it has found its model."""
    if config.lora.enabled and (folder := local_folder(config.model)) is not None:
        # Imported here: only adapters need to know the model's layers in this process.
        from pipeline.training.adapters import refuse_unknown_layers

        refuse_unknown_layers(config, folder)


def _refuse_custom(config: Config, _: str) -> None:
    load_custom(config.rewards.custom)
    if config.rollouts.custom_feedback is not None:
        CustomFeedback(config.rollouts.custom_feedback)


def _refuse_push(config: Config, _: str) -> None:
    if config.output.push_to_hub is not None:
        # Imported here: it takes a second, and few runs upload.
        from pipeline.handover.command import refuse_push

        refuse_push(config.output.push_to_hub)


def _refuse_shares(config: Config, device: str) -> None:
    if num_gpus(device) > 0 and not config.cluster.is_joined:
        gpu_shares(config, num_gpus(device))
        sends_weights(config, device, num_gpus(device))


_Refusal = Callable[[Config, str], object]
_OF_SETTINGS: Final[tuple[_Refusal, ...]] = (
    _refuse_misfit,
    _refuse_custom,
    lambda config, _: tracker_names(config),
    _refuse_push,
    check_vllm_arguments,
    refuse_conflicts,
    refuse_useless_seeds,
)
_OF_MACHINE: Final[tuple[_Refusal, ...]] = (
    lambda config, _: choose_device(config),
    check_tensor_parallel,
    check_residence,
    check_sleep,
    check_precision,
    refuse_unusable_packages,
    _refuse_shares,
)
