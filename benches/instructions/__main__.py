"""Count the instructions of the timer's operations: `python -m benches.instructions`, from the repository's folder.

Prints the instructions of one operation of each kind, in the format of `counts.toml`, with which
`tests/python/test_instructions.py` compares later ones. The counts do not depend on a clock, so they are right on a
busy machine too. They depend on the compiler, so its version is written beside them.

iai-callgrind, now gungraun, does the same. But it needs a runner of exactly its own version, which is installed
separately, and every build of the tests would build its library too. callgrind alone is enough here. For times see
`benches/timer.rs` and `benches/peers`. That an entry takes 32 bytes is asserted in `src/wheel/slab/tests.rs`.
"""

import os
import re
import subprocess
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
CRATE: Final = ROOT / "benches/instructions"
TARGET: Final = ROOT / "target/instructions"
OPERATIONS: Final = ("add", "cancel", "cancel_many", "reschedule", "fire", "fire_dense")
HEADER: Final = """\
# Instructions for one operation; the test lets 5 % more pass. After a change that is worth it, or with another rustc:
#     .venv/bin/python -m benches.instructions > benches/instructions/counts.toml
"""


def main() -> None:
    build()
    counts = [f"{operation} = {count(operation):.1f}" for operation in OPERATIONS]
    print(HEADER, f'rustc = "{rustc()}"', "", "[instructions]", *counts, sep="\n")


def build() -> None:
    command = ["cargo", "build", "--release", "--locked", "--quiet", "--manifest-path", str(CRATE / "Cargo.toml")]
    subprocess.run(command, env=os.environ | {"CARGO_TARGET_DIR": str(TARGET)}, check=True)


def count(operation: str) -> float:
    """The instructions of one operation."""
    valgrind = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", "--toggle-collect=*counted*"]
    command = [*valgrind, str(TARGET / "release/instructions"), operation]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    collected = re.search(r"Collected : (\d+)", done.stderr)
    if done.returncode or not collected or collected[1] == "0":
        raise SystemExit(f"{' '.join(command)} counted nothing:\n{done.stderr}")
    return int(collected[1]) / int(done.stdout)


def rustc() -> str:
    """The version of the compiler."""
    return subprocess.run(["rustc", "--version"], capture_output=True, text=True, check=True).stdout.split()[1]


if __name__ == "__main__":
    main()
