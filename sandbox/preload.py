"""The standard library's modules that solutions import most, loaded once so that a child finds them warm.

Any other module of the standard library can still be imported, at its cost, wherever files can be
opened; where they cannot, ``load_rest`` comes first. Each module loaded here makes every fork dearer.
"""

from __future__ import annotations

import bisect
import collections
import copy
import datetime
import functools
import heapq
import importlib
import itertools
import json
import math
import operator
import random
import re
import string
import typing
from typing import Final

PRELOADED: Final = (
    bisect,
    collections,
    copy,
    datetime,
    functools,
    heapq,
    itertools,
    json,
    math,
    operator,
    random,
    re,
    string,
    typing,
)

_REST: Final = (
    "array",
    "base64",
    "calendar",
    "cmath",
    "dataclasses",
    "decimal",
    "fractions",
    "hashlib",
    "numbers",
    "statistics",
    "textwrap",
    "traceback",
    "unittest",
    "unittest.mock",
)


def load_rest() -> None:
    """Load what else solutions and test programs are likely to import."""
    for name in _REST:
        importlib.import_module(name)
