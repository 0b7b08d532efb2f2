"""YAML as this project reads and writes it.

Differs from PyYAML's safe loader where that surprises: ``1e-5`` is a number, a key given twice is an error,
``12:30`` and ``2026-01-31`` stay text, keys are text. Knows nothing of the schema.
"""

from __future__ import annotations

import json
import re
import stat
from pathlib import Path
from typing import Any

import yaml

from configs.errors import ConfigError, Problem, show, wrong_value

_MAX_BYTES = 2**20
_A_MAPPING = "a mapping of sections, such as 'training: {max_steps: 20}'"
_INT = re.compile(r"^[-+]?(?:0|[1-9][0-9_]*|0x[0-9a-fA-F_]+)$")
_FLOAT = re.compile(
    r"^(?:[-+]?(?:[0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)?"
    r"|[-+]?[0-9][0-9_]*[eE][-+]?[0-9]+"
    r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
)
_REPLACED_TAGS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float", "tag:yaml.org,2002:timestamp")
_PLAIN_RESOLVERS: dict[str, list[tuple[str, re.Pattern[str]]]] = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in _REPLACED_TAGS]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


class _Loader(yaml.SafeLoader):
    """Safe loading with the differences that the module names."""

    yaml_implicit_resolvers = {first: list(resolvers) for first, resolvers in _PLAIN_RESOLVERS.items()}  # noqa: RUF012

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue
            if key_node.tag != "tag:yaml.org,2002:str":
                raise yaml.constructor.ConstructorError(
                    problem="a key that is not text", problem_mark=key_node.start_mark
                )
            if key_node.value in seen:
                raise yaml.constructor.ConstructorError(
                    problem=f"key {key_node.value!r} is given twice", problem_mark=key_node.start_mark
                )
            seen.add(key_node.value)
        return super().construct_mapping(node, deep=deep)


class _Dumper(yaml.SafeDumper):
    """Quotes what ``_Loader`` would not read back as text, and nothing more."""

    yaml_implicit_resolvers = {first: list(resolvers) for first, resolvers in _PLAIN_RESOLVERS.items()}  # noqa: RUF012


for _class in (_Loader, _Dumper):
    _class.add_implicit_resolver("tag:yaml.org,2002:int", _INT, list("-+0123456789"))
    _class.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+0123456789."))


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    # Other styles fold line breaks, of which YAML knows more than one.
    style = '"' if any(character in text for character in "\n\r\x85\u2028\u2029") else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)


def read_mapping(file: Path) -> dict[str, Any]:
    """The mapping in a YAML file; ConfigError when there is none to be had."""
    allowed = "a readable YAML file"
    try:
        status = file.stat()
        if not stat.S_ISREG(status.st_mode) and not stat.S_ISDIR(status.st_mode):
            # Such as a pipe, which may never end.
            raise _bad_file(file, "not a regular file", allowed)
        if status.st_size > _MAX_BYTES:
            raise _bad_file(file, f"{status.st_size} bytes", f"a YAML file of at most {_MAX_BYTES} bytes")
        text = file.read_bytes().decode("utf-8-sig")
    except FileNotFoundError as error:
        raise _bad_file(file, "no such file", allowed) from error
    except IsADirectoryError as error:
        raise _bad_file(file, "a folder, not a file", allowed) from error
    except OSError as error:
        raise _bad_file(file, f"cannot be read ({error.strerror})", allowed) from error
    except UnicodeDecodeError as error:
        fault = f"not UTF-8 (byte {error.start} is 0x{error.object[error.start]:02x})"
        raise _bad_file(file, fault, "YAML text in UTF-8") from error
    try:
        content = _load(text)
        json.dumps(content, default=str)
    except ValueError as error:
        raise _bad_file(file, f"not valid YAML: {error}", "valid YAML, each key once") from error
    if content is None:
        raise _bad_file(file, "empty", _A_MAPPING)
    if not isinstance(content, dict):
        raise _bad_file(file, f"not a mapping but {show(content)}", _A_MAPPING)
    return content


def parse_value(text: str) -> object:
    """A value given on the command line, read as YAML; what is no YAML is text, and nothing is ''."""
    try:
        return _load(text) if text.strip() else text
    except ValueError:
        return text


def dump_value(value: object) -> str:
    """``value`` on one line of YAML that ``parse_value`` reads back."""
    text = yaml.dump(
        value, Dumper=_Dumper, default_flow_style=True, width=10**9, allow_unicode=True, sort_keys=False
    )
    return text.removesuffix("\n").removesuffix("...").removesuffix("\n")


def parse_assignment(text: str) -> tuple[tuple[str, ...], object]:
    """The path and value of ``a.b=c``; ConfigError when it is not of that form."""
    path, equals, value = text.partition("=")
    keys = tuple(key.strip() for key in path.split("."))
    if not equals or not all(keys):
        raise ConfigError([wrong_value("--set", text, "SECTION.FIELD=VALUE, such as training.max_steps=20")])
    return keys, parse_value(value)


def _load(text: str) -> Any:
    try:
        return yaml.load(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise ValueError(f"{place}{error.problem or error.context}") from error
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from error
    except AttributeError as error:
        raise ValueError("a tag that its value does not fit") from error
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _bad_file(file: Path, fault: str, allowed: str) -> ConfigError:
    return ConfigError([Problem(where=str(file), field="", fault=fault, allowed=allowed)])
