"""``train_accelerated --profile-startup``: a run up to its first scored group, and where the time went.

    runs/<name>/startup.jsonl (as noted)  startup.json  startup_trace.json (for ui.perfetto.dev)

The same stages are started in the same order as for a run, and then ended; nothing is trained. On a CPU the
engine's process is started by pipeline.run.early_start, between entering and leaving ``_profiled``. The
report of the spans, as a table and as JSON, is pure; pipeline.report.waits draws it.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from configs.command_line import run_async
from configs.load import render
from configs.schema import Config
from curriculum.sampler import Sampler
from curriculum.task import Task
from pipeline.host.files import write_text_atomically
from pipeline.host.restarts import RestartLimit
from pipeline.host.spans import (
    FIRST_SCORE,
    FIRST_TOKEN,
    LOG_VARIABLE,
    Span,
    mark,
    note,
    process_started_s,
    read_spans,
    union,
)
from pipeline.host.spans import (
    span as noted,
)
from pipeline.messages import Completion, GenerationRequest
from pipeline.models.prompts import encode_prompt, training_sampling
from pipeline.record.progress import make_progress
from pipeline.record.run_folder import RunFolder
from pipeline.report.waits import chrome_trace, overlap
from pipeline.run.early_start import launched
from pipeline.run.job import prepare
from pipeline.run.stages import Stages, beside, running_stages


def run_profile(config: Config) -> int:
    """Start all stages and have one group scored, noting spans; returns the exit status.

    Raises as pipeline.run.orchestrator.run_training.
    """

    def note(kind: str, text: str) -> None:
        progress.message(f"{kind}: {text}")

    async def start() -> None:
        async with running_stages(
            job,
            early,
            folder=folder,
            progress=progress,
            note=note,
            restarts=RestartLimit(0, config.runtime.restart_window_s, note),
            after_ray=lambda: None,
            is_trainer_first=False,
        ) as stages:
            task = Sampler(stages.tasks, config.acceleration.curriculum, config.training.seed).draw(0)
            progress.activity("writing and scoring the first group")
            await beside(stages.trainer, _score_group(config, task, stages))
            progress.activity("waiting for the trainer")
            await stages.trainer

    with _profiled(config) as folder, launched(config) as early:
        job = prepare(config)
        with closing(make_progress(config.runtime.progress, title=folder.name)) as progress:
            run_async(start())
    return 0


async def _score_group(config: Config, task: Task, stages: Stages) -> None:
    prefill = config.generation.assistant_prefill
    request = GenerationRequest(
        request_id="startup",
        prompt_ids=encode_prompt(stages.tokenizer, task, config.generation),
        num_generations=config.grpo.num_generations,
        sampling=training_sampling(config),
    )
    num_scored = 0

    async def score(completion: Completion) -> None:
        nonlocal num_scored
        await stages.scorer.score(task, prefill + completion.text)
        num_scored += 1
        if num_scored == 1:
            mark("driver", FIRST_SCORE)

    with noted("engine", "write the first group"):
        async with asyncio.TaskGroup() as group:
            is_first = True
            async for completion in stages.generator.generate(request):
                if is_first:
                    mark("driver", FIRST_TOKEN)
                    is_first = False
                group.create_task(score(completion))


@contextmanager
def _profiled(config: Config) -> Iterator[RunFolder]:
    """Make a run folder and have this process, and all that it starts inside, note their spans there.

    A file that ``CODE_GRPO_STARTUP_LOG`` names already is used instead of one in the folder. What was noted
    is published at the end.
    """
    begun_s = time.time()
    with RunFolder.create(config.output, render(config)) as folder:
        given = os.environ.get(LOG_VARIABLE)
        log = given or str(folder.path.absolute() / "startup.jsonl")
        os.environ[LOG_VARIABLE] = log
        try:
            note(
                "driver",
                "interpreter, configuration",
                process_started_s(),
                begun_s,
                cpu_s=time.process_time(),
            )
            yield folder
            _publish(folder, read_spans(Path(log)))
        finally:
            if given is None:
                del os.environ[LOG_VARIABLE]


def _publish(folder: RunFolder, spans: Sequence[Span]) -> None:
    """Write startup.json and startup_trace.json, and print the table."""
    origin_s = process_started_s()
    record = as_record(spans, origin_s)
    write_text_atomically(folder.path / "startup.json", json.dumps(record, indent=1) + "\n")
    trace = folder.path / "startup_trace.json"
    write_text_atomically(trace, json.dumps(chrome_trace(spans, folder.name)))
    print(as_table(spans, origin_s))
    print(
        f"from process start to first scored rollout: {record['first_scored_rollout_s']} s; trace: {trace} "
        "(open it in ui.perfetto.dev)"
    )


def moment(spans: Sequence[Span], name: str) -> float | None:
    """When the first span called ``name`` ended (seconds since 1970), or None."""
    return min((span.ended_s for span in spans if span.name == name), default=None)


def overlap_s(span: Span, others: Sequence[Span]) -> float:
    """The seconds of ``span`` during which at least one span of another process ran."""
    beside = union((other.started_s, other.ended_s) for other in others if other.stage != span.stage)
    return overlap([(span.started_s, span.ended_s)], beside)


def as_record(spans: Sequence[Span], origin_s: float) -> dict[str, Any]:
    """The start as JSON: seconds after ``origin_s``, the start of the first process (itself absolute)."""
    score_s, token_s = moment(spans, FIRST_SCORE), moment(spans, FIRST_TOKEN)
    return {
        "process_started_unix_s": origin_s,
        "first_completion_s": None if token_s is None else round(token_s - origin_s, 3),
        "first_scored_rollout_s": None if score_s is None else round(score_s - origin_s, 3),
        "spans": [
            {
                "process": span.stage,
                "name": span.name,
                "pid": span.pid,
                "start_s": round(span.started_s - origin_s, 3),
                "end_s": round(span.ended_s - origin_s, 3),
                "cpu_s": None if span.cpu_s is None else round(span.cpu_s, 3),
                "overlapped_s": round(overlap_s(span, spans), 3),
            }
            for span in spans
        ],
    }


def as_table(spans: Sequence[Span], origin_s: float) -> str:
    """One line a span: when, how long, processor time, how much other processes worked beside."""
    lines = [f"{'start':>7} {'end':>7} {'took':>7} {'cpu':>7} {'beside':>7}  process: phase (beside whom)"]
    for span in spans:
        beside = sorted({other.stage for other in spans if overlap_s(span, [other]) > 0})
        names = f" ({', '.join(beside)})" if beside else ""
        start_s, end_s = span.started_s - origin_s, span.ended_s - origin_s
        cpu = "" if span.cpu_s is None else f"{span.cpu_s:.2f}"
        lines.append(
            f"{start_s:7.2f} {end_s:7.2f} {span.seconds:7.2f} {cpu:>7} {overlap_s(span, spans):7.2f}  "
            f"{span.stage}: {span.name}{names}"
        )
    return "\n".join(lines)
