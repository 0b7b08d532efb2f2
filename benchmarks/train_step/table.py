"""The tables of the training-step benchmark, in Markdown."""

from __future__ import annotations

from typing import Any

from benchmarks.report import table_text


def table(result: dict[str, Any]) -> str:
    """Speed, memory and gradient of every variant."""
    rows = []
    for name, row in result["variants"].items():
        seconds = row["step_s"]
        rows.append(
            [
                name,
                row["note"],
                f"{row['tokens_per_s']:.0f}",
                f"{row['samples_per_s']:.2f}",
                f"{row['median_s']:.2f} ({min(seconds):.2f} to {max(seconds):.2f})",
                f"{row['peak_mb']:.0f}",
                "-" if row["ratio"] is None else f"{row['ratio']:.2f}",
                f"{100 * row['of_limit']:.0f} %" + (f" ({100 * row['mfu']:.0f} %)" if row["mfu"] else ""),
                _gradient(result["gradients"], name),
            ]
        )
    head = ["variant", "what", "tokens/s", "samples/s", "s a step (min to max)", "peak MB", "times TRL"]
    above = (
        f"{result['batch']['description']}; {result['model']} on {_place(result)}.\n"
        f"Matrix products of this model reach {result['limit']['gflops']:.0f} GFLOP/s here in bf16."
    )
    return table_text([*head, "of limit (MFU)", "gradient"], rows, above=above)


def profile_table(result: dict[str, Any]) -> str:
    """Where the time of a step goes."""
    found, limit = result["profile"], result["limit"]
    needed = sum(limit["needed_flops"].values())
    reached = needed / found["step_s"] / 1e9
    groups = sorted(found["groups"].items(), key=lambda item: -item[1]["share"])
    rows = [
        [name, f"{100 * group['share']:.1f} %", f"{1e3 * group['seconds']:.0f}"] for name, group in groups
    ]
    above = (
        f"{result['batch']['description']}; {result['model']}, variant {result['variant']}, on "
        f"{_place(result)}.\n"
        f"A step takes {found['step_s']:.2f} s, {found['profiled_s']:.2f} s under the profiler. It needs "
        f"{needed / 1e9:.0f} GFLOP; matrix products of this model reach {limit['gflops']:.0f} GFLOP/s "
        f"here in bf16, the step {reached:.0f}: {100 * reached / limit['gflops']:.0f} % of that limit."
    )
    return table_text(["part of a step", "share", "ms"], rows, above=above)


def _gradient(gradients: dict[str, Any] | None, name: str) -> str:
    """The relative error of the variant in fp32, and that of its rounded gradient if it runs in bf16."""
    if gradients is None:
        return "not compared"
    error = gradients["errors"][name]
    rounded = f" (bf16: {error['rounded']:.1e})" if "rounded" in error else ""
    return f"{error['relative']:.1e}{rounded}"


def _place(result: dict[str, Any]) -> str:
    hardware = result["hardware"]
    if result["device"] == "cuda":
        return str(result["limit"]["device_name"])
    return f"{result['threads']} cores of {hardware['cpu']}"
