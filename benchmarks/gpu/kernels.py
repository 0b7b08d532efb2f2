"""Stage 1: is the gradient right on this device, and what does attention over packed rows cost."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from benchmarks.gpu.stage import Figures, Stage
from benchmarks.train_step.inputs import job_config, make_inputs
from benchmarks.train_step.job import VARIANTS, BatchSpec, StepJob
from benchmarks.train_step.profile import wait_for
from benchmarks.train_step.worker import distance, norm_of, run_job
from pipeline.training.attention import RowKernel, make_layout, row_attention
from pipeline.training.rows import Tree
from pipeline.training.trainer import Trainer

_CHECKED = ("only-packing", "only-shared", "all", "all-checkpointed", "all-compiled")
_MIB = 2**20
_TREE = 2048  # tokens of one prompt and its completions
_SHARES = range(2, 10)  # of the completions


class Kernels(Stage):
    """See the module."""

    def all_parts(self) -> Mapping[str, Callable[[], Figures]]:
        """See Stage."""
        return {
            "gradients against the plain step": self._gradients,
            "gradient against the CPU's": self._against_cpu,
            "attention: SDPA by sequences, prompts shared": self._by_sequences,
            "attention: SDPA, padded": self._padded,
            "attention: varlen, prompts shared": self._varlen,
        }

    def _job(self) -> StepJob:
        checked = _CHECKED[:-2] if self.terms.is_tiny else _CHECKED
        return StepJob(
            task="check",
            variants=checked,
            model=self.model("random-tiny"),
            batch=BatchSpec(name="random", groups=2, generations=4, prompt_tokens=40, completion_tokens=60),
            num_steps=1,
            cores=self.terms.cores,
            device=self.terms.device,
            trl_micro_batch=4,
        )

    def _gradients(self) -> Figures:
        """Distance to the plain step's, over its norm: in fp32, and of the gradient rounded to bf16."""
        errors = run_job(self._job())["errors"]
        return {f"{name}, {kind}": error for name, kinds in errors.items() for kind, error in kinds.items()}

    def _against_cpu(self) -> Figures:
        job = self._job()
        inputs = make_inputs(job)
        config = job_config(job, VARIANTS["all"], inputs)
        config = config.model_copy(update={"training": config.training.model_copy(update={"bf16": False})})
        here, there = (
            Trainer(config, inputs.model_path, device).gradients(inputs.batch)[1]
            for device in (self.terms.device, "cpu")
        )
        here = {name: value.cpu() for name, value in here.items()}
        return {"relative": distance(here, there) / norm_of(there)}

    @property
    def _row(self) -> int:
        return 256 if self.terms.is_tiny else 16384

    def _by_sequences(self) -> Figures:
        return self._timed(lambda: self._row_once("sdpa"))

    def _varlen(self) -> Figures:
        if self.terms.device == "cpu":
            return {"skipped": "torch has no varlen kernel on a CPU"}
        return self._timed(lambda: self._row_once("varlen"))

    def _row_once(self, kernel: RowKernel) -> None:
        layout = make_layout(_trees(self._row), self.terms.device, kernel)
        query, key, value = self._heads(1, self._row)
        output, _ = row_attention(nn.Module(), query, key, value, None, layout=layout, scaling=None)
        output.sum().backward()  # type: ignore[no-untyped-call]

    def _padded(self) -> Figures:
        lengths = _lengths(self._row)
        longest = max(lengths)
        ids = torch.arange(longest, device=self.terms.device)
        is_there = ids[None] < torch.tensor(lengths, device=self.terms.device)[:, None]
        mask = (ids[:, None] >= ids[None])[None, None] & is_there[:, None, None, :]

        def run() -> None:
            query, key, value = self._heads(len(lengths), longest)
            output = scaled_dot_product_attention(query, key, value, attn_mask=mask, enable_gqa=True)
            output.sum().backward()  # type: ignore[no-untyped-call]

        return self._timed(run)

    def _heads(self, num: int, length: int) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of random-0.5b in bf16."""
        query, kv, size = (4, 2, 32) if self.terms.is_tiny else (14, 2, 64)

        def one(heads: int) -> Tensor:
            return torch.randn(
                num, heads, length, size,
                device=self.terms.device, dtype=torch.bfloat16, requires_grad=True,
            )  # fmt: skip

        return one(query), one(kv), one(kv)

    def _timed(self, run: Callable[[], None]) -> Figures:
        """Forward and backward of the same sequences, whichever way they are laid out."""
        is_cuda, num_repeats = self.terms.device == "cuda", 1 if self.terms.is_tiny else 5
        run()
        wait_for(self.terms.device)
        if is_cuda:
            torch.cuda.reset_peak_memory_stats()
        seconds = []
        for _ in range(num_repeats):
            started = time.perf_counter()
            run()
            wait_for(self.terms.device)
            seconds.append(time.perf_counter() - started)
        num_tokens = sum(_lengths(self._row))
        figures = {
            "ms": 1e3 * statistics.median(seconds),
            "tokens_per_s": num_tokens / statistics.median(seconds),
        }
        if is_cuda:
            figures["peak_mb"] = torch.cuda.max_memory_allocated() / _MIB
        return figures


def _trees(num_tokens: int) -> tuple[Tree, ...]:
    """A row of exactly so many tokens: prompts of a tenth, completions of eight lengths behind each."""
    num = max(1, num_tokens // _TREE)
    sizes = [num_tokens // num + (index < num_tokens % num) for index in range(num)]
    return tuple(_tree(size) for size in sizes)


def _tree(size: int) -> Tree:
    prompt = size // 10
    left = size - prompt
    each = [left * share // sum(_SHARES) for share in _SHARES]
    each[-1] += left - sum(each)
    return Tree(num_prompt=prompt, completions=tuple(each))


def _lengths(num_tokens: int) -> list[int]:
    """Of the sequences of such a row, each with its prompt."""
    return [tree.num_prompt + length for tree in _trees(num_tokens) for length in tree.completions]
