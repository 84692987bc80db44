"""`tests/conftest.py`: a test that is over its limit ends, and so do its processes; SIGINT works in the background."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(60)
FOR_ALL_TESTS = Path(__file__).parents[1] / "conftest.py"
SHARED = """
import pathlib, subprocess, sys, pytest

SLEEPER = [sys.executable, "-c", "import time; print(flush=True); time.sleep(600)"]

@pytest.fixture(scope="session")
def shared():
    with subprocess.Popen(SLEEPER, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        yield process
        assert process.poll() is None, "it was ended"
        process.kill()

def test_next(shared):
    assert shared.poll() is None
"""
HANGING = """
@pytest.mark.timeout(2)
def test_hangs(shared):
    with subprocess.Popen(SLEEPER, stdout=subprocess.PIPE) as process:  # leaving it waits for its end
        pathlib.Path("pid").write_text(str(process.pid))
        process.stdout.read()
"""
# The process that serves several tests is begun within the test, after the one that hangs.
LATE = """
@pytest.mark.timeout(2)
def test_hangs(request):
    with subprocess.Popen(SLEEPER, stdout=subprocess.PIPE) as process:
        pathlib.Path("pid").write_text(str(process.pid))
        shared = request.getfixturevalue("shared")
        process.stdout.read()
"""
CLEANING_UP = """
import time, pytest

@pytest.fixture
def slow():
    yield
    time.sleep(600)

@pytest.mark.timeout(1)
def test_hangs(slow):
    time.sleep(600)

def test_next():
    pass
"""
FORKED = """
import os, pathlib

def test_forks():
    child = os.fork()
    if child:
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 70

def test_next():
    with open("runs", "a") as file:
        file.write("once")
"""
INTERRUPTED = """
import os, signal, pytest

def test_interrupted():
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)
        signal.pause()
"""


def with_shared(hanging: str) -> str:
    """The test that hangs, and after it one that needs the same process."""
    fixture, _, after = SHARED.partition("def test_next")
    return f"{fixture}{hanging}\ndef test_next{after}"


def run(folder: Path, program: str, *, ignores_sigint: bool = False) -> str:
    (folder / "conftest.py").write_text(FOR_ALL_TESTS.read_text())
    (folder / "test_it.py").write_text(program)
    before = signal.signal(signal.SIGINT, signal.SIG_IGN) if ignores_sigint else None
    try:
        command = [sys.executable, "-m", "pytest", "-q", "--rootdir", folder, folder]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=50)
    finally:
        if before is not None:
            signal.signal(signal.SIGINT, before)
    return done.stdout + done.stderr


@pytest.mark.parametrize("hanging", [HANGING, LATE], ids=["shared before", "shared within"])
def test_a_test_over_its_limit_ends_and_so_does_its_process_but_not_a_shared_one(tmp_path: Path, hanging: str) -> None:
    said = run(tmp_path, with_shared(hanging))
    assert "1 failed, 1 passed" in said, said
    assert "error" not in said.splitlines()[-1]
    pid = int((tmp_path / "pid").read_text())
    assert f"over its time limit: ended the processes [{pid}]" in said
    assert not Path(f"/proc/{pid}").exists()


def test_a_test_that_is_over_its_limit_may_not_hang_in_its_clean_up_either(tmp_path: Path) -> None:
    said = run(tmp_path, CLEANING_UP)
    assert "1 failed, 1 passed, 1 error" in said, said


def test_a_forked_child_that_comes_back_from_its_test_runs_no_other(tmp_path: Path) -> None:
    said = run(tmp_path, FORKED)
    assert "a child that it forked came back from the test" in said
    assert (tmp_path / "runs").read_text() == "once", said


def test_sigint_works_where_pytest_was_started_in_the_background(tmp_path: Path) -> None:
    said = run(tmp_path, INTERRUPTED, ignores_sigint=True)
    assert "1 passed" in said, said
