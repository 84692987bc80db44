"""Errors that a command does not expect end in one line, with a code of their own (D13)."""

import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from tickwheel.commands import tickwheel

COMMAND = [sys.executable, "-m", "tickwheel"]


@pytest.mark.parametrize(
    "args",
    [
        ["serve", "--store", "s.db", "--to", "file:out.ndjson", "--listen", "127.0.0.1:0"],
        ["serve", "--store", "{there}/s.db", "--to", "python:json:dumps", "--listen", "127.0.0.1:0"],
        ["serve", "--store", "{there}/s.db", "--to", "sqlite:x.db?table=t", "--listen", "127.0.0.1:0"],
        ["deliver", "-", "--to", "file:{there}/out", "--summary", "summary.json"],
        ["deliver", "-", "--to", "file:out"],
    ],
)
def test_a_command_in_a_folder_that_is_removed_says_so_in_a_line_and_leaves_nothing__D13(
    args: list[str], tmp_path: Path
) -> None:
    gone, there = tmp_path / "gone", tmp_path / "there"
    gone.mkdir()
    there.mkdir()
    command = [*COMMAND, *(each.format(there=there) for each in args)]
    script = 'rmdir "$0" && exec "$@"'
    ended = subprocess.run(
        ["sh", "-c", script, gone, *command], cwd=gone, input="", capture_output=True, text=True, timeout=60
    )
    assert ended.returncode == 2
    assert ended.stderr.splitlines()[-1] == (
        "Error: the folder in which tickwheel was started is removed: go to another folder, and run again"
    )
    assert "Traceback" not in ended.stderr
    assert list(there.iterdir()) == []


def test_an_error_that_is_not_expected_is_one_line_and_70__D13(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise RuntimeError("can't start\nnew thread")

    monkeypatch.setattr(tickwheel.commands["report"], "callback", lambda **_: broken())
    ended = CliRunner().invoke(tickwheel, ["report", "s.db"])
    assert (ended.exit_code, ended.stderr) == (70, "Failed: RuntimeError: can't start\\u000anew thread.\n")


EARLY = """
import os, signal, sys
import tickwheel.cli

set_handler = signal.signal

def noted(number, handler):
    before = set_handler(number, handler)
    if number == signal.SIGHUP:
        os.write(1, b"late " if "click" in sys.modules else b"early")
    return before

signal.signal = noted
sys.argv = ["tickwheel", "serve", "--store", "s.db", "--to", "file:out", "--listen", "127.0.0.1:0"]
tickwheel.cli.main()
"""


def hang_up(server: subprocess.Popen[bytes], until: bytes | None) -> bytes:
    """Send it SIGHUP again and again until it says `until`, or else ends. What it said."""
    told, until_s = b"", time.monotonic() + 60
    assert server.stderr is not None
    while server.poll() is None and (until is None or until not in told) and time.monotonic() < until_s:
        server.send_signal(signal.SIGHUP)
        if select.select([server.stderr], [], [], 0.001)[0]:  # short: a signal also comes during the handler
            told += os.read(server.stderr.fileno(), 65536)
    return told


def test_a_hangup_at_any_time_of_a_run_ends_nothing__D9(tmp_path: Path) -> None:
    """From the beginning of the command, before it loads its libraries, to the end of the process."""
    command = [sys.executable, "-c", EARLY]
    server = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert server.stdout is not None
    try:
        assert server.stdout.read(5) == b"early"
        told = hang_up(server, until=b"listening on")
        server.terminate()
        told += hang_up(server, until=None)
        assert server.poll() == 0, told.decode()
    finally:
        server.kill()
        server.communicate()
    assert b"listening on" in told
    assert b"Traceback" not in told
