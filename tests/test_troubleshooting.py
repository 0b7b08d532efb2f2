"""docs/troubleshooting.md lists what the program says, in the program's words."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
ROWS = re.findall(
    r"^\| (`.*?) \|", (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8"), re.MULTILINE
)
# Said by the system, not by us.
OF_THE_SYSTEM = {"Read-only file system", "No space left"}
# A text may be broken in the source where it is too long for a line, or where a value stands in it.
_BREAK = re.compile(r"\"\s+f?\"|[{][^{}]*[}]")


def test_every_message_of_the_table_is_in_the_source() -> None:
    packages = ("configs", "sandbox", "curriculum", "rewards", "pipeline")
    files = [path for package in packages for path in (ROOT / package).rglob("*.py")]
    source = _BREAK.sub("", "\n".join(path.read_text(encoding="utf-8") for path in files))
    words = {word for row in ROWS for word in re.findall(r"`(.+?)`", row)} - OF_THE_SYSTEM
    assert len(words) > 25
    assert sorted(word for word in words if word not in source) == []
