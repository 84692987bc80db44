"""Each archive works when it is installed into an empty environment outside the checkout.

A release build takes a minute, so only `make packages` runs these tests, also in CI; they have the mark `packages`.
"""

import sys
from pathlib import Path

import pytest

from packages.archives import is_dirty, run, sdist, wheel, wheel_of
from packages.contents import check_contents
from packages.installed import Environment, check_alone, check_delivering, environment

pytestmark = [pytest.mark.packages, pytest.mark.timeout(900)]


@pytest.fixture(scope="module", params=["wheel", "sdist"])
def archive(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel: built from the checkout, and built by pip from the source distribution."""
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "wheel":
        return wheel(folder)
    return wheel_of(sdist(tmp_path_factory.mktemp("source")), folder)


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
    check_contents(archive)


def test_the_packaged_crates_build() -> None:
    """Each from its archive, delivery with the archive of the timer."""
    crates = ["-p", "tickwheel", "-p", "tickwheel-delivery"]
    run("cargo", "package", "--locked", *crates, *(["--allow-dirty"] if is_dirty() else []))
