"""Measure one work on one side, and print the figure as JSON; `benches/python/suite.py` starts it.

python -m benches.kafka.measure insert tickwheel 1000000 1.0
"""

import json
import subprocess
import sys

from .build import PEERS, class_path, tool
from .works import JVM, NOTES, TICKWHEEL, WARM_UP_ROUNDS, WHEEL, WORKS

DRIVER = "org.apache.kafka.server.util.timer.KafkaTimer"


def main(work_name: str, side: str, count: int, warm_up_rounds: int = WARM_UP_ROUNDS) -> None:
    work = next(work for work in WORKS if work.name == work_name)
    if side == TICKWHEEL:
        command = [str(PEERS), "one", work.name, side, "--count", str(count // work.times)]
    else:
        java = [tool("java"), *JVM, "-cp", class_path(), DRIVER]
        command = [*java, work.java, "wheel" if side == WHEEL else "timer", str(count), str(warm_up_rounds)]
    printed = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    print(json.dumps({"figures": {work.name: float(printed.splitlines()[0])}, "note": NOTES[side]}))


if __name__ == "__main__":
    work_name, side, count, _ = sys.argv[1:]
    main(work_name, side, int(count))
