"""Measure loops with a wheel and without: `python -m benches.python.loops`, from the repository's folder.

Writes `build/bench/asyncio.json` for the report, and prints a table; see `../suite.py` for the options. The packages of
the other sides are in requirements-bench.txt.
"""

import sys

from benches.python.suite import main

from .sides import SIDES
from .works import WORKS

if __name__ == "__main__":
    packages = ["tickwheel", "uvloop", "aiohttp"]
    sys.exit(main(__package__ or "", "asyncio", WORKS, list(SIDES), packages))
