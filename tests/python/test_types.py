"""The types of the public names, as mypy and pyright see them in a user's program; and none of them is `Any`."""

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import tickwheel
from tickwheel import testing

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / "tests/python/typed/program.py"
STUB = ROOT / "python/tickwheel/_native.pyi"
PUBLIC = {*tickwheel.__all__, *testing.__all__, "LoopTimers", "TimerHandle", "Stats", "Snapshot", "PurgatoryStats"}


def wrong_lines() -> set[int]:
    lines = enumerate(PROGRAM.read_text().splitlines(), 1)
    return {number for number, line in lines if line.endswith("# wrong")}


def said_by_mypy() -> dict[int, str]:
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--hide-error-context", str(PROGRAM)]
    out = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout
    found = [re.fullmatch(r".*program\.py:(\d+): error: (.*)", line) for line in out.splitlines()]
    assert all(found), out
    return {int(match[1]): match[2] for match in found if match}


def said_by_pyright() -> dict[int, str]:
    command = [Path(sys.executable).with_name("basedpyright"), "--pythonpath", sys.executable, "--outputjson", PROGRAM]
    done = subprocess.run(command, cwd=PROGRAM.parent, capture_output=True, text=True, check=False)
    found = json.loads(done.stdout)["generalDiagnostics"]
    return {item["range"]["start"]["line"] + 1: item["message"] for item in found if item["severity"] == "error"}


@pytest.mark.timeout(120)
@pytest.mark.parametrize("checker", [said_by_mypy, said_by_pyright], ids=["mypy", "pyright"])
def test_a_checker_finds_what_is_wrong_in_a_program_and_nothing_else__T22(checker) -> None:
    said = checker()
    assert set(said) == wrong_lines(), said


def test_no_public_name_has_a_type_any__T22() -> None:
    classes = [node for node in ast.parse(STUB.read_text()).body if isinstance(node, ast.ClassDef)]
    found = {
        f"{node.name}, line {name.lineno}"
        for node in classes
        if node.name in PUBLIC
        for name in ast.walk(node)
        if isinstance(name, ast.Name) and name.id == "Any"
    }
    assert found == set()
    assert {node.name for node in classes} >= PUBLIC - {
        "VirtualLoop",
        "Deadlock",
        "__version__",
        "weak_method",
    }
