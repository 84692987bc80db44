"""Standard error that can't be written changes neither what is delivered nor how a run ends (rules D2, D13)."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(60)

COMMAND = [sys.executable, "-m", "tickwheel", "deliver"]
TEN = "".join(f'{{"id": "{number}", "due": 100000000005}}\n' for number in range(10))


@contextmanager
def broken(kind: str) -> Iterator[int]:
    """A descriptor: of a pipe that nobody reads any more, or of a disk that is full."""
    if kind == "pipe":
        reading, fd = os.pipe()
        os.close(reading)
    else:
        fd = os.open("/dev/full", os.O_WRONLY)
    try:
        yield fd
    finally:
        os.close(fd)


@pytest.mark.parametrize("kind", ["pipe", "disk"])
def test_a_run_delivers_and_ends_as_any_other__D13(kind: str, tmp_path: Path) -> None:
    (tmp_path / "in.ndjson").write_text(TEN)
    with broken(kind) as stderr:
        done = subprocess.run(
            [*COMMAND, "in.ndjson", "--to", "file:out", "--summary", "s.json"], cwd=tmp_path, stderr=stderr, timeout=50
        )
    assert done.returncode == 0
    assert len((tmp_path / "out").read_text().splitlines()) == 10
    assert json.loads((tmp_path / "s.json").read_text())["delivered"] == 10


# In one write: several threads print, and the newline of `print` is a write of its own.
MINE = """def show(delivery):
    print(f"{delivery.message.id}\\n", end="", flush=True)
"""


@pytest.mark.parametrize("kind", ["pipe", "disk"])
def test_what_a_function_prints_arrives__D5(kind: str, tmp_path: Path) -> None:
    (tmp_path / "in.ndjson").write_text(TEN)
    (tmp_path / "mine.py").write_text(MINE)
    with broken(kind) as stderr:
        done = subprocess.run(
            [*COMMAND, "in.ndjson", "--to", "python:mine:show"],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            timeout=50,
        )
    assert (done.returncode, sorted(done.stdout.split())) == (0, [str(number) for number in range(10)])


@pytest.mark.parametrize("kind", ["pipe", "disk"])
def test_ctrl_c_ends_it_with_130_and_the_counts__D13(kind: str, tmp_path: Path) -> None:
    with broken(kind) as stderr:
        command = [*COMMAND, "-", "--summary", "s.json"]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        with subprocess.Popen(command, cwd=tmp_path, stderr=stderr, **pipes) as process:  # type: ignore[call-overload]
            process.stdin.write(b'{"id": "a", "delay_ms": 0}\n')
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["id"] == "a"
            process.send_signal(signal.SIGINT)
            assert process.wait(40) == 130
    assert json.loads((tmp_path / "s.json").read_text())["delivered"] == 1


@pytest.mark.parametrize("kind", ["pipe", "disk"])
def test_dead_letters_that_can_not_be_told_end_the_run_and_wait_for_the_next__D2(kind: str, tmp_path: Path) -> None:
    (tmp_path / "in.ndjson").write_text("nope\n" + TEN)
    command = [*COMMAND, "in.ndjson", "--to", "file:out", "--store", "s.db"]
    with broken(kind) as stderr:
        assert subprocess.run(command, cwd=tmp_path, stderr=stderr, timeout=50).returncode == 3
    again = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=50)
    assert (again.returncode, "Dead letters of earlier runs, written now: 1." in again.stderr) == (1, True)
    assert '"record":"nope"' in again.stderr
    assert len((tmp_path / "out").read_text().splitlines()) == 10
