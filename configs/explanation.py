"""What a run is made of, in words: its settings with their origins, and every technique with its reasons.

Decides nothing and loads nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from configs.load import Resolved, render, resolve
from configs.techniques import PROMISES, TECHNIQUES, Exactness, Technique, value_at
from configs.yaml_text import dump_value

_INDENT = " " * 18
_WORDS: Mapping[Exactness, str] = {
    "exact": "the expected gradient is the same",
    "rounds": "the same but for rounding",
    "corrected": "other samples or other tasks; a ratio allows for older weights, nothing for the tasks",
    "approximate": "another gradient",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """A technique in a configuration: whether it is on, which setting by whom says so, and why it is idle.

    ``is_beyond_mode`` where it acts although the mode promises better.
    """

    technique: Technique
    is_on: bool
    setting: str
    value: object
    origin: str
    idle: str | None
    is_beyond_mode: bool


def states(resolved: Resolved) -> tuple[State, ...]:
    """Every technique as ``resolved`` has it."""
    config = resolved.config
    allowed = PROMISES[config.acceleration.mode]
    found = []
    for technique in TECHNIQUES:
        is_on = technique.is_on(config)
        idle = technique.idle(config) if is_on else None
        setting = technique.deciding_setting(config)
        found.append(
            State(
                technique=technique,
                is_on=is_on,
                setting=setting,
                value=value_at(config, setting),
                origin=resolved.origins.get(setting, "default"),
                idle=idle,
                is_beyond_mode=is_on and idle is None and technique.exactness not in allowed,
            )
        )
    return tuple(found)


def beyond_mode(resolved: Resolved) -> list[str]:
    """One sentence for each technique that acts although the mode promises better."""
    mode = resolved.config.acceleration.mode
    return [
        f"{state.setting}: {dump_value(state.value)} ({state.origin}) switches on {state.technique.name}, "
        f"which is {state.technique.exactness}: mode {mode} alone promises {', '.join(PROMISES[mode])}"
        for state in states(resolved)
        if state.is_beyond_mode
    ]


def mode_overridden(resolved: Resolved, file: Path) -> list[str]:
    """One sentence where ``file`` has other values than the mode laid under it, as a run's own has."""
    mode = resolved.config.acceleration.mode
    plain = resolve(mode=mode)
    kept = [
        f"{path} {dump_value(now)} ({dump_value(value)})"
        for path, origin in plain.origins.items()
        if origin == f"mode {mode}"
        and resolved.origins.get(path) == str(file)
        and (now := value_at(resolved.config, path)) != (value := value_at(plain.config, path))
    ]
    said = f"{file} overrides settings of mode {mode} (its own in brackets): {', '.join(kept)}"
    return [said] if kept else []


def explain_run(resolved: Resolved) -> str:
    """The settings, one a line with who set it; then the techniques, what is on first."""
    mode = resolved.config.acceleration.mode
    every = sorted(states(resolved), key=lambda state: not state.is_on)
    parts = [
        "# Settings, and who set each",
        render(resolved.config, resolved.origins).rstrip("\n"),
        "",
        f"# Techniques; mode {mode} promises: {', '.join(PROMISES[mode])}",
        *(f"#   {name}: {words}" for name, words in _WORDS.items()),
        *(_described(state) for state in every),
    ]
    return "\n".join(parts) + "\n"


def _described(state: State) -> str:
    technique = state.technique
    head = f"{'on' if state.is_on else 'off':<4}{technique.exactness:<13} {technique.name}"
    lines = [
        head,
        f"{_INDENT}why:   {state.setting}: {dump_value(state.value)} ({state.origin})",
    ]
    if state.is_beyond_mode:
        lines.append(f"{_INDENT}note:  beyond what the mode promises")
    if state.idle is not None:
        lines.append(f"{_INDENT}idle:  {state.idle}")
    lines += [
        f"{_INDENT}gain:  {technique.gain}",
        f"{_INDENT}guard: {technique.guard}",
        f"{_INDENT}test:  {technique.proof}",
    ]
    return "\n".join(lines)
