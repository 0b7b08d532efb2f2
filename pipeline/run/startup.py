"""``train_accelerated --profile-startup``: a run up to its first scored group, and where the time went.

    runs/<name>/startup.jsonl (as noted)  startup.json  startup_trace.json (for ui.perfetto.dev)

The same stages are started in the same order as for a run, and then ended; nothing is trained. The engine's
process is started by pipeline.run.early_start, between entering and leaving ``profiled``.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from configs.load import render
from configs.schema import Config
from curriculum.sampler import Sampler
from curriculum.task import Task
from pipeline.host import startup
from pipeline.host.files import write_text_atomically
from pipeline.host.restarts import RestartLimit
from pipeline.messages import Completion, GenerationRequest
from pipeline.models.prompts import encode_prompt, training_sampling
from pipeline.record.progress import make_progress
from pipeline.record.run_folder import RunFolder
from pipeline.report.trace import chrome_trace
from pipeline.run.early_start import Launched
from pipeline.run.stages import Stages, prepare, running_stages
from pipeline.run.startup_report import as_record, as_table


def run_until_first_score(config: Config, folder: RunFolder, early: Launched) -> None:
    """Start all stages and have one group scored, noting spans; raises as pipeline.run.orchestrator does."""
    job = prepare(config)
    progress = make_progress(config.runtime.progress, title=folder.name)

    def note(kind: str, text: str) -> None:
        progress.message(f"{kind}: {text}")

    async def start() -> None:
        async with running_stages(
            config,
            (*job.tasks, *job.heldout),
            job.device,
            early,
            reward_cache=folder.reward_cache,
            activity=progress.activity,
            note=note,
            restarts=RestartLimit(0, config.runtime.restart_window_s, note),
            after_ray=lambda: None,
            is_trainer_first=False,
        ) as stages:
            task = Sampler(job.tasks, config.acceleration.curriculum, config.training.seed).draw(0)
            progress.activity("writing and scoring the first group")
            await stages.beside_trainer(_score_group(config, task, stages))
            progress.activity("waiting for the trainer")
            await stages.trainer

    try:
        asyncio.run(start())
    finally:
        progress.close()


async def _score_group(config: Config, task: Task, stages: Stages) -> None:
    prefill = config.generation.assistant_prefill
    request = GenerationRequest(
        request_id="startup",
        prompt_ids=encode_prompt(stages.tokenizer, task, prefill),
        num_generations=config.grpo.num_generations,
        sampling=training_sampling(config),
    )
    num_scored = 0

    async def score(completion: Completion) -> None:
        nonlocal num_scored
        await stages.scorer.score(task, prefill + completion.text)
        num_scored += 1
        if num_scored == 1:
            startup.mark("driver", startup.FIRST_SCORE)

    with startup.span("engine", "write the first group"):
        async with asyncio.TaskGroup() as group:
            is_first = True
            async for completion in stages.generator.generate(request):
                if is_first:
                    startup.mark("driver", startup.FIRST_TOKEN)
                    is_first = False
                group.create_task(score(completion))


class StartupProfile:
    """The measurement of one start, into ``folder``."""

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder
        self._log = Path(os.environ[startup.LOG_VARIABLE])
        self._origin_s = startup.process_started_s()

    def publish(self) -> None:
        """Write startup.json and startup_trace.json, and print the table."""
        spans = startup.read_spans(self._log)
        record = as_record(spans, self._origin_s)
        title = f"from process start to first scored rollout: {record['first_scored_rollout_s']} s"
        write_text_atomically(self.folder.path / "startup.json", json.dumps(record, indent=1) + "\n")
        trace = self.folder.path / "startup_trace.json"
        write_text_atomically(trace, json.dumps(chrome_trace(spans, self.folder.name)))
        print(as_table(spans, self._origin_s))
        print(f"{title}; trace: {trace} (open it in ui.perfetto.dev)")


@contextmanager
def profiled(config: Config) -> Iterator[StartupProfile]:
    """Make a run folder and have this process, and all that it starts inside, note their spans there.

    A file that ``CODE_GRPO_STARTUP_LOG`` names already is used instead of one in the folder.
    """
    begun_s = time.time()
    with RunFolder.create(config.output, render(config)) as folder:
        given = os.environ.get(startup.LOG_VARIABLE)
        os.environ[startup.LOG_VARIABLE] = given or str(folder.path.absolute() / "startup.jsonl")
        try:
            profile = StartupProfile(folder)
            startup.note(
                "driver",
                "interpreter, configuration",
                startup.process_started_s(),
                begun_s,
                cpu_s=time.process_time(),
            )
            yield profile
        finally:
            if given is None:
                del os.environ[startup.LOG_VARIABLE]
