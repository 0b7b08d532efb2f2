"""The parts of generation are all of it, each second counted once."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.generation_parts import KINDS, PARTS, least_s, measure, parse_arguments, table
from benchmarks.train_step.profile import linear_shapes
from tests.pipeline.tiny_model import make_byte_model, make_byte_tokenizer, save_model


@pytest.mark.slow
def test_parts_of_a_real_pass_are_all_there_and_add_up(tmp_path: Path) -> None:
    folder = str(tmp_path / "model")
    # vLLM's kernels for CPUs know no heads of 16.
    make_byte_model(0, initializer_range=0.02).save_pretrained(folder)
    make_byte_tokenizer().save_pretrained(folder)
    arguments = ("--threads", "1", "--groups", "1", "--batch", "8", "--length", "16", "--model", folder)
    result = measure(parse_arguments(arguments))
    figures = result["figures"]
    for kind in KINDS:
        seconds = [figures[f"{kind}: {part}"] for part in PARTS]
        assert min(seconds) > 0.0
        assert 0 < figures[f"{kind}: steps"] <= figures[f"{kind}: sampled"] <= figures[f"{kind}: tokens"]
    counted = [figures[f"{kind}: {part}"] for kind in KINDS for part in PARTS]
    assert 0.05 * figures["seconds"] < sum(counted) < figures["seconds"]
    # Every token that is kept was sampled in one of the steps; a stop is seen a step later.
    assert figures["tokens"] <= sum(figures[f"{kind}: sampled"] for kind in KINDS)
    text = table(result)
    assert all(f"| {kind}: {part} |" in text for kind in KINDS for part in PARTS)
    assert "| scheduler, texts, messages |" in text


def test_the_limit_is_the_longer_of_products_and_of_reading_the_weights(tmp_path: Path) -> None:
    folder = str(save_model(tmp_path))
    shapes = linear_shapes(folder)
    head = max(shapes, key=lambda shape: shape[0])
    figures = {"tokens: steps": 10.0, "tokens: tokens": 80.0, "tokens: sampled": 80.0}
    bound_by_products = least_s(folder, figures, {"flops_per_s": 1e6, "bytes_per_s": 1e12})
    assert bound_by_products["tokens: output head"] == pytest.approx(2 * head[0] * head[1] * 80 / 1e6)
    bound_by_memory = least_s(folder, figures, {"flops_per_s": 1e15, "bytes_per_s": 1e6})
    assert bound_by_memory["tokens: output head"] == pytest.approx(2 * head[0] * head[1] * 10 / 1e6)
    layers = sum(out * inputs * count for (out, inputs), count in shapes.items()) - head[0] * head[1]
    assert bound_by_memory["tokens: linear layers"] == pytest.approx(2 * layers * 10 / 1e6)
    assert not any(name.startswith("prompts") for name in bound_by_memory)
