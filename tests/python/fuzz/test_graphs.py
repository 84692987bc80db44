"""Random graphs of timers, tasks and purgatories, dropped and collected at random moments (T7, T10, T11, rule 8).

Each run is a process of its own: a fault here is a crash or a hang as often as a wrong count. By default a run takes a
second; `TICKWHEEL_FUZZ_SECONDS=60` goes on for so long in total, a failure names its seed, and `TICKWHEEL_FUZZ_SEED=N`
runs that case alone and tells its steps. `cases.py` says what must hold after each case. The cases are the same each
time, so that a change is what makes one fail; those of `make soak` are new ones.
"""

import os
import secrets
import signal
import subprocess
import sys
from pathlib import Path

import pytest

SECONDS = float(os.environ.get("TICKWHEEL_FUZZ_SECONDS", "0"))
SEED = os.environ.get("TICKWHEEL_FUZZ_SEED")
RUNS = {"plain": [], "dev": ["-X", "dev"], "always": []}
"""`always`: the collector runs at every allocation that it may run at."""
FIRST = {"plain": 5_000_000, "dev": 5_000_000, "always": 6_000_000}
LEAST_S = 0.7
GRACE_S = 120
"""For the start, the last case and the end of a process, on a machine that is busy with other work."""

pytestmark = pytest.mark.timeout(2 * GRACE_S + SECONDS)


@pytest.mark.parametrize("run", RUNS)
def test_a_graph_of_timers_calls_all_it_owes_and_then_goes__T7_T10_T11_rule8(run: str) -> None:
    seconds = max(LEAST_S, SECONDS / len(RUNS))
    first = secrets.randbits(32) if os.environ.get("TICKWHEEL_SOAK") else FIRST[run]
    wanted = [SEED] if SEED else [str(first), str(seconds), *(["1"] if run == "always" else [])]
    process = subprocess.Popen(
        [sys.executable, "-W", "error", *RUNS[run], "-m", "fuzz", *wanted],
        cwd=Path(__file__).parents[1],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        out, err = process.communicate(timeout=seconds + GRACE_S)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGABRT)  # it says where every thread stands
        out, err = process.communicate()
        err = f"hung\n{err}"
    cases = [line.split()[1] for line in out.splitlines() if line.startswith("case ")]
    if process.returncode or err:
        begins = err.strip().partition("\n")[0]  # the summary of a run has this line alone
        seen = f"rc {process.returncode}, TICKWHEEL_FUZZ_SEED={''.join(cases[-1:])}: {begins}"
        pytest.fail(f"{seen}\n{out[-1500:]}\n{err[-12_000:]}", pytrace=False)
