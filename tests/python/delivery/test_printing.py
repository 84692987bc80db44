"""Nothing from outside is printed or logged as it is: no line of its own, no command to the terminal (D12, D15)."""

import ast
import json
import logging
import os
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import pytest

import tickwheel
from tickwheel._printable import logger_of, printable
from tickwheel.delivery import DeliveryQueue

PACKAGE = Path(tickwheel.__file__).parent
HOSTILE = "i\x85\x9b31m\x1b[31m\r\nthe destination is up again\x07\x7f\u2028\u202e"
OWN = {
    "_printable.py": {"getLogger"},  # with escapes
    "_forks.py": {"getLogger"},  # the `repr` of each name
    "_waiting_exit.py": {"getLogger"},  # the `repr` of a name, and the name of a function
    "commands/sight.py": {"print"},  # a table whose cells have escapes
    "commands/spark_submit.py": {"getLogger"},  # sets a level
    "delivery/base/standard_error.py": {"write"},  # of a console, with its colours
    "delivery/command/ending.py": {"print"},  # a table of numbers
    "delivery/serve/ports.py": {"getLogger"},  # sets a level
    "django/management/commands/tickwheel_prune.py": {"write"},  # a number
    "django/management/commands/tickwheel_worker.py": {"write"},
}
"""Prints of text that is not from outside, or that has escapes already."""
_CALLS = {"echo", "print", "out", "getLogger", "secho", "warn", "print_exception", "print_exc"}
_STREAMS = {"stdout", "stderr", "__stdout__", "__stderr__"}


def prints_of(path: Path) -> set[str]:
    """The calls in a file that print or make a logger, but for those whose text has its escapes."""
    found = set()
    for call in ast.walk(ast.parse(path.read_text())):
        if not isinstance(call, ast.Call):
            continue
        of = call.func
        name = of.id if isinstance(of, ast.Name) else of.attr if isinstance(of, ast.Attribute) else ""
        on = ast.unparse(of.value) if isinstance(of, ast.Attribute) else ""
        if name == "write" and on.rpartition(".")[2] in _STREAMS:
            found.add(name)
        if name in _CALLS and (on or name == "print"):
            first = ast.unparse(call.args[0]) if call.args else ""
            if not first.startswith("printable("):
                found.add(name)
    return found


def test_each_text_that_is_printed_or_logged_has_escapes__D15() -> None:
    named = {path.relative_to(PACKAGE).as_posix(): prints_of(path) for path in sorted(PACKAGE.rglob("*.py"))}
    assert {name: calls for name, calls in named.items() if calls} == OWN


def is_plain(text: str) -> bool:
    return all(each == "\n" or printable(each) == each for each in text) and "\nthe destination" not in text


FUNCTIONS = f"""
from tickwheel.delivery.sinks import Sink
TEXT = {HOSTILE!r}
def function(delivery):
    raise ValueError(TEXT)
async def coroutine(delivery):
    raise ValueError(TEXT)
class Own(Sink):
    def send(self, deliveries):
        raise ValueError(TEXT)
class Broken(Own):
    def __init__(self, settings):
        raise ValueError(TEXT)
"""


@pytest.mark.parametrize("to", ["function", "coroutine", "Own"])
def test_the_text_of_an_exception_and_an_id_make_no_line_and_no_command__D15(to: str, tmp_path: Path) -> None:
    (tmp_path / "hostile.py").write_text(FUNCTIONS)
    record = json.dumps({"id": HOSTILE, "key": HOSTILE, "due": 1_700_000_000_005, "payload": HOSTILE})

    def run(*args: str) -> str:
        command = [sys.executable, "-m", "tickwheel", *args]
        env = {**os.environ, "PYTHONPATH": str(tmp_path)}
        ended = subprocess.run(command, input=record, capture_output=True, text=True, env=env, timeout=60, cwd=tmp_path)
        assert is_plain(ended.stdout)
        assert is_plain(ended.stderr)
        return ended.stdout + ended.stderr

    assert "ValueError: i" in run("deliver", "-", "--to", "python:hostile:Broken", "--store", "b.db")
    told = run("deliver", "-", "--to", f"python:hostile:{to}", "--store", "s.db", "--max-attempts", "1")
    assert "failed for the first time: ValueError: i" in told
    assert "message " in told
    for command in (["list", "s.db", "--state", "dead"], ["dead", "s.db"], ["show", "s.db", HOSTILE, "--key", HOSTILE]):
        assert "destination is up again" in run(*command)
        assert "destination is up again" in run(*command, "--json")
    assert run("status", "s.db")
    assert "destination is up again" in run("requeue", "s.db", HOSTILE, "--key", HOSTILE)
    assert "destination is up again" in run("list", HOSTILE)


def test_json_that_is_printed_is_the_same_json__D14(tmp_path: Path) -> None:
    store = tmp_path / "s.db"
    with DeliveryQueue(store, to=lambda _: None) as queue:
        queue.put(HOSTILE, {"text": HOSTILE}, due=4_000_000_000_000)
    shown = subprocess.run(
        [sys.executable, "-m", "tickwheel", "list", store, "--json"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert is_plain(shown.stdout)
    assert HOSTILE in [row["id"] for row in json.loads(shown.stdout)["messages"]]


def test_a_traceback_in_the_log_has_escapes_and_indented_lines__D15(caplog: pytest.LogCaptureFixture) -> None:
    logger = logger_of("tickwheel.delivery")
    try:
        raise ValueError(HOSTILE)
    except ValueError as error:
        logger.exception("it failed: %s, %r, %d", error, HOSTILE, 3)
    text = logging.Formatter("%(message)s").format(caplog.records[-1])
    assert is_plain(text)
    first, *lines = text.split("\n")
    assert first.startswith("it failed: i\\u0085")
    assert first.endswith(", 3")
    assert len(lines) > 3
    assert all(line.startswith("  ") for line in lines)


def test_named_arguments_have_escapes_and_numbers_stay_numbers__D15(caplog: pytest.LogCaptureFixture) -> None:
    logger = logger_of("tickwheel.delivery.test")
    logger.error("%(name)s has %(count)d", {"name": "a\nb\x1b", "count": Decimal(5)})
    logger.error("%s has %d", "a\nb", Decimal(5))
    assert caplog.messages == ["a\\u000ab\\u001b has 5", "a\\u000ab has 5"]
