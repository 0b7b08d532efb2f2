"""Methods that vLLM adds to its worker, in the engine's process; called through ``collective_rpc``.

They put our samplers in place, measure forwards for the drafter, keep the random numbers of sampling, and
bind the OpenMP threads to cores of their own.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch

from pipeline.generation.settings import bind_threads
from pipeline.generation.vllm.draft_length import DraftPlanner, StepCosts, peak_capacity
from pipeline.generation.vllm.held_weights import held_adapter, held_parts
from pipeline.generation.vllm.sampler_check import draft_sampler_fault, token_sampler_fault
from pipeline.generation.vllm.samplers import CpuSampler, DeterministicDraftSampler

_MAX_MEASURED_TOKENS = 256
_REPEATS = 3
_LONG_S = 0.15  # a forward of a large model: its first call costs little more than the next


class WorkerMethods:
    """A part of vLLM's worker: ``self.model_runner`` is its model runner."""

    def bind_threads(self, cores: tuple[int, ...]) -> str:
        """See pipeline.generation.settings.bind_threads."""
        return bind_threads(cores)

    def use_cpu_sampler(self) -> str:
        """On a CPU draw tokens with our own sampler; returns why not, or an empty string."""
        runner: Any = self.model_runner  # type: ignore[attr-defined]
        if runner.device.type != "cpu":
            return ""
        sampler = CpuSampler(runner.sampler.logprobs_mode)
        fault = token_sampler_fault(sampler.topk_topp_sampler)
        if not fault:
            runner.sampler = sampler
        return fault

    def keep_random_state(self) -> None:
        """Remember where the random numbers of sampling stand: what a fresh engine begins with."""
        devices = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
        # vLLM's runner of GPUs draws the seeds of its requests from numpy.
        self._random_state = torch.get_rng_state(), devices, np.random.get_state()

    def restore_random_state(self) -> None:
        """Go back to there."""
        host, devices, numpy_state = self._random_state
        np.random.set_state(numpy_state)
        torch.set_rng_state(host)
        torch.cuda.set_rng_state_all(devices)

    def begin_speculation(self, method: str, num_tokens: int, dynamic: bool, history_bytes: int) -> str:
        """Put in the exact sampler, test it, measure forwards, let the drafter begin.

        Returns why speculation stays off, or an empty string. Raises RuntimeError where it has to stay off
        and cannot.
        """
        runner: Any = self.model_runner  # type: ignore[attr-defined]

        def sampler() -> DeterministicDraftSampler:
            return DeterministicDraftSampler(runner.sampler, runner.speculative_config, runner.device)

        fault = draft_sampler_fault(sampler(), runner.device)
        if fault and method == "draft_model":
            # Our own drafter stays idle; vLLM's goes on, and vLLM's own sampler would verify.
            raise RuntimeError(
                f"acceleration.speculative.method: draft_model cannot be used, and vLLM cannot stop it: the "
                f"sampler that verifies drafts has failed its self-test: {fault}"
            )
        if fault:
            return fault
        # Another one: what is drafted for the test is not to be counted.
        runner.rejection_sampler = sampler()
        if method == "draft_model":
            return ""
        planner = None
        if dynamic:
            forward_s = _measured_forwards(runner)
            planner = DraftPlanner(StepCosts(forward_s), peak_capacity(forward_s), num_tokens)
        # The drafter knows how long a sequence may get; vLLM would draft zeros near the end.
        runner.effective_drafter_max_model_len = runner.max_model_len + num_tokens + 1
        runner.drafter.begin(
            runner,
            planner,
            num_tokens=num_tokens,
            history_bytes=history_bytes,
            shares_tasks=method == "history",
        )
        return ""

    def weight_receipt(self, policy_version: int, adapter_rank: int) -> dict[str, Any]:
        """The digests of what this process holds of that version, as plain values, in ``parts``.

        With an ``adapter_rank``, of the adapter that is served beside the base. Of one that was merged
        ``merged`` has the digests of what was to be held, and ``adapter`` those of its factors; ``given``
        has those of all tensors that came, where they are quantised.
        """
        runner: Any = self.model_runner  # type: ignore[attr-defined]
        unread: list[str] = []
        if adapter_rank:
            parts = held_adapter(runner.lora_manager._adapter_manager, adapter_rank, policy_version)
        else:
            parts, unread = held_parts(runner.get_model(), policy_version)
        transfer: Any = self.weight_transfer_engine  # type: ignore[attr-defined]
        return {
            "parts": [tuple(part) for part in parts],
            "unread": unread,
            "merged": transfer.merged,
            "adapter": transfer.adapter,
            "given": transfer.given,
        }

    def speculation_counts(self) -> dict[str, float]:
        """See DeterministicDraftSampler.counts."""
        counts: dict[str, float] = self.model_runner.rejection_sampler.counts()  # type: ignore[attr-defined]
        return counts


def _measured_forwards(runner: Any) -> dict[int, float]:
    """Seconds of forwards of 1, 2, 4, ... tokens, the best of a few each; of long ones fewer."""
    measured: dict[int, float] = {}
    num_tokens = 1
    while num_tokens <= min(_MAX_MEASURED_TOKENS, runner.max_num_tokens):
        best = float("inf")
        for _ in range(_REPEATS):
            started = time.perf_counter()
            hidden, _ = runner._dummy_run(num_tokens)
            runner.model.compute_logits(hidden[:num_tokens])
            if runner.device.type == "cuda":
                torch.cuda.synchronize(runner.device)
            best = min(best, time.perf_counter() - started)
            if best > _LONG_S:
                break
        measured[num_tokens] = best
        num_tokens *= 2
    return measured
