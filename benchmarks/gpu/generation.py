"""Stage 5: the vLLM engine alone: its start, speed and probabilities, an update in flight, and its end."""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any, Final

import torch
from transformers import PreTrainedModel

from benchmarks.gpu.stage import Figures, Stage, Terms
from benchmarks.processes import descendants, kill
from configs.schema import Config
from pipeline.generation.vllm_generator import VllmGenerator, start_vllm_generator
from pipeline.messages import Completion, GenerationRequest, WeightUpdate
from pipeline.models.loading import load_model
from pipeline.models.prompts import training_sampling
from pipeline.weights.exchange import WeightServer
from pipeline.weights.files import shared_folder, write_weights

_GROUP = 8
_GONE_S = 20.0
_LOW_PRECISION: Final = (("quantization", "fp8"), ("kv_cache_dtype", "fp8"))
_Published = Callable[[PreTrainedModel, torch.dtype], AbstractContextManager[WeightUpdate]]


class Generation(Stage):
    """See the module.

    A part leaves its engine to the next one, which goes on with it if its settings are the same: an engine
    takes minutes to start. Once weights were sent to it, its own are gone, so those parts come last.
    """

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        # An engine answers in the loop in which it was started.
        self._loop = asyncio.Runner()
        self._left: tuple[Config, VllmGenerator] | None = None
        self._versions = itertools.count(1)

    def all_parts(self) -> Mapping[str, Callable[[], Figures]]:
        """See Stage."""
        graphs = {"mode": 0, "cudagraph_mode": "FULL_DECODE_ONLY"}
        captured = {
            "compiled": partial(self._with_engine, self._speed, enforce_eager=False),
            "graphs of decoding, not compiled": partial(
                self._with_engine,
                self._speed,
                enforce_eager=False,
                engine_kwargs={"compilation_config": graphs},
            ),
            "compiled, adapters": partial(
                self._with_engine, self._speed, has_adapters=True, enforce_eager=False
            ),
        }
        return {
            # Of a CPU they would be other engines.
            **({} if self.terms.is_tiny else captured),
            "eager": partial(self._with_engine, self._speed),
            "probabilities": partial(self._with_engine, self._mismatch),
            "update in flight": partial(self._with_engine, partial(self._update, self._written)),
            "update in flight, sent": partial(self._with_engine, partial(self._update, self._offered)),
            "SIGKILL of the engine's host": partial(self._with_engine, self._orphans),
            "sleep": self._sleep,
            **{f"{name}: {value}": partial(self._setting, name, value) for name, value in _LOW_PRECISION},
        }

    def _config(self, settings: Mapping[str, Any], *, has_adapters: bool = False) -> Config:
        sizes: dict[str, Any] = {
            "max_prompt_length": 512,
            "max_completion_length": 512,
            "max_num_seqs": 512,
            "dtype": "bfloat16",
            "enforce_eager": True,
        }
        if self.terms.is_tiny:
            sizes |= {"max_prompt_length": 32, "max_completion_length": 32, "max_num_seqs": _GROUP}
            sizes |= {"dtype": "float32", "kv_cache_gb": 0.1}
        generation = {**sizes, "stop_at_code_fence": False, **settings}
        runtime = {"device": self.terms.device, "startup_timeout_s": 300}
        lora = {"enabled": has_adapters, "r": 32}
        return Config.model_validate({"generation": generation, "runtime": runtime, "lora": lora})

    def _with_engine(
        self,
        measure: Callable[[VllmGenerator, Config], Awaitable[Figures]],
        *,
        has_adapters: bool = False,
        **settings: Any,
    ) -> Figures:
        """What ``measure`` finds of an engine with ``settings``, and of its start if it had one."""
        return self._loop.run(self._found(measure, self._config(settings, has_adapters=has_adapters)))

    async def _found(
        self, measure: Callable[[VllmGenerator, Config], Awaitable[Figures]], config: Config
    ) -> Figures:
        figures: Figures = {}
        if self._left is None or self._left[0] != config:
            await self._close()
            started = time.perf_counter()
            self._left = config, await start_vllm_generator(config, self._folder, self.terms.device)
            figures["start_s"] = time.perf_counter() - started
        try:
            return figures | await measure(self._left[1], config)
        except BaseException:
            # What it is like now, nobody knows.
            await self._close()
            raise

    def close(self) -> None:
        """See Stage."""
        self._loop.run(self._close())

    async def _close(self) -> None:
        if self._left is not None:
            (_, engine), self._left = self._left, None
            await engine.close()

    @property
    def _folder(self) -> str:
        return self.model("random-1.5b")

    async def _speed(self, engine: VllmGenerator, config: Config) -> Figures:
        """Tokens a second of so many sequences, all begun at once and all of the same length or nearly so."""
        figures = {}
        for num_sequences in (_GROUP,) if self.terms.is_tiny else (64, 256, 512):
            started = time.perf_counter()
            written = await self._write(engine, config, num_sequences)
            num_tokens = sum(len(completion.token_ids) for _, completion in written)
            figures[f"tokens_per_s, {num_sequences} sequences"] = num_tokens / (time.perf_counter() - started)
        return figures

    async def _mismatch(self, engine: VllmGenerator, config: Config) -> Figures:
        model = load_model(self._folder, dtype=_dtype(config), device=self.terms.device)
        return self._differences(model, await self._write(engine, config, 4 * _GROUP))

    @contextmanager
    def _written(self, model: PreTrainedModel, dtype: torch.dtype) -> Iterator[WeightUpdate]:
        """The weights in a file of shared memory."""
        with shared_folder("gpu-battery") as folder:
            file, version = str(folder / "new.safetensors"), next(self._versions)
            yield write_weights(model.named_parameters(), file, version, dtype)

    @contextmanager
    def _offered(self, model: PreTrainedModel, dtype: torch.dtype) -> Iterator[WeightUpdate]:
        """The weights for the engine to fetch, by CUDA IPC on a card and over gloo without one."""
        device = torch.device(self.terms.device)
        server = WeightServer("127.0.0.1", device, _GONE_S, is_one_card=device.type == "cuda")
        try:
            yield server.offer(model.named_parameters(), next(self._versions), dtype)
        finally:
            server.close()

    async def _update(self, published: _Published, engine: VllmGenerator, config: Config) -> Figures:
        """New weights while sequences are being written."""
        model = load_model(self._folder, dtype=_dtype(config), device=self.terms.device)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter) * parameter.float().std() * 0.1)
        begun = time.perf_counter()
        with published(model, _dtype(config)) as update:
            publish_s = time.perf_counter() - begun
            writing = asyncio.create_task(self._write(engine, config, 4 * _GROUP))
            await asyncio.sleep(0.05 if self.terms.is_tiny else 1.0)
            started = time.perf_counter()
            loaded = await engine.update_weights(update)
            update_s = time.perf_counter() - started
            in_flight = [completion for _, completion in await writing]
        after = await self._write(engine, config, 4 * _GROUP)
        num_mixed = sum(one.min_policy_version != one.max_policy_version for one in in_flight)
        return {
            "publish_s": publish_s,
            "update_s": update_s,
            "pause_s": loaded.pause_s,
            "sequences of both versions": num_mixed,
            **{f"{name}, after": value for name, value in self._differences(model, after).items()},
        }

    async def _orphans(self, engine: VllmGenerator, config: Config) -> Figures:
        """What is left of an engine whose host was killed: each such process keeps memory of the card."""
        below = [process.pid for process in descendants(engine.pid)]
        kill([engine.pid])
        started = time.perf_counter()
        left = below
        while left and time.perf_counter() - started < _GONE_S:
            await asyncio.sleep(0.1)
            alive = {process.pid for process in descendants(1)} | {p.pid for p in descendants(os.getpid())}
            left = [pid for pid in left if pid in alive]
        gone_s = time.perf_counter() - started
        kill(left)
        await self._close()
        return {"processes": len(below), "left": len(left), "seconds": gone_s}

    def _setting(self, name: str, value: object) -> Figures:
        if self.terms.device == "cpu":
            return {"skipped": "for a GPU"}

        async def measure(engine: VllmGenerator, config: Config) -> Figures:
            return {**await self._speed(engine, config), **await self._mismatch(engine, config)}

        settings: dict[str, Any] = {name: value}
        return self._with_engine(measure, **settings)

    def _sleep(self) -> Figures:
        """Seconds to give the card's memory back and to take it again, and how much that is."""
        if self.terms.device == "cpu":
            return {"skipped": "for a GPU"}

        async def measure(engine: VllmGenerator, config: Config) -> Figures:
            before, _ = torch.cuda.mem_get_info()
            started = time.perf_counter()
            await engine.sleep()
            asleep = time.perf_counter()
            free, _ = torch.cuda.mem_get_info()
            await engine.wake()
            figures = {
                "sleep_s": asleep - started,
                "wake_s": time.perf_counter() - asleep,
                "given_back_gb": (free - before) / 1e9,
            }
            return {**figures, **await self._mismatch(engine, config)}

        return self._with_engine(measure, sleep_while_training=True)

    async def _write(
        self, engine: VllmGenerator, config: Config, num_sequences: int
    ) -> list[tuple[tuple[int, ...], Completion]]:
        """Prompts of random tokens, in groups, with what the engine writes behind them."""
        rng = random.Random(0)
        length = config.generation.max_prompt_length // 2

        async def group(number: int) -> list[tuple[tuple[int, ...], Completion]]:
            prompt = tuple(rng.randrange(3, 250) for _ in range(length))
            request = GenerationRequest(
                request_id=f"{time.perf_counter_ns()}-{number}",
                prompt_ids=prompt,
                num_generations=_GROUP,
                sampling=training_sampling(config),
            )
            return [(prompt, completion) async for completion in engine.generate(request)]

        groups = await asyncio.gather(*(group(number) for number in range(num_sequences // _GROUP)))
        return [one for found in groups for one in found]

    @torch.no_grad()
    def _differences(self, model: Any, written: list[tuple[tuple[int, ...], Completion]]) -> Figures:
        """How far the log-probabilities of the engine are from those of the trainer's model."""
        found = []
        for prompt, completion in written:
            ids = torch.tensor([prompt + completion.token_ids], device=self.terms.device)
            logits = model(ids).logits[0, len(prompt) - 1 : -1].float()
            own = torch.log_softmax(logits, -1).gather(1, ids[0, len(prompt) :, None])[:, 0].cpu()
            found.append(own - torch.tensor(completion.logprobs))
        ratio = torch.cat(found).double()
        return {
            "mismatch_kl": float((ratio.exp() - 1 - ratio).mean()),
            "mean distance of logprobs": float(ratio.abs().mean()),
        }


def _dtype(config: Config) -> torch.dtype:
    dtype: torch.dtype = getattr(torch, config.generation.dtype)
    return dtype
