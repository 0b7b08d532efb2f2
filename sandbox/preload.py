"""The standard library's modules that solutions import most, loaded once so that a child finds them warm.

Changes nothing else: any other module of the standard library can still be imported, at its cost.
Called by the zygote.
"""

from __future__ import annotations

import bisect
import collections
import copy
import datetime
import decimal
import fractions
import functools
import heapq
import itertools
import json
import math
import operator
import random
import re
import statistics
import string
import typing
from typing import Final

PRELOADED: Final = (
    bisect,
    collections,
    copy,
    datetime,
    decimal,
    fractions,
    functools,
    heapq,
    itertools,
    json,
    math,
    operator,
    random,
    re,
    statistics,
    string,
    typing,
)
