"""One contender of benchmarks.generation in a process of its own: passes over tasks in, figures out.

``Hosted`` is what benchmarks.generation calls (pipeline.processes). The pipeline's own engine runs as the
pipeline runs it (pipeline.generation.vllm.engine with the settings that a configuration makes). Its rivals
are vLLM with its own defaults, and Transformers' ``generate`` on left-padded batches.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from transformers import GenerationConfig
from vllm import SamplingParams
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.model_executor.layers.attention import Attention
from vllm.model_executor.layers.linear import LinearBase
from vllm.sampling_params import RequestOutputKind
from vllm.v1.engine.async_llm import AsyncLLM

from configs.schema import Config
from curriculum.sources import load_named_tasks
from pipeline.generation.settings import engine_settings
from pipeline.generation.vllm.engine import VllmEngine
from pipeline.messages import GenerationRequest
from pipeline.models.loading import load_model, load_tokenizer
from pipeline.models.prompts import encode_prompt, training_sampling

Prompts = Sequence[tuple[int, ...]]
T = TypeVar("T")


class Contender:
    """Writes one completion for each prompt, ``num_in_flight`` at once, in the order given."""

    async def run(self, name: str, prompts: Prompts, num_in_flight: int) -> int:
        """Returns the tokens written; ``name`` is unique to the pass."""
        left = iter(range(len(prompts)))

        async def work() -> int:
            return sum([await self.write(f"{name}-{index}", prompts[index]) for index in left])

        return sum(await asyncio.gather(*(work() for _ in range(num_in_flight))))

    async def write(self, name: str, prompt: tuple[int, ...]) -> int:
        """The tokens of one completion."""
        raise NotImplementedError

    async def stats(self) -> dict[str, float]:
        """Counts of speculation since the start (see VllmEngine.stats); empty where nothing is drafted."""
        return {}

    async def close(self) -> None:
        """End what was started."""


class OwnEngine(Contender):
    """The engine of the pipeline, as ``config`` says."""

    def __init__(self, config: Config, model_path: str) -> None:
        self._engine = VllmEngine(engine_settings(config, model_path, "cpu"))
        self._sampling = training_sampling(config)

    async def write(self, name: str, prompt: tuple[int, ...]) -> int:
        request = GenerationRequest(
            request_id=name, prompt_ids=prompt, num_generations=1, sampling=self._sampling
        )
        return sum([len(completion.token_ids) async for completion in self._engine.generate(request)])

    async def stats(self) -> dict[str, float]:
        return await self._engine.stats()

    async def close(self) -> None:
        await self._engine.close()


class PartTimes:
    """Seconds of the parts of an engine's steps, each without those within it, and what they did.

    "prompts" are steps in which a prompt is read, with the next token of whatever is written meanwhile;
    "tokens" those of a token a sequence.
    """

    def __init__(self, runner: Any) -> None:
        self.figures: dict[str, float] = defaultdict(float)
        self._within: list[float] = []
        self._kind = ""
        model = runner.model
        for layer in model.model.layers:
            for module in layer.modules():
                if isinstance(module, LinearBase):
                    module.forward = self._timed("linear layers", module.forward)
                elif isinstance(module, Attention):
                    module.forward = self._timed("attention", module.forward)
        model.compute_logits = self._timed("output head", model.compute_logits, "sampled")
        runner._model_forward = self._forward(
            runner, self._timed("the rest of the model", runner._model_forward)
        )
        runner._sample = self._timed("sampling", runner._sample)
        runner.execute_model = self._timed("the rest of the worker", runner.execute_model)
        runner.sample_tokens = self._timed("the rest of the worker", runner.sample_tokens)

    def _timed(self, part: str, work: Callable[..., T], counted: str = "") -> Callable[..., T]:
        def call(*args: Any, **kwargs: Any) -> T:
            self._within.append(0.0)
            started = time.perf_counter()
            try:
                return work(*args, **kwargs)
            finally:
                taken_s = time.perf_counter() - started
                self.figures[f"{self._kind}: {part}"] += taken_s - self._within.pop()
                if self._within:
                    self._within[-1] += taken_s
                if counted:
                    self.figures[f"{self._kind}: {counted}"] += len(args[0])

        return call

    def _forward(self, runner: Any, forward: Callable[..., T]) -> Callable[..., T]:
        def call(*args: Any, **kwargs: Any) -> T:
            num_tokens = len(kwargs["input_ids"])
            self._kind = "prompts" if num_tokens > runner.input_batch.num_reqs else "tokens"
            self.figures[f"{self._kind}: steps"] += 1
            self.figures[f"{self._kind}: tokens"] += num_tokens
            return forward(*args, **kwargs)

        return call


def part_times(worker: Any) -> dict[str, float]:
    """What the parts took in this worker of vLLM so far; the first call begins to measure."""
    if not hasattr(worker, "part_times"):
        worker.part_times = PartTimes(worker.model_runner)
    return dict(worker.part_times.figures)


class TimedEngine(OwnEngine):
    """The engine of the pipeline, and what its parts take. Wants VLLM_ALLOW_INSECURE_SERIALIZATION."""

    async def stats(self) -> dict[str, float]:
        await self._engine.prepare()
        (figures,) = await self._engine._engine.collective_rpc(part_times)
        return dict(figures)


class VllmDefaults(Contender):
    """vLLM as it comes, asked the same requests; only the room for keys and values is ours.

    Its own default is 92 % of the machine's memory, which it does not get while others are there.
    """

    def __init__(self, config: Config, model_path: str) -> None:
        room = round(config.generation.kv_cache_gb * 2**30)
        arguments = AsyncEngineArgs(model=model_path, kv_cache_memory_bytes=room)
        self._engine = AsyncLLM.from_engine_args(arguments)
        sampling = training_sampling(config)
        self._parameters = SamplingParams(
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            max_tokens=sampling.max_completion_length,
            stop=list(sampling.stop),
            include_stop_str_in_output=True,
            logprobs=0,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )

    async def write(self, name: str, prompt: tuple[int, ...]) -> int:
        num_tokens = 0
        asked = {"prompt_token_ids": list(prompt)}
        async for answer in self._engine.generate(asked, self._parameters, name):
            num_tokens = len(answer.outputs[0].token_ids)
        return num_tokens

    async def close(self) -> None:
        self._engine.shutdown()


class TransformersGenerate(Contender):
    """Transformers' ``generate`` in the engine's precision; ``num_in_flight`` prompts are a batch."""

    def __init__(self, config: Config, model_path: str) -> None:
        self._tokenizer = load_tokenizer(model_path, trust_remote_code=False)
        dtype = getattr(torch, config.generation.dtype)
        self._model = load_model(model_path, dtype=dtype, device="cpu", trust_remote_code=False)
        self._sampling = training_sampling(config)

    async def run(self, name: str, prompts: Prompts, num_in_flight: int) -> int:
        starts = range(0, len(prompts), num_in_flight)
        return sum(self._batch(prompts[start : start + num_in_flight]) for start in starts)

    @torch.inference_mode()
    def _batch(self, prompts: Prompts) -> int:
        padded = self._tokenizer.pad(  # [n, P]
            {"input_ids": [list(ids) for ids in prompts]}, padding_side="left", return_tensors="pt"
        )
        sampling = self._sampling
        settings = GenerationConfig(  # type: ignore[no-untyped-call]
            do_sample=True,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            max_new_tokens=sampling.max_completion_length,
            pad_token_id=self._tokenizer.pad_token_id,
            eos_token_id=self._tokenizer.eos_token_id,
            stop_strings=list(sampling.stop) or None,
        )
        output = self._model.generate(  # type: ignore[operator]
            **padded, generation_config=settings, tokenizer=self._tokenizer
        )
        return sum(self._length(row) for row in output[:, padded["input_ids"].shape[1] :].tolist())

    def _length(self, row: list[int]) -> int:
        """Tokens of a completion without what pads it; its own end token counts."""
        ends = {self._tokenizer.pad_token_id, self._tokenizer.eos_token_id}
        length = next((index for index, token in enumerate(row) if token in ends), len(row))
        has_stop = any(stop in self._tokenizer.decode(row[:length]) for stop in self._sampling.stop)
        return min(len(row), length if has_stop else length + 1)


class Hosted:
    """One contender, with the prompts of all tasks; who is not named below is the pipeline's own engine."""

    def __init__(self, name: str, config: Config, model_path: str) -> None:
        kinds = {"timed": TimedEngine, "vllm_defaults": VllmDefaults, "transformers": TransformersGenerate}
        self._contender: Contender = kinds.get(name, OwnEngine)(config, model_path)
        tokenizer = load_tokenizer(model_path, trust_remote_code=False)
        self._prompts = {
            task.task_id: encode_prompt(tokenizer, task, config.generation)
            for task in load_named_tasks(config.evaluation.tasks)
        }

    async def stats(self) -> dict[str, float]:
        """See Contender."""
        return await self._contender.stats()

    async def write_all(self, name: str, tasks: Sequence[str], num_in_flight: int) -> dict[str, float]:
        """One completion for each of ``tasks``; the pass's tokens, seconds and counts of speculation."""
        wanted = [self._prompts[task_id] for task_id in tasks]
        before, started = await self.stats(), time.perf_counter()
        num_tokens = await self._contender.run(name, wanted, num_in_flight)
        seconds = time.perf_counter() - started
        grown = {key: count - before.get(key, 0.0) for key, count in (await self.stats()).items()}
        return {"tokens": num_tokens, "seconds": seconds, **grown}

    async def close(self) -> None:
        """End what was started."""
        await self._contender.close()
