"""Each archive works when it is installed into an empty environment outside the checkout.

They are built as `make demo` and the tests build, and where these build: less optimised than a release, in a part of
the time. The wheel is for the limited API, because `make demo` has tried the other kind. `make wheels` builds what is
published.
"""

import sys
import tomllib
from pathlib import Path

import pytest

from packages.archives import ROOT, is_dirty, run, sdist, unpack, wheel_by_pip
from packages.contents import check_contents
from packages.installed import Environment, check_alone, check_delivering, environment

pytestmark = [pytest.mark.packages, pytest.mark.timeout(900)]

MOST_BYTES = 12_000_000
CACHE = {"CARGO_TARGET_DIR": str(ROOT / "target")}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the source distribution."""
    return unpack(sdist(tmp_path_factory.mktemp("sdist")), tmp_path_factory.mktemp("source"))


@pytest.fixture(scope="module")
def archive(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that pip builds from the source distribution."""
    build = " ".join(("--locked", "--profile", "demo", "--features", "abi3"))
    return wheel_by_pip(source, tmp_path_factory.mktemp("wheel"), MATURIN_PEP517_ARGS=build, **CACHE)


@pytest.fixture(scope="module")
def made(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An environment that has this wheel and nothing else."""
    return environment(tmp_path_factory.mktemp("environment") / "venv", sys.executable, archive)


def test_a_timer_fires_where_nothing_else_is_installed_and_messages_where_its_extra_is(
    made: Environment, archive: Path
) -> None:
    check_alone(made)
    check_delivering(made, archive)


def test_a_wheel_has_types_and_licence_and_only_what_runs(archive: Path) -> None:
    check_contents(archive, MOST_BYTES)


def test_the_packaged_crates_build(tmp_path: Path) -> None:
    """Each from its archive, delivery with the archive of the timer.

    Cargo's own verification is not used: it unpacks the timer below CARGO_HOME once for each place of the checkout, and
    builds delivery with these sources ever after.
    """
    names = ("tickwheel", "tickwheel-delivery")
    crates = [part for name in names for part in ("-p", name)]
    run("cargo", "package", "--locked", "--no-verify", *crates, *(["--allow-dirty"] if is_dirty() else []), **CACHE)
    version = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    timer, delivery = (unpack(ROOT / "target/package" / f"{name}-{version}.crate", tmp_path / name) for name in names)
    run("cargo", "build", "--locked", cwd=timer, **CACHE)
    run("cargo", "add", "--quiet", "--path", timer, "tickwheel", cwd=delivery)
    run("cargo", "build", cwd=delivery, **CACHE)
