"""Measure tickwheel's timer and the other ones: `python -m benches.python.timers`, from the repository's folder.

Writes `build/bench/python.json` for the report, and prints a table. A run of only some works or sides writes nothing
without `--output`, so that it does not replace a complete run. The packages of the other sides are in
requirements-bench.txt. Exit code 1 if any side failed at any work; all other figures are written.
"""

import sys

from benches.python.suite import main

from .sides import PEERS
from .works import WORKS

if __name__ == "__main__":
    packages = [peer.package for peer in PEERS.values() if peer.package]
    sys.exit(main(__package__ or "", "python", WORKS, list(PEERS), packages))
