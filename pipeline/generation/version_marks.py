"""Which policy version wrote which tokens of a completion, noted while it is written. Pure."""

from __future__ import annotations

from pipeline.messages import VersionRun


class VersionMarks:
    """The versions of one completion that begins under ``version``."""

    def __init__(self, version: int) -> None:
        self._starts = [(0, version)]  # the first token of each version, in order

    @property
    def has_changed(self) -> bool:
        """Whether more than one version has been at it."""
        return len(self._starts) > 1

    def changed(self, num_tokens: int, version: int) -> None:
        """What follows the first ``num_tokens`` is written by ``version``."""
        first, present = self._starts[-1]
        assert num_tokens >= first
        if version != present:
            self._starts.append((num_tokens, version))

    def runs(self, num_tokens: int) -> tuple[VersionRun, ...]:
        """The runs of the first ``num_tokens``; of none, one empty run of the newest version."""
        ends = [start for start, _ in self._starts[1:]] + [num_tokens]
        runs = [
            VersionRun(policy_version=version, num_tokens=min(end, num_tokens) - start)
            for (start, version), end in zip(self._starts, ends, strict=True)
            if min(end, num_tokens) > start
        ]
        return tuple(runs) or (VersionRun(policy_version=self._starts[-1][1], num_tokens=0),)
