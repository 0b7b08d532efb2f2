"""Tasks from a Hugging Face data set, on the hub or in a local folder, with a column mapping.

Rows become records and are read as curriculum.jsonl reads lines: in the plain form, HumanEval's, MBPP's or
GSM8K's. Does no caching of its own (``datasets`` does).
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from typing import Any

from configs.task_sets import BUILT_IN_DATASETS, MBPP_ON_HUB
from curriculum import gsm8k, humaneval, jsonl, mbpp
from curriculum.record import Record
from curriculum.task import Task
from sandbox.job import refuse_constant

_FIELDS = tuple(dict.fromkeys((*jsonl.FIELDS, *humaneval.FIELDS, *mbpp.FIELDS, *gsm8k.FIELDS)))
# What a program is judged by in each form, which tells it; the first that is there decides.
_FORM_OF_FIELD = {
    "test_list": mbpp.FIELDS,
    "test": humaneval.FIELDS,
    "tests": jsonl.FIELDS,
    "check": jsonl.FIELDS,
    "question": gsm8k.FIELDS,
}
# Types of values that come out as they were written. A whole number beside fractions has become one, but
# nothing tells it from a fraction that was written so.
_SAFE_KINDS = {
    *("null", "bool", "string", "large_string", "float16", "float32", "float64"),
    *(f"{sign}int{size}" for sign in ("", "u") for size in (8, 16, 32, 64)),
}


def load_hub(
    name: str, split: str, columns: Mapping[str, str], setting: str = "dataset.name"
) -> tuple[Task, ...]:
    """The tasks of one split, in its order.

    ``columns`` maps our field names to the data set's columns; columns that bear our names need no
    entry unless another field is mapped to them, and all others are left out. Tests that are mapped are
    the only ones. ``tests`` may be a column of JSON text. A data set without task ids gets its row
    numbers. Raises ValueError for a data set that cannot be loaded, a mapping that names what is not
    there, a column of tests that is not read as it was written, and a malformed row.
    """
    for field in columns:
        if field not in _FIELDS:
            raise ValueError(f"dataset.columns: key {field!r}: is none of our fields: {', '.join(_FIELDS)}")
    # Imported here: it takes seconds, and only runs on hub data need it.
    from datasets import Dataset, load_dataset

    # It is said once, below, not before each of its tries.
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    try:
        rows = load_dataset(name, split=split)
    # Each format and each way to the hub has errors of its own, and they share no class.
    except Exception as failure:
        if os.path.isdir(name):
            where = "the folder cannot be loaded"
        elif name == MBPP_ON_HUB:
            where = "could not be had from the hub"
        else:
            built_in = ", ".join(BUILT_IN_DATASETS)
            where = (
                f"is not built in ({built_in}, FILE.jsonl), is no folder, and could not be had from the hub"
            )
        of_split = "dataset.split" if setting == "dataset.name" else "split"
        raise ValueError(
            f"{setting}: value {name!r}, {of_split}: value {split!r}: {where}: {_reason(failure)}"
        ) from failure
    assert isinstance(rows, Dataset)
    mapping = _complete_mapping(columns, rows.column_names, setting)
    column = mapping.get("tests")
    if column is not None and (kind := _unsafe_kind(rows.features[column])):
        raise ValueError(
            f"{setting}: value {name!r}: column {column!r}, the tests, holds {kind}, which may not be "
            "what was written; keep tests as JSON text, or name the .jsonl file itself"
        )
    origin = f"{name}[{split}]"
    records = [_record(f"{origin} row {number}", number, row, mapping) for number, row in enumerate(rows)]
    return jsonl.tasks_of_records(records, origin=origin)


def _reason(failure: Exception) -> str:
    """Why a data set cannot be loaded, in one line."""
    from datasets.exceptions import DatasetGenerationError

    reason: BaseException = failure
    # Its own text says nothing; those of the classes below it do.
    while type(failure) is DatasetGenerationError and reason.__cause__ is not None:
        reason = reason.__cause__
    text = " ".join(str(reason).split())
    if text.startswith("Config name is missing"):
        names = text.partition("available configs: ")[2].partition(" Example")[0]
        return (
            f"it has several configurations, {names}, and none of them can be named here; download the one "
            "you want, and name its folder or its .jsonl file"
        )
    return text or type(reason).__name__


def _unsafe_kind(feature: Any, is_value: bool = False) -> str:
    """Values in a column of tests that may not be as they were written; empty where there are none.

    ``is_value`` is true below the fields of a test (args, expected).
    """
    inner = getattr(feature, "feature", None)  # What a list holds.
    if inner is not None:
        return _unsafe_kind(inner, is_value)
    if isinstance(feature, dict):
        # Each object gets the keys of all others, with None. A test has its keys by its form.
        found = ["objects"] if is_value else [_unsafe_kind(value, True) for value in feature.values()]
        return next(filter(None, found), "")
    kind = getattr(feature, "dtype", None)
    if kind is None:
        # Its type Json, which keeps ten digits of a number and reads the text "5" as 5.
        return "values of several types"
    return "" if kind in _SAFE_KINDS else f"values of type {kind}"


def _complete_mapping(columns: Mapping[str, str], available: list[str], setting: str) -> dict[str, str]:
    for field, column in columns.items():
        if column not in available:
            raise ValueError(
                f"dataset.columns: {field}: value {column!r}: is no column; there are {', '.join(available)}"
            )
    # What is mapped is what it is mapped to, and no column is added to tests that are.
    taken = {*columns.values(), *(_FORM_OF_FIELD if _FORM_OF_FIELD.keys() & columns else ())}
    # Two names of what is asked.
    taken |= {"text", "prompt"} if columns.keys() & {"text", "prompt"} else set()
    mapping = {field: field for field in _FIELDS if field in available and field not in taken} | dict(columns)
    if {"test_list", "test"} <= mapping.keys():
        is_mapped = setting == "dataset.name"
        or_map = (
            ", or map the one that is meant, dataset.columns: {test_list: test_list}" if is_mapped else ""
        )
        raise ValueError(
            f"{setting}: there are columns test_list and test, as in EvalPlus's MBPP+, whose further tests "
            f"are in test: name its own file, MbppPlus.jsonl{or_map}"
        )
    form = next((form for field, form in _FORM_OF_FIELD.items() if field in mapping), jsonl.FIELDS)
    if strange := [field for field in columns if field not in form]:
        raise ValueError(
            f"dataset.columns: key {strange[0]!r}: is not read from a data set of this form, but "
            f"{', '.join(form)}"
        )
    return {field: column for field, column in mapping.items() if field in form}


def _record(where: str, number: int, row: Mapping[str, object], mapping: Mapping[str, str]) -> Record:
    fields = {field: row[column] for field, column in mapping.items() if row[column] is not None}
    if "task_id" not in fields:
        fields["task_id"] = f"row-{number}"
    tests = fields.get("tests")
    if isinstance(tests, str):
        try:
            fields["tests"] = json.loads(tests, parse_constant=refuse_constant)
        except ValueError:
            raise Record(where=where, fields=fields).error("tests", "must be JSON text") from None
    return Record(where=where, fields=fields)
