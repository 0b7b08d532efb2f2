"""From defaults, mode, profile, file, ``--set`` and flags to one checked Config that knows its origins.

Later layers win: defaults < mode < profile < file < ``--set`` < flags. The mode is itself a setting and is
found first. Does not parse a command line.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from configs.errors import ConfigError, Problem, wrong_value
from configs.explain import dotted, explain
from configs.rewards_schema import PRESETS
from configs.schema import Config, Section
from configs.yaml_text import dump_value, parse_assignment, read_mapping

MODES = ("conservative", "balanced", "aggressive")
COMMAND_LINE = "command line"
_MODES_FOLDER = Path(__file__).parent / "modes"
_PROFILES_FOLDER = Path(__file__).parent / "profiles"
_DEFAULT = "default"
_DEFAULTS = Config()


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """A checked configuration; ``origins`` maps the dotted path of each set field to who set it."""

    config: Config
    origins: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layer:
    """Values of one origin: ``where`` is how an error names it."""

    where: str
    values: Mapping[str, Any]


def load_config(
    file: Path | None = None,
    mode: str | None = None,
    overrides: Sequence[str] = (),
    flags: Mapping[str, object] | None = None,
    profile: str | None = None,
) -> Config:
    """The configuration of a run; the arguments and errors are those of ``resolve``."""
    return resolve(file, mode, overrides, flags, profile).config


def profiles() -> tuple[str, ...]:
    """The names that ``--profile`` takes."""
    return tuple(sorted(path.stem for path in _PROFILES_FOLDER.glob("*.yaml")))


def resolve(
    file: Path | None = None,
    mode: str | None = None,
    overrides: Sequence[str] = (),
    flags: Mapping[str, object] | None = None,
    profile: str | None = None,
) -> Resolved:
    """Lay ``flags`` over ``overrides`` over ``file`` over ``profile`` over the mode over the defaults.

    The whole is checked. ``mode`` comes from a flag; without it ``acceleration.mode`` of overrides, file or
    profile counts, else the default. ``overrides`` are texts ``a.b=c``; ``flags`` map dotted paths to values;
    ``profile`` names a file of configs/profiles. Raises ConfigError that lists every problem with its origin.
    """
    given = [_profile_layer(profile)] if profile is not None else []
    given += [_Layer(where=str(file), values=read_mapping(file))] if file else []
    given += [_layer_of(f"--set {text}", *parse_assignment(text)) for text in overrides]
    flags = {**(flags or {}), **({"acceleration.mode": mode} if mode is not None else {})}
    given += [_layer_of(COMMAND_LINE, tuple(path.split(".")), value) for path, value in flags.items()]
    layers = [*_mode_layers(given), *given]

    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for layer in layers:
        _lay_over(values, layer.values, layer.where, (), origins)
    if file is not None:
        _take_preset(values, str(file), origins)
        _take_custom(values, str(file), origins)
    try:
        config = Config.model_validate(values)
    except ValidationError as error:
        problems = [replace(problem, where=_blame(problem, origins)) for problem in explain(error)]
        raise ConfigError(problems) from error
    preset = config.rewards.preset
    for path in _leaves(PRESETS[preset], ("rewards",)):
        origins.setdefault(path, f"rewards.preset {preset}")
    return Resolved(config=config, origins=origins)


def render(config: Config, origins: Mapping[str, str] | None = None) -> str:
    """The whole configuration as YAML that ``load_config`` reads back; with origins, one comment a line."""
    lines: list[tuple[str, str]] = []
    _render_section(config.model_dump(), (), origins or {}, lines)
    if origins is None:
        return "".join(f"{text}\n" for text, _ in lines)
    width = max((len(text) for text, origin in lines if origin and len(text) <= 60), default=0)
    lines = [(text, origin and " ".join(origin.split())) for text, origin in lines]
    return "".join(f"{text:<{width}}  # {origin}\n" if origin else f"{text}\n" for text, origin in lines)


def _leaves(values: Mapping[str, Any], prefix: tuple[str, ...]) -> Iterator[str]:
    """Dotted paths of the values that are no mappings."""
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, (*prefix, key))
        else:
            yield dotted((*prefix, key))


def _mode_layers(given: Sequence[_Layer]) -> list[_Layer]:
    mode: object = _DEFAULTS.acceleration.mode
    for layer in given:
        section = layer.values.get("acceleration")
        if isinstance(section, dict):
            mode = section.get("mode", mode)
    if mode not in MODES:
        return []  # The schema refuses it, together with whatever else is wrong.
    file = _MODES_FOLDER / f"{mode}.yaml"
    return [_Layer(where=f"mode {mode}", values=read_mapping(file))]


def _take_preset(values: dict[str, Any], file: str, origins: dict[str, str]) -> None:
    """Remove what ``file`` says of rewards where a preset was given over it, and it names all that one sets.

    So does a run's own config.yaml; what a shorter file names stays, as beside a preset of its own.
    """
    paths = {path for preset in PRESETS.values() for path in _leaves(preset, ("rewards",))}
    if origins.get("rewards.preset") in (None, file) or not paths <= origins.keys():
        return
    for path in [path for path in paths if origins[path] == file]:
        *sections, field = path.split(".")
        section = values
        for each in sections:
            section = section[each]
        del section[field], origins[path]


def _take_custom(values: dict[str, Any], file: str, origins: dict[str, str]) -> None:
    """Remove the weights of 1 in ``file`` where other custom rewards were given over it: nobody set them."""
    given = values.get("rewards")
    weights = given.get("custom_weights") if isinstance(given, dict) else None
    is_over = origins.get("rewards.custom", file) != file and origins.get("rewards.custom_weights") == file
    if (
        isinstance(given, dict)
        and is_over
        and isinstance(weights, list)
        and all(weight == 1.0 for weight in weights)
    ):
        del given["custom_weights"], origins["rewards.custom_weights"]


def _profile_layer(name: str) -> _Layer:
    known = profiles()
    if name not in known:
        problem = wrong_value("--profile", name, f"one of: {', '.join(known)}")
        raise ConfigError([replace(problem, where=COMMAND_LINE)])
    return _Layer(where=f"profile {name}", values=read_mapping(_PROFILES_FOLDER / f"{name}.yaml"))


def _layer_of(where: str, path: tuple[str, ...], value: object) -> _Layer:
    for key in reversed(path):
        value = {key: value}
    assert isinstance(value, dict)
    return _Layer(where=where, values=value)


def _lay_over(
    target: dict[str, Any],
    values: Mapping[str, Any],
    where: str,
    prefix: tuple[str, ...],
    origins: dict[str, str],
) -> None:
    for key, value in values.items():
        path = (*prefix, key)
        if value is None and _is_section(path):
            continue  # A section whose every line is commented out.
        if isinstance(value, dict) and (value or _is_section(path)):
            below = target.get(key, {})
            if not isinstance(below, dict):
                continue  # No section, which the schema says; what is laid over it would hide that.
            target[key] = dict(below)
            _lay_over(target[key], value, where, path, origins)
        else:
            target[key] = value
            origins[dotted(path)] = where


def _is_section(path: tuple[str, ...]) -> bool:
    section: object = _DEFAULTS
    for key in path:
        if not isinstance(section, Section) or key not in type(section).model_fields:
            return False
        section = getattr(section, key)
    return isinstance(section, Section)


def _blame(problem: Problem, origins: Mapping[str, str]) -> str:
    """The origin of the first field with a part in the problem that somebody has set."""
    for field in (problem.field, *problem.related):
        parts = field.split(".")
        for length in range(len(parts), 0, -1):
            if (path := ".".join(parts[:length])) in origins:
                return origins[path]
        for path, origin in reversed(list(origins.items())):
            if path.startswith(f"{field}."):
                return origin
    return _DEFAULT


def _render_section(
    section: Mapping[str, Any],
    prefix: tuple[str, ...],
    origins: Mapping[str, str],
    lines: list[tuple[str, str]],
) -> None:
    indent = "  " * len(prefix)
    for key, value in section.items():
        path = (*prefix, key)
        if isinstance(value, dict) and value:
            lines.append((f"{indent}{dump_value(key)}:", ""))
            _render_section(value, path, origins, lines)
        else:
            lines.append(
                (f"{indent}{dump_value(key)}: {dump_value(value)}", origins.get(dotted(path), _DEFAULT))
            )
