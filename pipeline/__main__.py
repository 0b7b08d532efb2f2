"""Commands about runs and this machine; training and evaluation have console scripts of their own.

    python -m pipeline VERB ...            the verbs are printed where none is given

A verb is written with hyphens or underscores. Exit status 2 for a verb that does not exist; the rest, and the
flags, are the commands' own.
"""

from __future__ import annotations

import pkgutil
import sys
from collections.abc import Callable, Sequence

from configs.command_line import USER_ERROR, not_installed

# What is called, and what it does. Each imports its own: the merge needs torch, the report does not.
_VERBS = {
    "doctor": (
        "pipeline.doctor.command:main",
        "is this machine fit for a run; with RUN_DIR: what limited that run",
    ),
    "report": ("pipeline.report.page:main", "one HTML file of a run, and its timeline as a trace"),
    "audit": ("pipeline.record.audit:main", "does the account of a run's rollouts add up"),
    "replay": (
        "pipeline.run.replay:main",
        "do a run's training again from its tokens: is it the same, bit for bit",
    ),
    "hand-over": (
        "pipeline.handover.command:main",
        "a trained model as a folder with a card, or on the hub",
    ),
    "merge": ("pipeline.handover.command:merge_command", "an adapter folder merged into its base model"),
    "metrics": (
        "pipeline.record.metric_names:main",
        "every metric with unit and meaning, as docs/metrics.md",
    ),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the verb that comes first; returns its exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    if not words or words[0] in ("-h", "--help"):
        print("usage: python -m pipeline VERB ...; VERB --help says more\n")
        for verb, (_, said) in _VERBS.items():
            print(f"  {verb:<11}{said}")
        return 0
    verb = words[0].replace("_", "-")
    if verb not in _VERBS:
        print(f"error: {words[0]!r} is not a verb; allowed: {', '.join(_VERBS)}", file=sys.stderr)
        return USER_ERROR
    try:
        command: Callable[[Sequence[str]], int] = pkgutil.resolve_name(_VERBS[verb][0])
    except ModuleNotFoundError as missing:
        if (words_of_it := not_installed(missing)) is None:
            raise
        print(f"error: {words_of_it}", file=sys.stderr)
        return USER_ERROR
    return command(words[1:])


if __name__ == "__main__":
    sys.exit(main())
