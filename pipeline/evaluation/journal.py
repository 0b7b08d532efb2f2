"""What an evaluation has so far: every completion and its verdict, written as they come.

One JSON line a sample, after a first line that says which evaluation it is. An evaluation that is started
again takes up what is there; a line torn by a crash is cut off. Samples that could not be judged are not
written, so they are made again. Only one process may write.

Of the tasks in flight at a crash the short answers are there and the long ones are drawn again: these tasks
lean to short answers then, unless the sampling is greedy.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from pydantic import TypeAdapter

from pipeline.errors import in_short
from pipeline.evaluation.evaluate import EvaluatedSample
from pipeline.generation.resident import differences

_SAMPLE = TypeAdapter(EvaluatedSample)


class EvaluationJournal:
    """The samples of one evaluation in ``path``, which ``identity`` describes (names and values as text).

    ``kept`` are those of an earlier process, by task. Raises ValueError, and changes nothing, for a file that
    is damaged, in use, or of another evaluation.
    """

    def __init__(self, path: Path, identity: Mapping[str, str], *, hint: str) -> None:
        """``hint`` tells users what to do with a file of another evaluation."""
        self.path = path
        try:
            self._file = path.open("a+", encoding="utf-8")
        except OSError as error:
            raise ValueError(f"{path}: cannot be written ({error.strerror})") from None
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.close()
            raise ValueError(f"{path}: another evaluation writes it just now; {hint}") from None
        try:
            self.kept = self._take_up(dict(identity), hint)
            self._num_lines = self.num_kept
        except BaseException:
            self._file.close()
            raise

    @property
    def num_kept(self) -> int:
        """How many samples an earlier process left."""
        return sum(map(len, self.kept.values()))

    def add(self, sample: EvaluatedSample) -> None:
        """Write one sample; it is out of this process on return."""
        if sample.is_judged:
            # As a dict: pydantic's own JSON has no lone surrogates, which a model may write.
            self._write(_SAMPLE.dump_python(sample, mode="json"))
            self._num_lines += 1

    def close(self) -> None:
        """Close the file, which stays if there is a sample in it. Safe to call twice."""
        if not self._file.closed and not self._num_lines:
            self.path.unlink(missing_ok=True)
        self._file.close()

    def remove(self) -> None:
        """Remove the file: what it held is elsewhere."""
        self.path.unlink(missing_ok=True)
        self._file.close()

    def _take_up(self, identity: Mapping[str, str], hint: str) -> dict[str, list[EvaluatedSample]]:
        self._file.seek(0)
        try:
            text = self._file.read()
        except UnicodeDecodeError as error:
            raise ValueError(f"{self.path}: is no journal of an evaluation ({error}); {hint}") from None
        whole = text[: text.rfind("\n") + 1]
        lines = whole.splitlines()
        if not lines:
            if text:
                raise ValueError(f"{self.path}: is no journal of an evaluation; {hint}")
            self._write({"evaluation": identity})
            return {}
        self._refuse_others(lines[0], identity, hint)
        kept: defaultdict[str, list[EvaluatedSample]] = defaultdict(list)
        for number, line in enumerate(lines[1:], start=2):
            try:
                sample = _SAMPLE.validate_python(json.loads(line))
            except (ValueError, RecursionError) as error:
                raise ValueError(f"{self.path}:{number}: is damaged ({in_short(error)}); {hint}") from None
            kept[sample.task_id].append(sample)
        os.truncate(self.path, len(whole.encode("utf-8")))
        return dict(kept)

    def _refuse_others(self, line: str, identity: Mapping[str, str], hint: str) -> None:
        try:
            found = dict(json.loads(line)["evaluation"])
        except (ValueError, TypeError, KeyError):
            raise ValueError(f"{self.path}:1: is no journal of an evaluation; {hint}") from None
        if differing := differences(identity, found):
            raise ValueError(
                f"{self.path}: holds an unfinished evaluation that differs ({'; '.join(differing)}); {hint}"
            )

    def _write(self, line: Mapping[str, object]) -> None:
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()
