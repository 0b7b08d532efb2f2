"""The command evaluate_humaneval: sample and score, or score what a file holds; one model, or two in turn.

    STEM                    the completions, in OpenAI's format
    STEM_results.jsonl      each with its verdict
    STEM_report.json        pass@k, kinds of failure, every task's counts, the comparison
    STEM_journal.jsonl      while it runs: an evaluation that is started again goes on from there

With ``against`` the second model has files of its own, "_against" before the suffix of STEM; the report is of
both.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path
from typing import Final

from rich.console import Console

from configs.command_line import run_async
from configs.evaluation_options import EvaluationOptions, config_of
from configs.rollouts_schema import MAX_FEEDBACK_LENGTH
from configs.schema import Config, ExecutionConfig, ModelConfig
from curriculum.judging import Executor, start_sandbox
from curriculum.sources import load_named_tasks
from curriculum.task import Task
from pipeline.evaluation.evaluate import (
    NUM_CONCURRENT_REQUESTS,
    EvaluatedSample,
    EvaluationJournal,
    EvaluationReport,
    EvaluationTerms,
    LaterTurns,
    TextScorer,
    evaluate_tasks,
    make_report,
    tasks_digest,
)
from pipeline.evaluation.forms import AnswerForm, ChatForm, CompletionForm
from pipeline.evaluation.passk import compare
from pipeline.evaluation.resident_engine import evaluation_generator
from pipeline.evaluation.samples import read_samples, sample_completion, write_results, write_samples
from pipeline.evaluation.scorers import CompletionScorer, SandboxScorer, check_sandbox
from pipeline.evaluation.table import (
    print_comparison,
    print_report,
    print_side_by_side,
    print_tasks,
    print_turns,
    report_record,
)
from pipeline.evaluation.turns import SecondTries, turn_report
from pipeline.host.device import choose_device
from pipeline.host.files import files_digest, write_text_atomically
from pipeline.messages import SamplingSettings
from pipeline.models.files import refuse_misfit
from pipeline.models.find import refuse_damaged_model, resolve_model
from rewards.custom import CustomFeedback

# vLLM's default for all but the largest cards. A CPU is nearly as fast with 64, and a request is over sooner.
# Nor is a trainer beside the engine.
_ON_A_GPU: Final = {"max_num_seqs": 256, "gpu_memory_utilization": 0.9}


def run_evaluation(options: EvaluationOptions) -> int:
    """Evaluate; write the files, print the tables, return 0.

    Raises ValueError for options that cannot be used here, before any model is loaded.
    """
    whole_set = load_named_tasks(options.tasks)
    tasks, known = whole_set[: options.limit], {task.task_id for task in whole_set}
    console = Console(highlight=False, markup=False)
    execution = ExecutionConfig(
        timeout=options.timeout, allow_unsafe=options.allow_unsafe, modules=list(options.modules)
    )
    stems = options.stems()
    # All files are read before the first is scored: what is wrong with one shows at once.
    samples = {name: read_samples(name, tasks, known) for name in stems if options.samples is not None}
    flag_of = {name: "--against" if name == options.against else "--model" for name in stems}
    for name in stems if options.samples is None else ():
        refuse_damaged_model(name, flag_of[name])
    own = options.custom_feedback
    custom = None if own is None else CustomFeedback(own, field="--custom-feedback")
    check_sandbox(execution, modules_flag="--module", unsafe_flag="--allow-unsafe")
    # Both are looked up before the first is sampled.
    folders = {name: _folder(name, flag_of[name]) for name in stems if options.samples is None}
    reports: dict[str, EvaluationReport] = {}
    with start_sandbox(execution, max(1, (os.cpu_count() or 2) // 2)) as sandbox:

        @cache
        def prepared(name: str) -> _Prepared:
            return _prepared(options, name, folders[name], tasks, sandbox, execution, custom)

        # What is wrong with the second model shows before the first is sampled, for an hour or more.
        for name in folders if len(folders) > 1 else ():
            with _as_flag(flag_of[name], options.turns):
                prepared(name)
        for name, stem in stems.items():
            if options.samples is not None:
                report = run_async(_score_samples(samples[name], CompletionScorer(sandbox, execution)))
            else:
                with _as_flag(flag_of[name], options.turns):
                    prepare = partial(prepared, name)
                    report = _sample_model(options, name, folders[name], stem, tasks, custom, prepare)
            _write_files(console, options, stem, report, tasks)
            reports[name] = report
    _conclude(console, options, Path(f"{next(iter(stems.values()))}_report.json"), reports, tasks)
    # Kept until now: the second model may fail, or the disk be full.
    for stem in stems.values() if options.samples is None else ():
        _journal(stem).unlink(missing_ok=True)
    return 0


@contextmanager
def _as_flag(flag: str, turns: int = 1) -> Iterator[None]:
    """What is wrong is told of this command's flags, and of the model by that one: it has no settings."""
    try:
        yield
    except ValueError as error:
        lengths = "generation.max_prompt_length + generation.max_completion_length"
        flags = "--max-completion-length" if turns == 1 else f"--turns {turns}, --max-completion-length"
        said = str(error).replace(lengths, f"{flags}, with the longest prompt")
        raise ValueError(said.replace("model.name", flag, 1)) from error


def _folder(model: str, flag: str) -> Path:
    with _as_flag(flag):
        return resolve_model(ModelConfig(name=model))


def _journal(stem: str) -> Path:
    return Path(f"{stem}_journal.jsonl")


def _write_files(
    console: Console, options: EvaluationOptions, stem: str, report: EvaluationReport, tasks: Sequence[Task]
) -> None:
    """Write the completions of one model, where they are new, and each with its verdict."""
    completions = _completions(options, report, tasks)
    if options.samples is None:
        ids = [sample.task_id for sample in report.samples]
        write_samples(Path(stem), zip(ids, completions, strict=True))
        console.print(f"samples: {stem}", soft_wrap=True)
    path = Path(f"{stem}_results.jsonl")
    write_results(path, zip(report.samples, completions, strict=True))
    console.print(f"results: {path}", soft_wrap=True)


def _completions(options: EvaluationOptions, report: EvaluationReport, tasks: Sequence[Task]) -> list[str]:
    """The completions to publish."""
    if options.samples is not None or options.prompt_form == "completion":
        return [sample.text for sample in report.samples]
    by_id = {task.task_id: task for task in tasks}
    return [sample_completion(by_id[sample.task_id], sample.text) for sample in report.samples]


def _conclude(
    console: Console,
    options: EvaluationOptions,
    path: Path,
    reports: Mapping[str, EvaluationReport],
    tasks: Sequence[Task],
) -> None:
    """Print what was found, and write it to ``path``."""
    record: dict[str, object] = {
        "tasks": options.tasks,
        "settings": {} if options.samples is not None else options.sample_settings(),
        "reports": {name: report_record(report, tasks, options.ks) for name, report in reports.items()},
    }
    if len(reports) == 1:
        (report,) = reports.values()
        print_report(console, options.tasks, report, tasks, options.ks)
    else:
        print_side_by_side(console, options.tasks, reports, tasks, options.ks)
    if options.per_task:
        print_tasks(console, reports)
    try:
        if options.turns > 1:
            turns = {name: turn_report(report.samples, options.turns) for name, report in reports.items()}
            record["turns"] = {name: asdict(found) for name, found in turns.items()}
            print_turns(console, turns)
        if len(reports) == 2:
            (one, first), (other, second) = reports.items()
            comparison = compare(first.counts, second.counts)
            record["comparison"] = asdict(comparison)
            print_comparison(console, (one, other), comparison)
    finally:
        # Models that cannot be compared are whole each by itself, first answers without later ones.
        write_text_atomically(path, json.dumps(record, indent=1, allow_nan=False) + "\n")
    console.print(f"report: {path}", soft_wrap=True)


async def _score_samples(samples: Sequence[tuple[Task, str]], scorer: CompletionScorer) -> EvaluationReport:
    gate = asyncio.Semaphore(NUM_CONCURRENT_REQUESTS)

    async def judge(task: Task, completion: str) -> EvaluatedSample:
        async with gate:
            result = await scorer.score(task, completion)
        return EvaluatedSample(task_id=task.task_id, text=completion, result=result)

    return make_report(await asyncio.gather(*(judge(task, completion) for task, completion in samples)))


def _sample_model(
    options: EvaluationOptions,
    model: str,
    folder: Path,
    stem: str,
    tasks: Sequence[Task],
    custom: CustomFeedback | None,
    prepare: Callable[[], _Prepared],
) -> EvaluationReport:
    """The report on one model; goes on where an earlier process ended."""
    path = _journal(stem)
    hint = f"delete {path} to begin anew, or give another --output"
    own = {} if custom is None else {"custom feedback": custom.fingerprint}
    identity = (
        options.sample_settings()
        | own
        | {
            "tasks": tasks_digest(tasks),
            "model": model,
            "model files": files_digest(folder),
        }
    )
    with closing(EvaluationJournal(path, identity, hint=hint)) as journal:
        if journal.num_kept:
            print(f"going on: {journal.num_kept} samples are in {path}", file=sys.stderr, flush=True)
        num_samples = options.num_samples
        kept = [sample for task in tasks for sample in journal.kept.get(task.task_id, ())[:num_samples]]
        if len(kept) == num_samples * len(tasks):
            # Nothing is left to sample, for which an engine would be started.
            return make_report(kept)
        return run_async(_sample_and_score(options, prepare(), folder, tasks, journal))


@dataclass(frozen=True, slots=True)
class _Prepared:
    """How a model is asked and judged, and the settings of its engine."""

    form: AnswerForm
    scorer: TextScorer
    later_turns: LaterTurns | None
    config: Config


def _prepared(
    options: EvaluationOptions,
    model: str,
    folder: Path,
    tasks: Sequence[Task],
    sandbox: Executor,
    execution: ExecutionConfig,
    custom: CustomFeedback | None,
) -> _Prepared:
    """What an evaluation needs besides the model's weights; raises ValueError for a model that is unfit."""
    # Imported here: scoring a file need not wait for torch.
    from pipeline.models.loading import load_tokenizer

    config = config_of(options, model)
    tokenizer = load_tokenizer(folder, trust_remote_code=options.trust_remote_code)
    form: AnswerForm
    scorer: TextScorer
    later = None
    if options.prompt_form == "completion":
        form, scorer = CompletionForm(tokenizer=tokenizer), CompletionScorer(sandbox, execution)
    else:
        form = ChatForm(tokenizer=tokenizer, generation=config.generation)
        scorer = SandboxScorer(sandbox, execution)
        if options.turns > 1:
            later = SecondTries(
                form,
                tokenizer,
                tasks,
                sandbox,
                execution,
                max_turns=options.turns,
                kind=options.feedback,
                custom=custom,
            ).go_on
    longest = max(len(form.prompt_ids(task)) for task in tasks)
    # The last answer's prompt holds those before it.
    longest += (options.turns - 1) * (options.max_completion_length + MAX_FEEDBACK_LENGTH)
    device = choose_device(config)
    config = engine_config(config, longest, device)
    refuse_misfit(config, folder, device)
    return _Prepared(form, scorer, later, config)


async def _sample_and_score(
    options: EvaluationOptions,
    prepared: _Prepared,
    folder: Path,
    tasks: Sequence[Task],
    journal: EvaluationJournal,
) -> EvaluationReport:
    config = prepared.config
    num_concurrent = max(NUM_CONCURRENT_REQUESTS, config.generation.max_num_seqs)
    async with evaluation_generator(config, str(folder)) as generator:
        return await evaluate_tasks(
            generator,
            tasks,
            prepared.form,
            SamplingSettings(
                temperature=options.temperature,
                top_p=options.top_p,
                max_completion_length=options.max_completion_length,
            ),
            options.num_samples,
            prepared.scorer,
            options.seed,
            # One sample each fills the engine as well.
            terms=EvaluationTerms(
                num_concurrent=num_concurrent,
                # Each later answer is a request of its own, and so is each fresh one beside it; an engine may
                # take one request, or one sequence, at a time.
                task_timeout_s=(1 + 2 * options.num_samples * (options.turns - 1))
                * max(num_concurrent, options.num_samples)
                * config.runtime.generation_timeout_s,
                later_turns=prepared.later_turns,
            ),
            journal=journal,
            on_task_done=_show_progress,
        )


def engine_config(config: Config, longest_prompt: int, device: str) -> Config:
    """``config`` for an engine that writes nothing but an evaluation, whose prompts have so many tokens."""
    changes: dict[str, object] = {"max_prompt_length": longest_prompt}
    if device == "cuda":
        changes |= _ON_A_GPU
    return config.model_copy(update={"generation": config.generation.model_copy(update=changes)})


def _show_progress(num_done: int, num_tasks: int) -> None:
    if num_done == num_tasks or num_done % max(1, num_tasks // 10) == 0:
        print(f"evaluated {num_done} of {num_tasks} tasks", file=sys.stderr, flush=True)
