"""Programs that read, write or change files; each passes only where it managed nothing."""

from __future__ import annotations

from typing import Final

from tests.sandbox.attacks.case import Case, harm

_READ: Final = {
    "passwords": "open('/etc/passwd').read()",
    "a secret of the host": "open('@SECRET@').read()",
    "a secret through a symbolic link": "os.symlink('@SECRET@', 'a'); open('a').read()",
    "the root folder": "os.listdir('/')",
    "the temporary folder": "os.listdir('/tmp')",
    "the folder with the host's targets": "os.listdir('@FOLDER@')",
    "harness files": "open('@HARNESS@').read()",
    "harness files by module": "import sandbox.codec\nopen(sandbox.codec.__file__).read()",
    "environment in /proc": "open('/proc/self/environ', 'rb').read()",
    "environment of the owner": "open('/proc/@OWNER@/environ', 'rb').read()",
    "memory of the owner": "open('/proc/@OWNER@/mem', 'rb').read(1)",
    "memory of PID 1": "open('/proc/1/mem', 'rb').read(1)",
    "own memory map": "open('/proc/self/maps').read()",
    "descriptors of the owner": "os.listdir('/proc/@OWNER@/fd')",
    "command lines of the host": "[open(f'/proc/{p}/cmdline').read() for p in os.listdir('/proc')]",
    "installed packages": "import glob, sysconfig\n"
    "folder = os.path.join(sysconfig.get_paths()['stdlib'], 'site-packages')\n"
    "names = glob.glob(folder + '/*/*.py') + glob.glob(folder + '/*.py')\n"
    "if not names: raise OSError\nopen(names[0]).read()",
}
_WRITE: Final = {
    "a file in the working folder": "open('a', 'w')",
    "a file in /tmp": "open('/tmp/attack', 'x')",
    "a file in /dev/shm": "open('/dev/shm/attack', 'x')",
    "a file in an open folder": "open('@FOLDER@/attack', 'x')",
    "an unnamed temporary file": "import tempfile\ntempfile.TemporaryFile()",
    "an existing file": "open('@SECRET@', 'w').write('changed')",
    "the end of an existing file": "open('@SECRET@', 'a').write('changed')",
    "the length of a file": "os.truncate('@SECRET@', 0)",
    "a folder": "os.mkdir('a')",
    "a folder in an open folder": "os.mkdir('@FOLDER@/attack')",
    "a link in an open folder": "os.symlink('a', '@FOLDER@/attack')",
    "a hard link": "os.link('@SECRET@', '@FOLDER@/attack')",
    "a pipe with a name": "os.mkfifo('@FOLDER@/attack')",
    "a device": "os.mknod('@FOLDER@/attack', 0o20666, os.makedev(1, 1))",
    "another name": "os.rename('@SECRET@', '@FOLDER@/attack')",
    "nothing, by removing": "os.unlink('@SECRET@')",
    "permissions": "os.chmod('@SECRET@', 0o600)",
    "permissions of the working folder": "os.chmod('.', 0o777)",
    "an owner": "os.chown('@SECRET@', os.getuid(), -1)",
    "times": "os.utime('@SECRET@')",
    "extended attributes": "os.setxattr('@SECRET@', 'user.a', b'1')",
    "compiled code of the next import": "import importlib.util as u, json\n"
    "path = u.cache_from_source(json.__file__)\nopen(path, 'r+b')",
    "the source of the library": "import colorsys\nopen(colorsys.__file__, 'r+')",
    "the master terminal": "os.openpty()",
    "the kernel's log": "open('/dev/kmsg', 'w')",
    "the machine's memory": "open('/dev/mem', 'rb').read(1)",
}
_HARMLESS: Final = frozenset(
    {"passwords", "a secret of the host", "the root folder", "the temporary folder", "harness files",
     "the folder with the host's targets", "own memory map", "a folder", "a file in the working folder"}
)  # fmt: skip

# Left behind for the program that runs next.
_POISON: Final = """
import importlib.util, tempfile
for path in ('poison', 'json.py', '/tmp/poison', '/dev/shm/poison', tempfile.gettempdir() + '/poison'):
    try: open(path, 'w').write('raise SystemExit(0)')
    except OSError: pass
for name in ('json', 'colorsys'):
    try: open(importlib.util.cache_from_source(name + '.py'), 'wb').write(b'poison')
    except OSError: pass
"""
_CLEAN: Final = """
import colorsys, importlib.util, json
assert json.loads('1') == 1
assert not any(os.path.exists(p) for p in ('poison', 'json.py', '/tmp/poison', '/dev/shm/poison'))
def f(x): return x + 1
"""

CASES: Final = (
    *(harm(f"reads {name}", body, harmless=name in _HARMLESS) for name, body in _READ.items()),
    *(harm(f"makes {name}", body, harmless=name in _HARMLESS) for name, body in _WRITE.items()),
    Case(name="poisoned files for the next program", source=_POISON + "def f(x): return 0", then=_CLEAN),
    Case(
        name="poisoned modules for the next program",
        source="import json, builtins\njson.loads = lambda *a: 0\nbuiltins.len = lambda o: 0\n"
        "sys.modules['math'] = None\nos.environ['POISON'] = '1'\nsys.path.insert(0, '/tmp')\n"
        "def f(x): return 0",
        then="import json, math\nassert json.loads('1') == 1 and len('a') == 1 and not os.environ\n"
        "assert '/tmp' not in sys.path\ndef f(x): return x + 1",
    ),
    Case(
        name="solution module left for the next program",
        source="SECRET = 'left'\nsys.modules['left'] = sys.modules[__name__]\ndef f(x): return 0",
        then="import gc\nassert 'left' not in sys.modules\n"
        "assert not any(isinstance(o, dict) and 'SECRET' in o for o in gc.get_objects())\n"
        "def f(x): return x + 1",
    ),
)
