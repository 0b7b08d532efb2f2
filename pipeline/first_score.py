"""A run up to its first scored group: the same stages, started in the same order, and then the end.

Called by pipeline.launch for ``train_accelerated --profile-startup``. Trains nothing.
"""

from __future__ import annotations

import asyncio

from configs.schema import Config
from curriculum.sampler import Sampler
from curriculum.task import Task
from pipeline import startup
from pipeline.launch import Launched
from pipeline.messages import Completion, GenerationRequest
from pipeline.progress import make_progress
from pipeline.prompts import encode_prompt
from pipeline.run_folder import RunFolder
from pipeline.sampling import training_sampling
from pipeline.stages import Stages, prepare, running_stages
from pipeline.supervision import RestartLimit


def run_until_first_score(config: Config, folder: RunFolder, early: Launched) -> None:
    """Start all stages and have one group scored, noting spans; raises as pipeline.orchestrator does."""
    tasks, heldout, device = prepare(config)
    progress = make_progress(config.runtime.progress, title=folder.name)

    def note(kind: str, text: str) -> None:
        progress.message(f"{kind}: {text}")

    async def start() -> None:
        async with running_stages(
            config,
            (*tasks, *heldout),
            device,
            early,
            reward_cache=folder.reward_cache,
            activity=progress.activity,
            note=note,
            restarts=RestartLimit(0, config.runtime.restart_window_s, note),
            after_ray=lambda: None,
            is_trainer_first=False,
        ) as stages:
            task = Sampler(tasks, config.acceleration.curriculum, config.training.seed).draw(0)
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
