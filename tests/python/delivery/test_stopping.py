"""Ctrl-C and SIGTERM at every moment of `tickwheel deliver`: 130 and the counts; the second one ends it at once."""

import importlib.abc
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from click.testing import CliRunner

from tickwheel import cli
from tickwheel.commands import tickwheel as command
from tickwheel.delivery import DeliveryQueue
from tickwheel.delivery.command.reading import Reading
from tickwheel.delivery.model.message import Columns
from tickwheel.delivery.read import sources
from tickwheel.delivery.read.sources import find_sources

pytestmark = pytest.mark.timeout(60)

SINKS = """
import os, sys, threading
from tickwheel.delivery.sinks import Sink

def hang(what):
    print(what, file=sys.stderr, flush=True)
    threading.Event().wait()

class Open(Sink):
    def __init__(self, settings): hang("hangs")
    def send(self, deliveries): return {}

class Position(Sink):
    def send(self, deliveries): return {}
    def position(self): hang("hangs")

class Arrived(Sink):
    def send(self, deliveries): return {}
    def arrived(self, suspects, position): hang("hangs")

class Close(Sink):
    def send(self, deliveries): return {}
    def close(self): hang("hangs")

class Sync(Sink):
    def send(self, deliveries): return {}
    def sync(self): hang("hangs")
"""
CRASHES = """if True:
    import os, sys
    from tickwheel.delivery import DeliveryQueue
    queue = DeliveryQueue(sys.argv[1], to=lambda _: os._exit(0))
    queue.put("a", delay_ms=0)
    queue.wait_until_empty(20)
"""

Process = subprocess.Popen[str]
Start = Callable[..., Process]


NAMES = {signal.SIGINT: "Ctrl-C", signal.SIGTERM: "SIGTERM"}


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts `tickwheel deliver in.ndjson --to python:hangs:SINK ARGS` in an empty folder, and waits until it hangs."""
    started: list[Process] = []
    (tmp_path / "hangs.py").write_text(SINKS)
    (tmp_path / "in.ndjson").write_text('{"id": "now", "due": 100000000005}\n')
    (tmp_path / "temporary").mkdir()

    def run(sink: str, *args: str) -> Process:
        process = subprocess.Popen(
            [sys.executable, "-m", "tickwheel", "deliver", "in.ndjson", "--to", f"python:hangs:{sink}", *args],
            cwd=tmp_path,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"TMPDIR": str(tmp_path / "temporary")},
        )
        started.append(process)
        assert process.stderr is not None
        while "hangs" not in process.stderr.readline():
            pass
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()


def rest(process: Process) -> str:
    assert process.stderr is not None
    return process.stderr.read()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("sink", ["Open", "Position", "Arrived"])
def test_a_start_that_hangs_is_stopped__D13(sink: str, number: int, start: Start, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", CRASHES, tmp_path / "s.db"], check=True, timeout=30)
    process = start(sink, "--store", "s.db")
    process.send_signal(number)
    err = rest(process)
    assert process.wait() == 130, err
    assert f"Stopped by {NAMES[number]}." in err
    assert "Failed" not in err
    assert "Traceback" not in err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("sink", ["Close", "Sync"])
def test_an_end_that_hangs_is_stopped_with_its_counts__D13(
    sink: str, number: int, start: Start, tmp_path: Path
) -> None:
    process = start(sink)
    process.send_signal(number)
    err = rest(process)
    assert process.wait() == 130, err
    assert "stopping (press Ctrl-C again to end immediately)" in err
    assert f"Stopped by {NAMES[number]}." in err
    assert f"delivered {1 if sink == 'Close' else 0}" in " ".join(err.split())
    assert "Aborted" not in err
    assert "Traceback" not in err
    assert [*(tmp_path / "temporary").iterdir()] == []


def test_a_reader_that_waits_for_room_does_not_hold_up_the_end__D13(tmp_path: Path) -> None:
    waits, is_over = threading.Event(), threading.Event()
    failures: list[BaseException] = []

    class Full:
        engine: ClassVar = SimpleNamespace(inputs={})

        def submit(self, _: object, *, follows: bool) -> None:
            waits.set()
            is_over.wait(20)
            raise RuntimeError("it is closed")

        def fail(self, error: BaseException) -> None:
            failures.append(error)

    (tmp_path / "in.ndjson").write_text('{"id": "now", "due": 100000000005}\n')
    full: Any = Full()
    reading = Reading(find_sources([str(tmp_path / "in.ndjson")]), Columns(), full, print, is_replay=False)
    reading.start()
    assert waits.wait(20)
    reading.stop()
    assert not reading.has_ended(0)
    is_over.set()
    assert reading.has_ended(20)
    assert failures == []


@pytest.mark.parametrize("second", [signal.SIGINT, signal.SIGTERM])
def test_the_second_signal_ends_it_at_once_and_takes_the_temporary_store_along__D13(
    second: int, start: Start, tmp_path: Path
) -> None:
    process = start("Sync")
    assert len([*(tmp_path / "temporary").iterdir()]) == 1
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    assert "stopping" in process.stderr.readline()
    process.send_signal(second)
    assert rest(process) == ""
    assert process.wait() == -second
    assert [*(tmp_path / "temporary").iterdir()] == []


def test_a_destination_that_does_not_close_is_waited_for_and_told__D13(start: Start, tmp_path: Path) -> None:
    process = start("Close", "--sink-timeout", "3", "--store", "s.db")
    err = rest(process)
    assert process.wait() == 3, err
    assert "waiting for the destination to close, at most 3 s" in err
    assert "Failed: the destination did not close within 3 s." in err
    assert "delivered 1" in " ".join(err.split())
    with DeliveryQueue(tmp_path / "s.db", to=lambda _: None) as queue:
        assert len(queue) == 0


def test_ctrl_c_before_a_run_begins_is_no_abort__D13(monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(sources, "find_sources", stop)
    result = CliRunner().invoke(command, ["deliver", "in.ndjson"])
    assert (result.exit_code, result.stderr) == (130, "Stopped by Ctrl-C.\n")


def test_ctrl_c_while_the_command_is_imported_is_no_error__D13(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stopped(importlib.abc.MetaPathFinder):
        def find_spec(self, name: str, *_: object) -> None:
            if name == "tickwheel.commands":
                raise KeyboardInterrupt

    monkeypatch.setattr(sys, "meta_path", [Stopped(), *sys.meta_path])
    monkeypatch.delitem(sys.modules, "tickwheel.commands")
    before = signal.getsignal(signal.SIGINT)
    try:
        with pytest.raises(SystemExit) as ended:
            cli.main()
    finally:
        signal.signal(signal.SIGINT, before)
    assert ended.value.code == 130


def test_ctrl_c_while_the_options_are_read_is_no_abort__D13(monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(type(command), "parse_args", stop)
    result = CliRunner().invoke(command, ["deliver", "in.ndjson"])
    assert (result.exit_code, result.stderr) == (130, "Stopped by Ctrl-C.\n")


def test_a_sigterm_before_a_run_begins_ends_as_a_ctrl_c__D13(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text("import sys, time\nprint('imported', flush=True)\ntime.sleep(60)\n")
    command = [sys.executable, "-m", "tickwheel", "deliver", "-", "--to", "python:slow:f", "--store", "s.db"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"imported\n"
        process.terminate()
        _, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (130, b"Stopped by SIGTERM.\n")
    assert not (tmp_path / "s.db").exists()


def test_a_destination_that_opens_slowly_is_told__D13(start: Start) -> None:
    process = start("Open")
    assert process.stderr is not None
    assert process.stderr.readline() == "waiting for the destination to open\n"
    process.terminate()
    assert process.wait() == 130


AT_THE_END = """if True:
    import signal, sys, threading
    import tickwheel.cli

    start = threading.Timer.start

    def starting(self):
        if sys._getframe(1).f_code.co_name == "_close_after_all":
            signal.raise_signal(signal.SIGTERM)
        start(self)

    threading.Timer.start = starting
    tickwheel.cli.main()
"""


def test_a_signal_when_all_is_delivered_loses_no_count__D13(tmp_path: Path) -> None:
    (tmp_path / "in.ndjson").write_text('{"id": "now", "due": 100000000005}\n')
    command = [sys.executable, "-c", AT_THE_END, "deliver", "in.ndjson", "--to", "file:out", "--summary", "all.json"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=50)
    assert ended.returncode == 130
    assert "delivered 1" in " ".join(ended.stderr.split())
    assert json.loads((tmp_path / "all.json").read_text())["delivered"] == 1


OF_A_TERMINAL = """if True:
    import fcntl, os, signal, sys, termios

    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # it is ignored under nohup
    fcntl.ioctl(2, termios.TIOCSCTTY, 0)
    os.execv(sys.argv[1], sys.argv[1:])
"""


def test_a_terminal_that_closes_ends_it_as_a_signal_does__D13(tmp_path: Path) -> None:
    """Its bar was written past what ignores errors, to a terminal that was gone: exit code 1, and no summary."""
    ours, theirs = os.openpty()
    (tmp_path / "in.ndjson").write_text('{"id": "now", "due": 100000000005}\n{"id": "later", "delay_ms": 3600000}\n')
    command = [sys.executable, "-m", "tickwheel", "deliver", "in.ndjson", "--to", "file:out", "--summary", "all.json"]
    process = subprocess.Popen(
        [sys.executable, "-c", OF_A_TERMINAL, *command],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=theirs,
        start_new_session=True,
        env=os.environ | {"TERM": "xterm"},
    )
    os.close(theirs)
    try:
        told = b""
        while b"1/2" not in told:  # in the bar
            told = told[-100:] + os.read(ours, 65536)
        os.close(ours)
        assert process.wait(30) == 130
    finally:
        process.kill()
        process.wait()
    assert json.loads((tmp_path / "all.json").read_text())["delivered"] == 1
