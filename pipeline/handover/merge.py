"""Merge an adapter folder into its base model, without a card.

python -m pipeline merge ADAPTER_DIR OUT_DIR [BASE_DIR]
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from configs.command_line import make_parser, run_command
from pipeline.models.find import adapter_base
from pipeline.models.merging import merge_adapter


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns the exit status."""
    parser = make_parser("python -m pipeline merge", "Merge an adapter folder into its base model.")
    parser.add_argument("adapter", metavar="ADAPTER_DIR", help="an adapter's folder, such as a checkpoint")
    parser.add_argument("out", metavar="OUT_DIR", help="where the merged model goes")
    parser.add_argument("base", nargs="?", metavar="BASE_DIR", help="default: the base that it names")
    return run_command(parser, argv, _merge)


def _merge(arguments: argparse.Namespace) -> int:
    base = arguments.base or adapter_base(Path(arguments.adapter))
    print(merge_adapter(arguments.adapter, base, arguments.out))
    return 0
