"""`tickwheel` without a subcommand says what to try first, and each command of that text works as it stands."""

import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from tickwheel.commands import tickwheel as command
from tickwheel.commands import welcome

BIN = Path(sys.executable).parent


def text() -> str:
    done = CliRunner().invoke(command, [])
    assert (done.exit_code, done.stdout) == (2, "")
    return done.stderr


def commands() -> list[str]:
    """Those of the text, which are indented, each with its further lines."""
    return re.findall(r"^ {2}(\S.*(?:\n {4}.*)*)", text(), flags=re.MULTILINE)


def shell(line: str, folder: Path, **variables: str) -> "subprocess.Popen[str]":
    environment = os.environ | {"PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"} | variables
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(["sh", "-c", line], cwd=folder, env=environment, text=True, **pipes)


def one(start: str) -> str:
    (found,) = [each for each in commands() if each.startswith(start)]
    return found


@pytest.mark.parametrize("has_server", [True, False])
def test_it_fits_on_a_terminal_of_60_columns_and_24_lines_with_the_prompt(
    has_server: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(welcome, "find_spec", lambda _name: importlib.util.find_spec("sys") if has_server else None)
    lines = text().splitlines()
    assert max(map(len, lines)) <= 60
    assert len(lines) <= 23
    assert ("  pip install 'tickwheel[serve]'" in lines) is not has_server


@pytest.mark.parametrize("start", ["tickwheel --help", "python -c"])
def test_a_command_that_shows_something_works_as_it_stands(start: str, tmp_path: Path) -> None:
    with shell(one(start), tmp_path) as process:
        out, err = process.communicate(timeout=60)
    assert (process.returncode, err, len(out.splitlines()) > 15) == (0, "", True)


def test_the_line_with_three_messages_delivers_them_as_it_stands(tmp_path: Path) -> None:
    with shell(one("printf"), tmp_path) as process:
        out, _ = process.communicate(timeout=60)
    delivered = [json.loads(line) for line in out.splitlines()]
    assert [each["id"] for each in delivered] == ["a", "b", "c"]
    assert min(each["lateness_ms"] for each in delivered) >= 0
    assert process.returncode == 0


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_the_service_takes_the_message_of_the_other_terminal_and_delivers_it(tmp_path: Path) -> None:
    pytest.importorskip("uvicorn")
    with shell(f"exec {one('tickwheel serve')}", tmp_path, TICKWHEEL_SERVE_LISTEN="127.0.0.1:0") as server:
        try:
            assert server.stdout is not None
            assert server.stderr is not None
            (port,) = re.findall(r"listening on http://127\.0\.0\.1:(\d+)", server.stderr.readline())
            asked = one("curl")
            assert "localhost:7400" in asked, "the port that serve has by default"
            with shell(asked.replace("localhost:7400", f"127.0.0.1:{port}"), tmp_path) as client:
                answer, _ = client.communicate(timeout=60)
            assert json.loads(answer)["state"] == "accepted"
            assert json.loads(server.stdout.readline())["id"] == "d"
            assert (tmp_path / "hello.db").exists()
        finally:
            server.send_signal(signal.SIGINT)
            server.communicate(timeout=60)
