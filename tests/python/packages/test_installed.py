"""Each archive works when it is installed into an empty environment outside the checkout.

A release build takes a minute, so only `make packages` runs these tests, also in CI; they have the mark `packages`.
"""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from packages.archives import PIP, ROOT, is_dirty, run, sdist, wheel, wheel_of

pytestmark = [pytest.mark.packages, pytest.mark.timeout(900)]

MOST_BYTES = 6_000_000
"""A wheel takes 4.3 MB: SQLite, Arrow and TLS are in it. With line tables it would be several times that."""

PROGRAM = """
import importlib.util, pathlib, sys, threading

import tickwheel
from tickwheel import SystemTimer
from tickwheel.testing import ManualTimer

assert pathlib.Path(tickwheel.__file__).is_relative_to(sys.prefix), tickwheel.__file__
assert importlib.util.find_spec("click") is None

fired = threading.Event()
with SystemTimer("installed") as timer:
    timer.after(1, fired.set)
    assert fired.wait(30)
    assert timer.after(60_000, print).cancel() is True
manual = ManualTimer()
manual.after(5, print, "five")
assert manual.advance(5) == 1
"""


@pytest.fixture(scope="module", params=["wheel", "sdist"])
def archive(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel: built from the checkout, and built by pip from the source distribution."""
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "wheel":
        return wheel(folder)
    return wheel_of(sdist(tmp_path_factory.mktemp("source")), folder)


@pytest.fixture(scope="module")
def python(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment that has this wheel and nothing else."""
    environment = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", "--without-pip", environment)
    interpreter = environment / "bin/python"
    run(*PIP, "--python", interpreter, "install", "--no-index", "--no-deps", archive, cwd=environment)
    return interpreter


def test_a_timer_fires_and_a_cancel_is_answered_where_nothing_else_is_installed(python: Path) -> None:
    assert run(python, "-I", "-W", "error", "-c", PROGRAM, cwd=python.parent) == "five\n"


def test_the_command_without_its_libraries_says_what_to_install(python: Path) -> None:
    for command in ([python.parent / "tickwheel", "--help"], [python, "-I", "-m", "tickwheel", "--help"]):
        done = subprocess.run([*map(str, command)], cwd=python.parent, capture_output=True, text=True)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr == "tickwheel: click is not installed: run pip install 'tickwheel[delivery]'\n"


def test_a_wheel_has_types_and_licence_and_only_what_runs(archive: Path) -> None:
    with zipfile.ZipFile(archive) as packed:
        names = packed.namelist()
        (metadata,) = [name for name in names if name.endswith("METADATA")]
        description = packed.read(metadata).decode()
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"tickwheel"}
    assert {"tickwheel/py.typed", "tickwheel/_native.pyi"} <= set(names)
    assert [name for name in names if name.endswith("licenses/LICENSE")] != []
    assert (ROOT / "README.md").read_text() in description
    sources = {name.removeprefix("python/") for name in run("git", "ls-files", "python").splitlines()}
    assert sources - set(names) == set()
    assert archive.stat().st_size < MOST_BYTES


@pytest.mark.parametrize("features", [[], ["--features", "python"]], ids=["timer", "python"])
def test_the_packaged_crate_builds(features: list[str]) -> None:
    run("cargo", "package", "--locked", *features, *(["--allow-dirty"] if is_dirty() else []))
