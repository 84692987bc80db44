"""Measure tickwheel and other queues in turns: `python -m benches.queues`, from the repository's folder.

Writes `build/bench/queues.json` for the report, and prints a table; see `benches/python/suite.py` for the options. A
queue whose server or language this machine lacks is left out, and named.
"""

import sys

from benches.python import suite

from . import build
from .sides import SIDES
from .works import WORKS


def main() -> int:
    """Exit code 1 if a side failed at a work."""
    package = __package__ or ""
    suite.parse(package, "queues", WORKS, [side.name for side in SIDES])  # --help and a bad option build nothing
    build.all_that_can_be()
    names = [side.name for side in SIDES if not side.missing]
    for side in SIDES:
        if side.missing:
            print(f"{side.name} is not measured: {side.missing} is missing", file=sys.stderr)
    packages = dict.fromkeys(side.package for side in SIDES if side.package)
    return suite.main(package, "queues", WORKS, names, packages, build.versions())


if __name__ == "__main__":
    sys.exit(main())
