"""Commands about tasks.

python -m curriculum audit TASKS      what a task set is worth
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from configs.command_line import USER_ERROR


def main(argv: Sequence[str] | None = None) -> int:
    """Run the verb that comes first; returns its exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    if not words or words[0] in ("-h", "--help"):
        print("usage: python -m curriculum audit TASKS ...; audit --help says more")
        return 0
    if words[0] != "audit":
        print(f"error: {words[0]!r} is not a verb; allowed: audit", file=sys.stderr)
        return USER_ERROR
    from curriculum.audit.command import main as audit

    return audit(words[1:])


if __name__ == "__main__":
    sys.exit(main())
