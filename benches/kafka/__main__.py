"""Measure tickwheel and Kafka's timer in turns: `python -m benches.kafka`, from the repository's folder.

Writes `build/bench/kafka.json` for the report, and prints a table; see `benches/python/suite.py` for the options. Needs
Java 17 with javac, Maven the first time, and cargo. Without them it says what is missing, measures nothing, and is no
failure.
"""

import sys

from benches.python import suite

from . import build
from .works import SIDES, WORKS


def main() -> int:
    package = __package__ or ""
    suite.parse(package, "kafka", WORKS, SIDES)  # --help and a bad option need neither Java nor a build
    try:
        build.driver()
        build.peers()
    except build.MissingError as missing:
        print(f"Kafka's timer is not measured: {missing}", file=sys.stderr)
        return 0
    return suite.main(package, "kafka", WORKS, SIDES, ["tickwheel"], build.versions())


if __name__ == "__main__":
    sys.exit(main())
