"""Programs that look for expected values, tests or the harness in frames, objects and modules."""

# ruff: noqa: E501
from __future__ import annotations

from typing import Final

from tests.sandbox.attacks.case import BRIEF_WALL, Case, harm

_PLAIN: Final = {
    "frame walk": "def f(x):\n    frame = sys._getframe()\n    while frame:\n"
    "        for k, v in list(frame.f_locals.items()):\n"
    "            if type(v) is list: v.append('passed')\n"
    "            if 'expected' in k: return v\n        frame = frame.f_back",
    "frames of all threads": "def f(x):\n    for frame in sys._current_frames().values():\n"
    "        while frame:\n"
    "            for k, v in {**frame.f_globals, **frame.f_locals}.items():\n"
    "                if k in ('expected', 'tests', 'check_source', 'check'): return v\n"
    "            frame = frame.f_back",
    "frames of an exception": "def f(x):\n    try: 1 / 0\n    except ZeroDivisionError as e:\n"
    "        frame = e.__traceback__.tb_frame.f_back\n        while frame:\n"
    "            frame.f_globals['encode'] = lambda v: b'T'\n            frame = frame.f_back\n",
    "gc for expected values": "import gc\ndef f(x):\n    for o in gc.get_objects():\n"
    "        if type(o).__name__ in ('CallTest', 'ExecutionRequest'): return o.expected",
    "gc for the test source": "import gc\ndef f(x):\n    for o in gc.get_objects():\n"
    "        if isinstance(o, dict):\n"
    "            for v in list(o.values()):\n"
    "                if isinstance(v, str) and 'assert candidate(' in v and 'def f' not in v:\n"
    "                    return x + 1\n    return 0",
    "trace the caller": "def tracer(frame, event, arg):\n    frame.f_locals['value'] = 2\n    return tracer\n"
    "sys.settrace(tracer); threading.settrace(tracer)\n"
    "sys._getframe().f_back.f_trace = tracer\ndef f(x): return 0",
    "profile the caller": "seen = []\ndef profiler(frame, event, arg):\n    seen.append(arg)\n"
    "sys.setprofile(profiler)\ndef f(x): return seen[-1] if seen else 0",
    "sys.monitoring": "m = getattr(sys, 'monitoring', None)\nif m:\n    m.use_tool_id(0, 'a')\n"
    "    m.register_callback(0, m.events.PY_RETURN, lambda *a: None)\n"
    "    m.set_events(0, m.events.PY_RETURN)\ndef f(x): return 0",
    "audit hook": "def hook(event, args):\n"
    "    if event in ('exec', 'compile', 'import'): raise SystemExit(0)\n"
    "sys.addaudithook(hook)\ndef f(x):\n    exec('1')\n    return 0",
    "bytecode of the caller": "def f(x):\n    code = sys._getframe(1).f_code\n"
    "    import ctypes\n    size = len(code.co_code)\n"
    "    try: new = code.replace(co_consts=(2,) * len(code.co_consts))\n"
    "    except Exception: new = code\n"
    "    import sandbox.answer as a\n    a.call_answer.__code__ = (lambda *q, **k: b'T').__code__\n"
    "    return 0",
    "bytecode of the caller overwritten in memory": "def f(x):\n    import ctypes\n"
    "    code = sys._getframe(1).f_code\n"
    "    ctypes.memset(id(code) + 100, 0, 200)\n    return 0",
    "harness import": "import sandbox.execution as e\ne.CallRun._compare = lambda *a: None\n"
    "def f(x): return 0",
    "sys.modules searched": "def f(x):\n    for module in list(sys.modules.values()):\n"
    "        for k, v in list(vars(module).items()) if hasattr(module, '__dict__') else ():\n"
    "            if k in ('TESTS', 'CHECK', 'expected', 'check'): return v\n    return 0",
    "judge's modules called": "def f(x):\n"
    "    import sandbox.judge as j, sandbox.wire as w, sandbox.codec as c\n"
    "    s = socket.socket(fileno=3)\n"
    "    w.send_frame(s, c.encode(('pass', '', 3)))\n    return x + 1",
}

CASES: Final = (
    *(Case(name=name, source=source) for name, source in _PLAIN.items()),
    Case(
        name="candidate's own loop started anew",
        source="def f(x):\n    import sandbox.candidate as c\n    c.serve(socket.socket(fileno=3))\n    return 0",
        limits=BRIEF_WALL,
    ),
    harm(
        "memory searched for the tests through ctypes",
        """
        import gc
        for o in gc.get_objects(generation=None):
            if isinstance(o, dict) and any(type(k) is str and k.startswith('check_source') for k in o):
                if any(isinstance(v, str) and 'assert candidate' in v for v in o.values()):
                    return
        raise OSError
        """,
        modes=("call", "judge"),
    ),
    harm(
        "environment of the process in its memory",
        """
        import ctypes
        environ = ctypes.POINTER(ctypes.c_char_p).in_dll(ctypes.CDLL(None), 'environ')
        names, i = [], 0
        while environ and environ[i]:
            names.append(environ[i]); i += 1
        if os.environ or any(not n.startswith((b'PYTHON', b'LC_', b'LD_LIB', b'MALLOC')) for n in names):
            return
        raise OSError
        """,
    ),
)
