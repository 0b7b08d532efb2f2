"""Rewards and feedback that users write: functions that the configuration names.

A reward has TRL's signature:

    def short_code(prompts, completions, code, **columns):      # or async def
        return [1.0 if len(program) < 500 else 0.0 for program in code]

    rewards: {custom: ["my_rewards:short_code"]}

Functions are called with keywords whose values are lists of length one, because completions are scored
one by one: ``prompts``, ``completions`` and the columns ``task_id``, ``entry_point``, ``code`` (the
extracted program), ``source``, ``family``, ``difficulty`` and ``reference``. They return a list of one
item: a number, or None for no opinion.

Feedback is on one answer, so its keywords are single values:

    def hint(feedback, outcome, **columns):
        return f"{feedback} Read the task once more." if outcome == "wrong" else None

    rollouts: {max_turns: 2, custom_feedback: "my_feedback:hint"}

``feedback`` is what ``rollouts.feedback`` says of the answer, ``outcome`` and ``detail`` its verdict,
``prompt`` and ``completion`` its texts; the others are those of a reward. It returns the text, or None for
``feedback`` as it is.
"""

from __future__ import annotations

from collections.abc import Sequence

from curriculum.task import Task
from rewards.result import RewardResult, infra_error
from rewards.user_function import DEFAULT_TIMEOUT_S, UserFunction, load_functions, shown

_FIELD = "rewards.custom"
_LARGEST = 1e30  # the squares of advantages are finite
_EXAMPLE = Task(task_id="example", prompt="", entry_point="f", check_source="")


class CustomReward:
    """One function of the user's that gives a reward."""

    def __init__(self, function: UserFunction) -> None:
        self._function = function
        self.name = function.spec.rpartition(":")[2]
        self.fingerprint = function.fingerprint
        self.close = function.close

    def score(self, task: Task, text: str, code: str) -> float | None:
        """What the function gives for ``text`` (prefill and completion), whose program is ``code``.

        None is no opinion: it leaves this reward out. Raises UserFunctionError when the function raises,
        returns anything but one finite number or None, or takes longer than the deadline.
        """
        returned = self._function(task.task_id, _columns(task, text, code))
        try:
            values = list(returned)  # type: ignore[call-overload]
        except Exception:
            raise self._function.error(f"returned {shown(returned)}, not a list", task.task_id) from None
        if len(values) != 1:
            raise self._function.error(f"returned {len(values)} rewards for 1 completion", task.task_id)
        (value,) = values
        if value is None:
            return None
        number = _as_number(value)
        if number is None:
            fault = f"returned [{shown(value)}], not a number or None"
            raise self._function.error(fault, task.task_id)
        if not abs(number) <= _LARGEST:
            fault = f"returned [{number}], not a finite number from {-_LARGEST:g} to {_LARGEST:g}"
            raise self._function.error(fault, task.task_id)
        return number


class CustomFeedback:
    """The function ``spec`` of the user's that makes feedback, given in the setting ``field``.

    Raises ConfigError as ``load_functions``. Not for several threads at once.
    """

    def __init__(
        self, spec: str, timeout_s: float = DEFAULT_TIMEOUT_S, field: str = "rollouts.custom_feedback"
    ) -> None:
        keywords = _verdict_columns(_EXAMPLE, "", "", infra_error("", 0.0), "")
        (self._function,) = load_functions(field, [spec], timeout_s, keywords)
        self.fingerprint = self._function.fingerprint

    def tell(self, task: Task, text: str, code: str, result: RewardResult, feedback: str) -> str:
        """What the function makes of ``feedback`` on the answer ``text``, which was scored ``result``.

        Raises UserFunctionError when it raises, returns anything but text or None, or takes too long.
        """
        said = self._function(task.task_id, _verdict_columns(task, text, code, result, feedback))
        if said is not None and not isinstance(said, str):
            raise self._function.error(f"returned {shown(said)}, not a text or None", task.task_id)
        try:
            (said or "").encode("utf-8")
        except UnicodeEncodeError as error:
            # Such as half of a surrogate pair, which no tokenizer takes.
            raise self._function.error(f"returned a text that is no UTF-8: {error}", task.task_id) from None
        return feedback if said is None else said


def load_custom(specs: Sequence[str], timeout_s: float = DEFAULT_TIMEOUT_S) -> tuple[CustomReward, ...]:
    """The custom rewards that ``specs`` name; raises ConfigError as ``load_functions``."""
    functions = load_functions(_FIELD, specs, timeout_s, _columns(_EXAMPLE, "", ""))
    return tuple(CustomReward(function) for function in functions)


def _columns(task: Task, text: str, code: str) -> dict[str, list[object]]:
    """The keywords of one call, each a list of length one."""
    return {
        "prompts": [task.prompt],
        "completions": [text],
        "task_id": [task.task_id],
        "entry_point": [task.entry_point],
        "code": [code],
        "source": [task.source],
        "family": [task.family],
        "difficulty": [task.difficulty],
        "reference": [task.reference],
    }


def _verdict_columns(
    task: Task, text: str, code: str, result: RewardResult, feedback: str
) -> dict[str, object]:
    """The keywords of one call for feedback."""
    columns: dict[str, object] = {name: value for name, (value,) in _columns(task, text, code).items()}
    columns["prompt"], columns["completion"] = columns.pop("prompts"), columns.pop("completions")
    return {**columns, "feedback": feedback, "outcome": str(result.outcome), "detail": result.detail}


def _as_number(value: object) -> float | None:
    """``value`` as a float, numpy's and torch's numbers too; None for text and all else."""
    if isinstance(value, str | bytes):
        return None
    try:
        return float(value)  # type: ignore[arg-type]
    except Exception:  # Whatever its __float__ raises.
        return None
