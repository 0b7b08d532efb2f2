"""The engines of the modelled pipeline: so many completions at once, and pauses in which nothing is written.

All that are being written go at one pace, so the engine keeps one clock of work done and ends each completion
when the clock has gone on by that completion's seconds.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque

import simpy


class ModelledEngine:
    """``num_places`` places; a completion that finds none waits, in the order of asking.

    The pace is 1 where all places are taken, and ``(num_places / taken) ** spare_speed`` where fewer are: 0
    for engines whose tokens take as long in a small batch as in a large one, 1 for those that share a fixed
    rate. ``busy_s`` counts the seconds of all places at work.
    """

    def __init__(self, env: simpy.Environment, num_places: int, spare_speed: float) -> None:
        self._env = env
        self._num_places = num_places
        self._spare_speed = spare_speed
        self._waiting: deque[tuple[float, simpy.Event]] = deque()
        self._written: list[tuple[float, int, simpy.Event]] = []  # heap: clock at its end, number, event
        self._numbers = itertools.count()
        self._work_s = 0.0
        self._seen_s = 0.0
        self._num_pauses = 0
        self._num_alarms = 0
        self.busy_s = 0.0

    def write(self, seconds: float) -> simpy.Event:
        """An event at the end of a completion that takes ``seconds`` in a full engine."""
        done = self._env.event()
        self._advance()
        self._waiting.append((seconds, done))
        self._go_on()
        return done

    def pause(self) -> None:
        """Stand still until ``resume``."""
        self._advance()
        self._num_pauses += 1
        self._go_on()

    def resume(self) -> None:
        """Go on where ``pause`` came."""
        self._advance()
        self._num_pauses -= 1
        self._go_on()

    def settle(self) -> None:
        """Bring ``busy_s`` up to now."""
        self._advance()

    @property
    def _pace(self) -> float:
        if self._num_pauses or not self._written:
            return 0.0
        return float((self._num_places / len(self._written)) ** self._spare_speed)

    def _advance(self) -> None:
        elapsed_s, pace = self._env.now - self._seen_s, self._pace
        self._work_s += pace * elapsed_s
        if pace > 0.0:
            self.busy_s += elapsed_s * len(self._written)
        self._seen_s = self._env.now

    def _go_on(self) -> None:
        """Give free places away, and wake up when the next completion ends."""
        while self._waiting and len(self._written) < self._num_places:
            seconds, done = self._waiting.popleft()
            heapq.heappush(self._written, (self._work_s + seconds, next(self._numbers), done))
        self._num_alarms += 1
        if (pace := self._pace) > 0.0:
            left_s = max(0.0, self._written[0][0] - self._work_s) / pace
            alarm = self._env.timeout(left_s, value=self._num_alarms)
            assert alarm.callbacks is not None
            alarm.callbacks.append(self._ring)

    def _ring(self, alarm: simpy.Event) -> None:
        """The next completion ends, unless something has changed since the alarm was set."""
        if alarm.value != self._num_alarms:
            return
        self._advance()
        ends, _, done = heapq.heappop(self._written)
        # Rounding of the clock shall not leave it a moment short of an end.
        self._work_s = max(self._work_s, ends)
        done.succeed()
        self._go_on()
