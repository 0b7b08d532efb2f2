"""Does this answer still have a chance to compile? Asked while it is written, at the ends of its lines.

A completion whose program cannot compile, however it goes on, earns the constant reward of a syntax
failure; what it would still write costs time and changes nothing of that. ``AnswerWatch`` follows one
answer and says when that point is reached. It never says so too early:

- It judges only what rewards.extract takes for the program for certain: the code block that an answer
  opens with, by a fence of language Python and by a line at column 0. Before it there may be reasoning
  (``<think>``) that has ended. Everything else it lets pass: other text may be reasoning too, opened by
  the chat template, and a block in it is no answer.
- A program is judged by its whole lines. CPython's parser reads tokens one at a time and always goes the
  same way for the same tokens; if it gives up before it has asked for a token behind the last of them,
  it gives up on every continuation. That is what ``PyCF_ALLOW_INCOMPLETE_INPUT`` tells apart: an error met
  at the end of the input is reported as "incomplete input", and is no reason to end anything.
- Of what the compiler would find behind the parser only that counts which rewards.syntax counts too and no
  later line can mend: a ``return`` outside of a function, say.

**What it does to the gradient.** Let an answer y be ended after its token k, where the tokens up to k decide
that its reward is the constant of a syntax failure, so that its advantage A does not depend on what would
follow. The gradient of the step loses the terms A * grad log pi(y_t | y_<t) of t > k. Given y_<t each has the
mean 0, so where tokens are weighted by a constant (``grpo.loss_type`` dr_grpo) the expected gradient is the
same as without. Where the weights depend on lengths it is not: with grpo the tokens up to k are weighted by
1/k instead of 1/|y|, with dapo and bnpo the denominator of the step shrinks by the tokens saved. Answers that
would have hit the length limit also come into the loss under ``mask_truncated_completions``. Hence
approximate. tests/pipeline/generation/test_early_abort_gradient.py holds all of this against an exact
enumeration. It ends nothing itself.

**What it saves and costs.** The engine watches every answer while it is written; what that costs is measured
on every few completions, by watching them once more. What it saves is an estimate (``AbortAccount``) at the
seconds that a token has cost the engine on average. Where the cost is larger, early abort ends until a
resume, or until the trainer is started again (``AbortBalance``).
"""

from __future__ import annotations

import codeop
import statistics
import time
from collections import deque
from collections.abc import Callable

from pipeline.messages import Completion
from rewards.extract import ENDS_REASONING, FENCE, OPENS_REASONING, PYTHON_LANGUAGES
from rewards.syntax import MAX_SOURCE_BYTES, check_syntax, find_misplaced
from sandbox.job import parse

_INCOMPLETE = "incomplete input"
# The type stubs lack it.
_ALLOW_INCOMPLETE = codeop.PyCF_ALLOW_INCOMPLETE_INPUT  # type: ignore[attr-defined]
_UNTERMINATED = ("unterminated string literal", "unterminated f-string literal")
# Between two checks the program grows by this share, so that long answers cost little.
_GROWTH = 1 / 16
_NUM_REMEMBERED = 512  # lengths, for the estimate
_LEAST, _EVERY = 128, 4


class AnswerWatch:
    """Follows the text of one answer as it grows."""

    def __init__(self, prefill: str) -> None:
        """``prefill`` opens the answer; the completion's text follows it."""
        self._rest = ""  # the line that is not finished yet
        self._body: list[str] | None = None  # the lines of the program; None before its fence
        self._next_check = 1
        self._is_reasoning = self._has_reasoned = False
        self._is_over = False  # nothing can be told any more, or all has been
        self.is_hopeless = False
        self.feed(prefill)

    def feed(self, text: str) -> bool:
        """Take the next piece of the answer; returns whether its program can no longer compile."""
        if self._is_over:
            return self.is_hopeless
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            if not self._is_over:
                self._take(line)
        if self._body and not self._is_over and len(self._body) >= self._next_check:
            self._next_check = len(self._body) + 1 + int(len(self._body) * _GROWTH)
            self._is_over = self.is_hopeless = is_hopeless(_program(self._body))
        return self.is_hopeless

    def _take(self, line: str) -> None:
        fence = FENCE.match(line)
        if self._is_reasoning:
            self._is_reasoning = ENDS_REASONING.search(line) is None
        elif self._body is not None and any(part.strip() for part in self._body):
            if fence is None:
                self._body.append(line)
            else:
                # The block is closed: the program is known.
                self._is_over = True
                self.is_hopeless = check_syntax(_program(self._body)).score == 0.0
        elif fence is not None:
            # The first fence, or one in a block that is still empty: either opens the block. One without a
            # name may be no program's.
            self._body = []
            self._is_over = fence.group(1).lower() not in PYTHON_LANGUAGES - {""}
        elif self._body is not None:
            self._body.append(line)
            # It may be the continuation of a function head that the prompt gave.
            self._is_over = line[:1] in (" ", "\t") and bool(line.strip())
        elif line.strip():
            # Nothing but reasoning, once, may come before the block.
            self._is_over = self._has_reasoned or not line.lstrip().startswith(OPENS_REASONING)
            self._is_reasoning, self._has_reasoned = ENDS_REASONING.search(line) is None, True


def _program(body: list[str]) -> str:
    return "".join(f"{line}\n" for line in body)


def is_hopeless(lines: str) -> bool:
    """Whether no program that begins with ``lines`` (whole lines, the last one ended) compiles.

    False where that is not certain.
    """
    assert lines.endswith("\n")
    if len(lines) > MAX_SOURCE_BYTES:
        return True
    if lines.endswith(("\\\n", "\\\r\n")):
        # The next line belongs to this one.
        return False
    wrong = _what_is_wrong(lines, _ALLOW_INCOMPLETE)
    if wrong == _INCOMPLETE:
        # A string of one quote that was not closed in its line is "incomplete" as well.
        return _what_is_wrong(lines, 0).startswith(_UNTERMINATED)
    return bool(wrong)


def _what_is_wrong(lines: str, flags: int) -> str:
    """What stands against ``lines``, or an empty string."""
    try:
        return find_misplaced(parse(lines, flags))
    except SyntaxError as error:
        return error.msg
    except (ValueError, OverflowError, RecursionError, MemoryError):
        # Such an error need not say that every continuation has it.
        return ""


class AbortAccount:
    """Counts what early abort ended and estimates what it saved.

    What an aborted completion would still have written nobody knows. It is taken to be what completions
    that were not aborted had left at that length, on average over the last few hundred that got that
    far; nothing, if none did.
    """

    def __init__(self) -> None:
        self._lengths: deque[int] = deque(maxlen=_NUM_REMEMBERED)
        self._num_aborted = 0
        self._num_tokens_saved = 0.0

    def record(self, completion: Completion) -> float:
        """Count one completion; the tokens that ending it has saved."""
        length = len(completion.token_ids)
        if completion.finish_reason != "abort":
            self._lengths.append(length)
            return 0.0
        left = [other - length for other in self._lengths if other > length]
        num_saved = statistics.fmean(left) if left else 0.0
        self._num_aborted += 1
        self._num_tokens_saved += num_saved
        return num_saved

    def drain(self) -> dict[str, float]:
        """The metrics since the last ``drain()``."""
        counts = {
            "generation/aborted": float(self._num_aborted),
            "generation/tokens_saved": self._num_tokens_saved,
        }
        self._num_aborted, self._num_tokens_saved = 0, 0.0
        return counts


class AbortBalance:
    """``pays`` says whether answers are still to be watched; once it is False it stays so."""

    def __init__(
        self,
        prefill: str,
        *,
        least: int = _LEAST,
        every: int = _EVERY,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Nothing is decided before ``least`` completions; one in ``every`` is watched again."""
        assert least > 0 and every > 0
        self._prefill = prefill
        self._least = least
        self._every = every
        self._clock = clock
        self._num_seen = 0
        self._cost_s = 0.0
        self._saved_s = 0.0
        self.pays = True

    def record(self, completion: Completion, saved_s: float) -> str | None:
        """Count a completion that was watched; ``saved_s`` is what ending it has saved the engine.

        Returns, once, in words, that watching does not pay.
        """
        if not self.pays:
            return None
        self._saved_s += saved_s
        if self._num_seen % self._every == 0:
            self._cost_s += self._every * self._watch(completion)
        self._num_seen += 1
        if self._num_seen < self._least or self._cost_s <= self._saved_s:
            return None
        self.pays = False
        return (
            f"early abort is turned off: over {self._num_seen} completions watching cost "
            f"{self._cost_s:.2f} s and saved tokens of {self._saved_s:.2f} s (acceleration.early_abort)"
        )

    def _watch(self, completion: Completion) -> float:
        """Seconds to watch the answer as the engine did, a token at a time."""
        text, num = completion.text, max(1, len(completion.token_ids))
        size = max(1, -(-len(text) // num))
        started = self._clock()
        watch = AnswerWatch(self._prefill)
        for start in range(0, len(text), size):
            if watch.feed(text[start : start + size]):
                break
        return self._clock() - started
