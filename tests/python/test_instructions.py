"""No operation of the timer takes more instructions than before: a check that a busy machine does not disturb.

`benches/instructions` describes what is counted, and how to renew the counts.
"""

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COUNTS = ROOT / "benches/instructions/counts.toml"
MORE = 1.05
"""The allowed growth: a change elsewhere may make the compiler arrange the code a little differently."""


@pytest.mark.timeout(600)  # the first time it builds the crate
def test_no_operation_takes_more_instructions_than_it_did():
    if shutil.which("valgrind") is None:
        problem = "valgrind, which counts the instructions, is missing: install it"
        if os.environ.get("CI") == "true":
            pytest.fail(problem)
        pytest.skip(problem)
    done = subprocess.run([sys.executable, "-m", "benches.instructions"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    before, now = tomllib.loads(COUNTS.read_text()), tomllib.loads(done.stdout)
    assert before["instructions"].keys() == now["instructions"].keys()
    worse = {
        operation: f"{count} instructions, and {before['instructions'][operation]} before"
        for operation, count in now["instructions"].items()
        if count > before["instructions"][operation] * MORE
    }
    assert not worse, (
        f"{worse}; counted with rustc {now['rustc']}, and {before['rustc']} before: "
        f"if rustc or a worthwhile change is the reason, renew the counts as described in {COUNTS.name}"
    )
