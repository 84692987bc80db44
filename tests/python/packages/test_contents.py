"""The archives contain what is needed to build and to use the package, and no development tools."""

import functools
import tarfile

import pytest

from packages.archives import ROOT, run, sdist

WORKSHOP = (
    "benches/kafka",
    "benches/python",
    "benches/report",
    "tests/python",
    "tests/spark",
    ".ci",
    ".github",
    "Makefile",
    "mkdocs.yml",
    "requirements-dev.txt",
    "requirements-wheels.txt",
)


def below(folder: str, *suffixes: str) -> set[str]:
    """The files tracked by git below a folder."""
    files = run("git", "ls-files", folder).splitlines()
    return {name for name in files if name.endswith(suffixes)}


@functools.cache
def crate() -> set[str]:
    dirty = ["--allow-dirty"]  # the list of files is the same
    return set(run("cargo", "package", "--locked", "--list", "-p", "tickwheel", *dirty).splitlines())


@pytest.fixture(scope="module")
def source_distribution(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    with tarfile.open(sdist(tmp_path_factory.mktemp("sdist"))) as archive:
        return {name.split("/", 1)[1] for name in archive.getnames()}


@pytest.fixture(params=["crate", "sdist"])
def names(request: pytest.FixtureRequest, source_distribution: set[str]) -> set[str]:
    return crate() if request.param == "crate" else source_distribution


def test_every_rust_file_is_in_the_sources(names: set[str]) -> None:
    assert below("src", ".rs") - names == set()


def test_the_source_distribution_has_all_three_crates(source_distribution: set[str]) -> None:
    wanted = below("crates/delivery/src", ".rs", ".sql") | below("crates/python", ".rs", ".toml")
    assert wanted - source_distribution == set()
    assert wanted & crate() == set()


def test_the_sources_bring_what_they_are_built_and_tested_with(names: set[str]) -> None:
    wanted = {"Cargo.toml", "Cargo.lock", "LICENSE", "README.md", "CHANGELOG.md", "tests/rust/main.rs"}
    assert wanted - names == set()
    assert below("tests/data") - names == set()


def test_the_workshop_stays_at_home(names: set[str]) -> None:
    assert [name for name in names if name.startswith(WORKSHOP)] == []


def test_the_source_distribution_has_the_whole_python_package(source_distribution: set[str]) -> None:
    assert below("python") - source_distribution == set()
    assert {"pyproject.toml", "python/tickwheel/py.typed", "python/tickwheel/_native.pyi"} <= source_distribution
    assert [name for name in source_distribution if name.endswith((".so", ".pyc"))] == []


def test_every_link_of_the_readme_leads_somewhere_in_the_sources(source_distribution: set[str]) -> None:
    links = [part.split(")")[0].split("#")[0] for part in (ROOT / "README.md").read_text().split("](")[1:]]
    assert [link for link in links if "://" not in link and link not in source_distribution] == []
