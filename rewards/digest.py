"""Digests of what a verdict depends on: of a task, and of the code that judges.

Canonical: the same in every process, whatever PYTHONHASHSEED and the order in which a set was filled.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from importlib.metadata import packages_distributions, version
from pathlib import Path

from curriculum.task import Task

_DIGEST_BYTES = 16
# Python writes no longer number in tens (4,300 digits).
_MOST_BITS_IN_TENS = 14_000
_JUDGES = ("sandbox/**/*.py", "curriculum/judging.py", "rewards/**/*.py")


def task_digest(task: Task) -> bytes:
    """A digest of all that the verdict on an answer may depend on, under whatever id the task goes.

    Left out: what only draws and reports read (task_id, difficulty, family), and the reference, which is
    only timed, and measured verdicts are not kept.
    """
    digest = blake2b(digest_size=_DIGEST_BYTES)
    for text in (task.entry_point, task.prelude, task.prompt, task.source, repr(task.check_source)):
        update(digest, text)
    for test in task.call_tests:
        for value in (test.args, test.expected, test.expected_args):
            update(digest, canonical(value))
    for run in task.stdio_tests:
        update(digest, repr((run.stdin, run.expected_stdout, run.decimals)))
    return digest.digest()


def canonical(value: object) -> str:
    """A text that two values share only if a test cannot tell them apart by type, content and order.

    Sets and dictionaries of equal content may be filled in another order: a set's members are sorted, a
    dictionary's order is kept, since a program can see it.
    """
    kind = type(value).__name__
    if isinstance(value, list | tuple):
        return f"{kind}({','.join(canonical(item) for item in value)})"
    if isinstance(value, set | frozenset):
        return f"{kind}({','.join(sorted(canonical(item) for item in value))})"
    if isinstance(value, dict):
        items = (f"{canonical(key)}:{canonical(item)}" for key, item in value.items())
        return f"{kind}({','.join(items)})"
    if isinstance(value, int) and value.bit_length() > _MOST_BITS_IN_TENS:
        return f"{kind} {value:#x}"
    return f"{kind} {value!r}"


def judge_digest() -> str:
    """A digest of the source of what judges, so that a change of it empties every cache."""
    root = Path(__file__).parents[1]
    digest = blake2b(digest_size=_DIGEST_BYTES)
    for pattern in _JUDGES:
        for path in sorted(root.glob(pattern)):
            update(digest, path.relative_to(root).as_posix())
            digest.update(path.read_bytes())
    return digest.hexdigest()


def module_versions(modules: Sequence[str]) -> list[str]:
    """The installed versions of the packages that programs may import."""
    names = packages_distributions() if modules else {}
    return [
        f"{module} {name} {version(name)}"
        for module in modules
        for name in names.get(module.partition(".")[0], [])
    ]


def update(digest: blake2b, text: str) -> None:
    """Add ``text`` with its length, so that no two different sequences of texts read alike."""
    data = text.encode("utf-8", "surrogatepass")
    digest.update(b"%d:" % len(data))
    digest.update(data)
