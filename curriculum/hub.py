"""Tasks from a Hugging Face data set, on the hub or in a local folder, with a column mapping.

Rows become records and are read as curriculum.jsonl reads lines: in the plain form, HumanEval's or
MBPP's. Does no caching of its own (``datasets`` does).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping

from configs.task_sets import BUILT_IN_DATASETS
from curriculum import humaneval, jsonl, mbpp
from curriculum.record import Record
from curriculum.task import Task

_FIELDS = tuple(dict.fromkeys((*jsonl.FIELDS, *humaneval.FIELDS, *mbpp.FIELDS)))
# The tests of each form, which tell it; the first that is there decides.
_FORM_OF_FIELD = {
    "test_list": mbpp.FIELDS,
    "test": humaneval.FIELDS,
    "tests": jsonl.FIELDS,
    "check": jsonl.FIELDS,
}


def load_hub(name: str, split: str, columns: Mapping[str, str]) -> tuple[Task, ...]:
    """The tasks of one split, in its order.

    ``columns`` maps our field names to the data set's columns; columns that bear our names need no
    entry unless another field is mapped to them, and all others are left out. Tests that are mapped are
    the only ones. ``tests`` may be a column of JSON text. A data set without task ids gets its row
    numbers. Raises ValueError for a data set that cannot be loaded, a mapping that names what is not
    there, and a malformed row.
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
    except (OSError, ValueError) as failure:
        raise ValueError(
            f"dataset.name: value {name!r}, dataset.split: value {split!r}: is not built in "
            f"({', '.join(BUILT_IN_DATASETS)}, FILE.jsonl), and could not be loaded from the hub: {failure}"
        ) from failure
    assert isinstance(rows, Dataset)
    mapping = _complete_mapping(columns, rows.column_names)
    origin = f"{name}[{split}]"
    records = [_record(f"{origin} row {number}", number, row, mapping) for number, row in enumerate(rows)]
    return jsonl.tasks_of_records(records, origin=origin)


def _complete_mapping(columns: Mapping[str, str], available: list[str]) -> dict[str, str]:
    for field, column in columns.items():
        if column not in available:
            raise ValueError(
                f"dataset.columns: {field}: value {column!r}: is no column; there are {', '.join(available)}"
            )
    # What is mapped is what it is mapped to, and no column is added to tests that are.
    taken = {*columns.values(), *(_FORM_OF_FIELD if _FORM_OF_FIELD.keys() & columns else ())}
    mapping = {field: field for field in _FIELDS if field in available and field not in taken} | dict(columns)
    form = next((form for field, form in _FORM_OF_FIELD.items() if field in mapping), jsonl.FIELDS)
    return {field: column for field, column in mapping.items() if field in form}


def _record(where: str, number: int, row: Mapping[str, object], mapping: Mapping[str, str]) -> Record:
    fields = {field: row[column] for field, column in mapping.items() if row[column] is not None}
    if "task_id" not in fields:
        fields["task_id"] = f"row-{number}"
    tests = fields.get("tests")
    if isinstance(tests, str):
        try:
            fields["tests"] = json.loads(tests)
        except ValueError:
            raise Record(where=where, fields=fields).error("tests", "must be JSON text") from None
    return Record(where=where, fields=fields)
