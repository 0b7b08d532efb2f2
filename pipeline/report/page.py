"""The page of a run: the template with the data, the script and the style inside it."""

from __future__ import annotations

import json
from functools import lru_cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup

# In the order in which the page needs them.
_SCRIPTS = ("uplot.min.js", "base.js", "charts.js", "timeline.js", "samples.js", "runs.js", "page.js")
_STYLES = ("uplot.min.css", "page.css")


def render_page(data: dict[str, Any], *, live: dict[str, Any] | None = None) -> str:
    """The HTML of a run's page with ``data``; ``live`` (token, address) makes it ask for what is new."""
    return _template().render(
        title=data["name"],
        kind="run",
        style=Markup(_joined(_STYLES)),
        script=Markup(_joined(_SCRIPTS)),
        data=Markup(as_script_json(data)),
        live=Markup(as_script_json(live)),
    )


def render_runs_page(live: dict[str, Any]) -> str:
    """The HTML of the live page that lists and compares runs."""
    return _template().render(
        title="runs",
        kind="runs",
        style=Markup(_joined(_STYLES)),
        script=Markup(_joined(_SCRIPTS)),
        data=Markup("null"),
        live=Markup(as_script_json(live)),
    )


def as_script_json(value: object) -> str:
    """JSON that may stand in a script element whatever a model wrote into it."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"), ensure_ascii=True)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


@lru_cache
def _template() -> Template:
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    return environment.from_string(_asset("page.html"))


@lru_cache
def _joined(names: tuple[str, ...]) -> str:
    return "\n".join(_asset(name) for name in names)


def _asset(name: str) -> str:
    return files("pipeline.report").joinpath("assets", name).read_text(encoding="utf-8")
