"""Samples and verdicts in OpenAI's JSONL format: {task_id, completion}, one line a sample.

In that format the program is the task's prompt followed by the completion. Scores nothing.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from curriculum.jsonl import read_records
from curriculum.task import Task
from pipeline.evaluation.evaluate import EvaluatedSample
from pipeline.host.files import write_text_atomically
from pipeline.models.prompts import is_function_head
from rewards.extract import extract_code
from rewards.result import RewardResult
from sandbox.job import parse

_FUTURE = re.compile(r"^from __future__ import ", re.MULTILINE)


def sample_completion(task: Task, text: str) -> str:
    """The completion to publish for an answer: its whole program, so that prompt + completion runs.

    After a prompt that is a function head the program defines the function once more, which wins. After one
    that is no function by itself, for want of a docstring, it stands in a code fence, which
    ``sample_program`` knows, and so does a program that imports from ``__future__``, which must come first.
    An answer without a program is published as it is.
    """
    code = extract_code(text, task.entry_point, task.prompt)
    if not code:
        return text
    return _behind_head(task, code) if is_function_head(task.prompt, task.entry_point) else code


def _behind_head(task: Task, code: str) -> str:
    """A whole program as the completion of a function head."""
    is_fenced = _FUTURE.search(code) is not None
    try:
        parse(task.prompt)
    except (SyntaxError, ValueError):
        is_fenced = True
    return f"```python\n{code.rstrip()}\n```\n" if is_fenced else f"\n{code}"


def sample_program(task: Task, completion: str) -> str:
    """The program that a published completion stands for.

    prompt + completion where the prompt is a function head, the completion alone where it is prose. A
    completion with a code fence in it is a chat answer: its program is extracted.
    """
    if re.search(r"^```", completion, re.MULTILINE):
        return extract_code(completion, task.entry_point, task.prompt)
    if is_function_head(task.prompt, task.entry_point):
        return task.prompt + completion
    return completion


def read_samples(path: str, tasks: Sequence[Task], known: Collection[str]) -> list[tuple[Task, str]]:
    """The samples of ``tasks`` in a file, in its order, as (task, completion).

    Of lines whose task_id is not among those ``known``, of the whole set, a note is printed. A line may have
    ``solution`` instead, a whole program, as EvalPlus's files do. Raises ValueError, with FILE:LINE, for a
    malformed line or when no sample is of these tasks.
    """
    task_of = {task.task_id: task for task in tasks}
    samples, unknown = [], []
    for record in read_records(path):
        task_id = record.name("task_id")
        is_whole = "solution" in record.fields and "completion" not in record.fields
        completion = record.fields.get("solution" if is_whole else "completion")
        if not isinstance(completion, str):
            raise record.error("solution" if is_whole else "completion", "must be a string")
        if task_id in task_of:
            task = task_of[task_id]
            if is_whole and is_function_head(task.prompt, task.entry_point):
                completion = _behind_head(task, completion)
            samples.append((task, completion))
        elif task_id not in known:
            unknown.append(task_id)
    if not samples:
        raise ValueError(f"{path}: no line has a task_id of the chosen tasks, such as {tasks[0].task_id!r}")
    if unknown:
        number = f"{len(unknown)} line{'s are' if len(unknown) > 1 else ' is'}"
        print(f"note: {path}: {number} of no task of the set, such as {unknown[0]!r}", file=sys.stderr)
    return samples


def write_samples(path: Path, samples: Iterable[tuple[str, str]]) -> None:
    """Write (task_id, completion) pairs."""
    lines = [json.dumps({"task_id": task_id, "completion": completion}) for task_id, completion in samples]
    write_text_atomically(path, "".join(f"{line}\n" for line in lines))


def write_results(path: Path, results: Iterable[tuple[EvaluatedSample, str]]) -> None:
    """Write each sample and its completion as {task_id, completion, result, passed}.

    ``passed`` is null for a sample that the sandbox could not judge. Where later turns followed the line also
    has ``turns``, each as {feedback, answer, result, passed}, ``resampled`` and ``resampled_by_answers``.
    """
    lines = []
    for sample, completion in results:
        line = {"task_id": sample.task_id, "completion": completion, **_verdict(sample.result)}
        if sample.turns:
            line["turns"] = [
                {"feedback": turn.feedback, "answer": turn.text, **_verdict(turn.result)}
                for turn in sample.turns
            ]
            line["resampled"] = sample.resampled
            line["resampled_by_answers"] = sample.resampled_by_answers
        lines.append(json.dumps(line))
    write_text_atomically(path, "".join(f"{line}\n" for line in lines))


def _verdict(result: RewardResult) -> dict[str, object]:
    return {"result": _describe(result), "passed": None if result.is_infra_error else result.passed}


def _describe(verdict: RewardResult) -> str:
    if verdict.passed:
        return "passed"
    if verdict.is_infra_error:
        return f"not judged: {verdict.detail}"
    return f"failed: {verdict.outcome}: {verdict.detail}".removesuffix(": ")
