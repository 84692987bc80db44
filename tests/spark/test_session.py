"""A Spark session: which one it is, what is in force in it, and that it leaves cores to other processes."""

import os
import subprocess
import sys
from typing import Any

import pytest

from tickwheel.delivery import WrongUsage
from tickwheel.spark import HOLD_SETTINGS, laptop_session, spark_session
from tickwheel.spark.session import _on_fewer_cores

pytestmark = pytest.mark.timeout(120)

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


@pytest.mark.parametrize(
    "arguments",
    ["--master spark://h:7077 pyspark-shell", "--conf spark.master=spark://h:7077 x", "--master=spark://h:7077"],
)
def test_a_session_for_a_laptop_is_refused_where_a_master_is_set__S1(
    arguments: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyspark.SparkContext._active_spark_context", None)
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", arguments)
    with pytest.raises(WrongUsage, match=r"the master that is set is spark://h:7077: call spark_session\(\) instead"):
        laptop_session()


def test_the_session_that_there_is_is_taken_and_has_what_the_hold_needs__S1_S2(session: Any) -> None:
    provider = "spark.sql.streaming.stateStore.providerClass"
    session.conf.unset(provider)
    taken = spark_session()
    assert taken.sparkContext is session.sparkContext
    assert taken.conf.get(provider) == HOLD_SETTINGS[provider]


def test_a_handler_of_sigint_that_the_program_has_set_stays__D13() -> None:
    script = """
import signal
from tickwheel.spark import laptop_session
signal.signal(signal.SIGINT, lambda *_: print("own"))
session = laptop_session()
signal.raise_signal(signal.SIGINT)
session.stop()
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=100)
    assert done.stdout == "own\n"


def test_what_spark_writes_at_every_start_is_not_shown_and_all_else_is__D13() -> None:
    lines = (
        "WARNING: Using incubator modules: x", "", "one", "", "Setting default log level to WARN", "", "two",
        "Streaming TransformWithStateInPandas Python worker y", "", "", "no newline",
    )  # fmt: skip
    code = """
import subprocess, sys, threading
from tickwheel.spark.session import quiet_start
noisy = [sys.executable, "-c", "import sys; sys.stderr.write(sys.argv[1])", sys.argv[1]]
with quiet_start():
    started = subprocess.Popen(noisy)
print("own", file=sys.stderr, flush=True)
started.wait()
[it.join() for it in threading.enumerate() if it.name == "quiet-start"]
"""
    command = [sys.executable, "-c", code, "\n".join(lines)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=110)
    assert sorted(line for line in done.stderr.split("\n") if line) == ["no newline", "one", "own", "two"], done.stderr
