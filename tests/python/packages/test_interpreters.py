"""The interpreters that wheels are built for are found wherever they are, and nothing else is taken for one."""

import json
from pathlib import Path

import pytest

from packages.interpreters import announced, find, folders


def fake(folder: Path, name: str, **about: object) -> Path:
    """A program that answers the probe as a CPython would, but for what is said here."""
    folder.mkdir(parents=True, exist_ok=True)
    answer = json.dumps({"is_cpython": True, "version": [3, 12, 1], "is_final": True, "has_gil": True} | about)
    path = folder / name
    path.write_text(f"#!/bin/sh\necho '{answer}'\n")
    path.chmod(0o755)
    return path


def test_the_newest_of_each_version_is_taken(tmp_path: Path) -> None:
    fake(tmp_path / "a", "python3.12", version=[3, 12, 1])
    newest = fake(tmp_path / "b", "python3.12", version=[3, 12, 9])
    other = fake(tmp_path / "b", "python3.13", version=[3, 13, 0])
    found = find([12, 13, 14], [tmp_path / "a", tmp_path / "b", tmp_path / "none"])
    assert {minor: (each.tag, each.path) for minor, each in found.items()} == {
        12: ("cp312", newest),
        13: ("cp313", other),
    }


@pytest.mark.parametrize(
    "about", [{"is_cpython": False}, {"is_final": False}, {"has_gil": False}, {"version": [3, 13, 0]}]
)
def test_what_has_no_wheel_of_its_own_is_left_out(tmp_path: Path, about: dict[str, object]) -> None:
    fake(tmp_path, "python3.12", **about)
    assert find([12], [tmp_path]) == {}


def test_a_shim_of_a_version_that_is_not_chosen_is_left_out(tmp_path: Path) -> None:
    fake(tmp_path, "python3.12").write_text("#!/bin/sh\necho 'not found' >&2\nexit 127\n")
    assert find([12], [tmp_path]) == {}


def test_the_versions_of_pyenv_and_the_folders_of_path_are_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "versions/3.12.1/bin").mkdir(parents=True)
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    monkeypatch.setenv("PATH", "/first:/second")
    assert [*folders()] == [Path("/first"), Path("/second"), tmp_path / "versions/3.12.1/bin"]


def test_the_classifiers_announce_the_versions_from_the_oldest_that_may_install_it() -> None:
    assert announced()[0] == 11
    assert announced() == [*range(11, announced()[-1] + 1)]
