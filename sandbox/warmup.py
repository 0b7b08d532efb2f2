"""Runs in the zygote what its children will run, before the first fork.

The interpreter adapts code as it runs (PEP 659) and makes caches on the way. Each such write in a child
is a page to be copied; done here once, no child does it again. Runs none of the model's code.
"""

from __future__ import annotations

import socket
import sys
from typing import Final

from sandbox import candidate, judge
from sandbox.answer import call_answer
from sandbox.cargo import pack
from sandbox.wire import send_frame

# The interpreter looks at code from its eighth call on.
_NUM_ROUNDS: Final = 20
_NUM_CALLS: Final = 4
_SOLUTION: Final = '''
from typing import List
def f(xs: List[int], n: int = 1) -> List[int]:
    """A docstring."""
    result = []
    for x in sorted(set(xs)):
        if x > 0 and x % 2 == 0:
            result.append(str(x) + f"{n}")
    return [int(text) for text in result] + list({x: n for x in xs})
'''
_CHECK: Final = "def check(candidate):\n" + "    assert candidate([1, 2]) == [21, 1, 2]\n" * _NUM_CALLS


def warm_up() -> None:
    """Play both roles with messages that lie ready; leaves no module and no descriptor behind."""
    modules, arguments = dict(sys.modules), sys.argv
    for _ in range(_NUM_ROUNDS):
        _play_candidate()
        _play_judge()
    sys.modules.clear()
    sys.modules.update(modules)
    sys.argv = arguments


def _play_candidate() -> None:
    near, far = socket.socketpair()
    with near, far:
        send_frame(near, pack((_SOLUTION, "import math\n", "f")))
        for _ in range(_NUM_CALLS):
            send_frame(near, pack((([1, 2],), {}, False)))
        near.shutdown(socket.SHUT_WR)
        candidate.serve(far)


def _play_judge() -> None:
    control, far_control = socket.socketpair()
    channel, far_channel = socket.socketpair()
    with control, far_control, channel, far_channel:
        send_frame(control, pack(("import math\n", _CHECK, "f", False)))
        for _ in range(_NUM_CALLS):
            send_frame(channel, call_answer(lambda xs: [21, 1, 2], ([1, 2],), {}, with_args=False))
        judge.serve(far_control, far_channel)
