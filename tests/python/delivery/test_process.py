"""`tickwheel deliver` as a process: standard input and output, Ctrl-C, a reader that disconnects."""

import contextlib
import json
import os
import pty
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

pytestmark = pytest.mark.timeout(30)

Process = subprocess.Popen[bytes]
COMMAND = [sys.executable, "-m", "tickwheel.cli", "deliver", "-"]


@contextlib.contextmanager
def running(
    stdout: int = subprocess.PIPE, stderr: int = subprocess.PIPE, env: Mapping[str, str] | None = None
) -> Iterator[Process]:
    """The command, with a pipe to its standard input; it is ended at the end of the block."""
    with subprocess.Popen(COMMAND, stdin=subprocess.PIPE, stdout=stdout, stderr=stderr, env=env) as started:
        try:
            yield started
        finally:
            started.kill()


@pytest.fixture
def process() -> Iterator[Process]:
    with running() as started:
        yield started


def give(process: Process, *records: dict[str, Any]) -> None:
    assert process.stdin is not None
    process.stdin.write(b"".join(json.dumps(record).encode() + b"\n" for record in records))
    process.stdin.flush()


def take(process: Process) -> dict[str, Any]:
    assert process.stdout is not None
    found: dict[str, Any] = json.loads(process.stdout.readline())
    return found


def test_what_comes_on_a_pipe_is_delivered_while_the_pipe_is_open__D11(process: Process) -> None:
    give(process, {"id": "a", "due": 100000000005})
    assert take(process)["id"] == "a"
    give(process, {"id": "c", "delay_ms": 100}, {"id": "b", "delay_ms": 0})
    assert [take(process)["id"], take(process)["id"]] == ["b", "c"]
    out, err = process.communicate()
    assert (out, process.returncode) == (b"", 0)
    assert b"delivered" in err


def test_ctrl_c_stops_cleanly_and_says_what_was_not_delivered__D13(process: Process) -> None:
    give(process, *({"id": f"later {n}", "delay_ms": 86_400_000} for n in range(5)), {"id": "now", "due": 100000000005})
    assert take(process)["id"] == "now"
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    err = process.stderr.read().decode()  # the pipe to it is still open: it does not wait for more
    assert process.wait() == 130
    assert "Stopped by Ctrl-C." in err
    assert "Not delivered: 5, not kept, because no --store was given." in err
    assert "The input was read up to line 6 of -" in err
    assert "To go on, run again" in err
    assert "Traceback" not in err


def test_a_recurring_message_that_arrived_is_not_told_as_not_delivered__D19(process: Process) -> None:
    give(process, {"id": "tick", "every": 50, "payload": 1})
    assert take(process)["id"].startswith("tick@")
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    err = process.stderr.read().decode()
    assert process.wait() == 130
    assert "Recurring: 1, each with its next occurrence, not kept, because no --store was given." in err
    assert "Not delivered" not in err


@pytest.mark.parametrize("is_pressed_again", [False, True])
def test_ctrl_c_ends_a_run_whose_output_hangs_and_a_second_one_at_once__D13(is_pressed_again: bool) -> None:
    reading, writing = os.pipe()  # without a reader
    with running(stdout=writing) as process:
        os.close(writing)
        feeder = threading.Thread(
            target=give, args=(process, *({"id": str(n), "due": 100000000005} for n in range(5_000)))
        )
        feeder.start()
        os.read(reading, 1)  # it writes, and will soon block
        feeder.join()
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        assert b"No --store" in process.stderr.readline()
        assert b"stopping" in process.stderr.readline()
        if is_pressed_again:
            process.send_signal(signal.SIGINT)
            assert process.wait() == -signal.SIGINT
        else:  # the counts are printed although the output hangs
            assert b"Stopped by Ctrl-C." in process.stderr.read()
            assert process.wait() == 130
    os.close(reading)


def test_a_reader_that_went_away_ends_the_run_though_the_input_is_open__D2(process: Process) -> None:
    assert process.stdout is not None
    process.stdout.close()
    give(process, {"id": "a", "due": 100000000005})
    assert process.stderr is not None
    err = process.stderr.read().decode()
    assert process.wait() == 3
    assert "Failed: the destination can't be written: Broken pipe" in err
    assert "Not delivered: 1, not kept" in err
    assert "Traceback" not in err
    assert "Exception ignored" not in err


def test_a_terminal_gets_a_progress_bar_and_a_pipe_does_not__D13() -> None:
    main, side = pty.openpty()
    with running(stderr=side, env=os.environ | {"TERM": "xterm", "COLUMNS": "60"}) as process:
        os.close(side)
        give(process, {"id": "a", "delay_ms": 300})
        process.communicate()
    shown = b""
    try:
        while chunk := os.read(main, 4096):
            shown += chunk
    except OSError:  # the end of a terminal's output
        pass
    os.close(main)
    assert b"1/1" in shown
    assert b"\x1b[" in shown
    with running() as process:
        give(process, {"id": "a", "delay_ms": 300})
        _, err = process.communicate()
    assert b"1/1" not in err
    assert b"\x1b[" not in err
