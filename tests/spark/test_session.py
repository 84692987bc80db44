"""A Spark session leaves cores to other processes on the same machine."""

import os
import subprocess
import sys

import pytest

from tickwheel.spark.session import _on_fewer_cores

pytestmark = pytest.mark.timeout(60)

CORES = os.sched_getaffinity(0)


def cores_of_a_child() -> set[int]:
    script = "import os; print(*os.sched_getaffinity(0))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return {int(core) for core in done.stdout.split()}


@pytest.mark.skipif(len(CORES) < 2, reason="one core can't be divided")
def test_what_is_started_keeps_off_a_core_and_this_process_has_all_again() -> None:
    with _on_fewer_cores(1):
        theirs = cores_of_a_child()
    assert len(theirs) == len(CORES) - 1
    assert theirs < CORES
    assert os.sched_getaffinity(0) == cores_of_a_child() == CORES


def test_where_no_core_would_be_left_all_are_used() -> None:
    for spare in (0, len(CORES), len(CORES) + 5):
        with _on_fewer_cores(spare):
            assert cores_of_a_child() == CORES
