"""What the files for operators name is there: options, variables, and the health check of the image."""

import configparser
import json
import re
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tickwheel.commands.serve import serve

from .conftest import Server

pytestmark = pytest.mark.timeout(60)
ROOT = Path(__file__).parents[4]
DOCKERFILE = (ROOT / "Dockerfile").read_text("utf-8")
FILES = [
    "Dockerfile",
    "ops/serve.toml",
    "ops/systemd/options.conf",
    "ops/systemd/tickwheel.service",
    "docs/operations.md",
]
OPTIONS: set[str] = set(serve.options)  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", FILES)
def test_each_variable_that_is_named_is_of_an_option(name: str) -> None:
    named = set(re.findall(r"TICKWHEEL_SERVE_([A-Z_]+)", (ROOT / name).read_text("utf-8")))
    assert named <= {option.upper().replace("-", "_") for option in OPTIONS} | {"CONFIG"}


def test_the_unit_starts_serve_as_systemd_expects_it() -> None:
    unit = configparser.ConfigParser(interpolation=None, strict=False, delimiters=["="])
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read(ROOT / "ops/systemd/tickwheel.service")
    service = unit["Service"]
    command, *options = service["ExecStart"].split()[1:]
    assert (service["Type"], command) == ("notify", "serve")
    assert options[0].removeprefix("--") in OPTIONS | {"config"}
    assert service["TimeoutStartSec"] == "infinity", "a second process waits for the store without READY=1"
    assert service["RestartPreventExitStatus"] == "2", "wrong usage stays wrong"


def test_the_health_check_of_the_image_asks_whether_it_lives(tmp_path: Path, start: Callable[..., Server]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    [(variables, check)] = re.findall(
        r"SERVE_HEALTH=\S+:(\d+).*?^HEALTHCHECK .*?CMD (\[.*?\])$", DOCKERFILE, re.S | re.M
    )
    python, *arguments = json.loads(check)
    assert python == "python"
    assert variables in arguments[-1]
    command = [sys.executable, *arguments[:-1], arguments[-1].replace(variables, str(port))]
    assert subprocess.run(command, capture_output=True, timeout=20).returncode == 1
    start(tmp_path / "s.db", "--health", f"127.0.0.1:{port}").listening()
    assert subprocess.run(command, capture_output=True, timeout=20).returncode == 0


def test_the_image_is_built_from_what_its_context_has() -> None:
    """Each file that cargo and maturin read is let through `.dockerignore`."""
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text("utf-8").splitlines() if line.startswith("!")}
    manifest = (ROOT / "Cargo.toml").read_text("utf-8")
    needed = {"Cargo.toml", "Cargo.lock", "pyproject.toml", "crates", "src", "python", "README.md", "LICENSE"}
    assert needed | {"constraints.txt"} <= kept
    assert [path for path in re.findall(r'^path = "(.+)"', manifest, re.M) if Path(path).parts[0] not in kept] == [
        "tests/rust/main.rs"
    ]
    assert "tests/rust" in kept
