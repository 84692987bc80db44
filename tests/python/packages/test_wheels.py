"""Each wheel in build/wheels works on each interpreter of this machine that it is for; `make wheels` builds them."""

import re
import sys
from pathlib import Path

import pytest

from packages.archives import BIN, ROOT, run
from packages.contents import check_contents, check_names_no_folder
from packages.installed import check_alone, check_delivering, environment
from packages.interpreters import Interpreter, announced, find, folders

pytestmark = [pytest.mark.wheels, pytest.mark.timeout(300)]

WHEELS = sorted((ROOT / "build/wheels").glob("*.whl"))
INTERPRETERS = list(find(announced(), folders()).values())


def tags(wheel: Path) -> list[str]:
    """Of the interpreter, of the binary interface, and of the platform."""
    return wheel.stem.split("-")[2:]


def is_for(wheel: Path, interpreter: Interpreter) -> bool:
    python, binary, _ = tags(wheel)
    return binary == "abi3" or python == interpreter.tag


def test_there_is_a_wheel_for_each_announced_cpython_of_this_machine_and_one_for_all() -> None:
    oldest = f"cp3{announced()[0]}"
    found = sorted(tags(wheel)[:2] for wheel in WHEELS)
    assert found == sorted([[oldest, "abi3"], *([each.tag, each.tag] for each in INTERPRETERS)])


@pytest.mark.parametrize("wheel", WHEELS, ids=lambda wheel: "-".join(tags(wheel)[:2]))
def test_a_wheel_runs_on_any_linux_since_glibc_2_28_and_has_only_what_runs(wheel: Path) -> None:
    check_contents(wheel)
    check_names_no_folder(wheel)
    if sys.platform == "linux":
        assert re.fullmatch(r"manylinux_2_28_\w+", tags(wheel)[2])
        told = " ".join(run(BIN / "auditwheel", "show", wheel).split())
        (minor,) = re.findall(r'consistent with the following platform tag: "manylinux_2_(\d+)_', told)
        assert int(minor) <= 28


@pytest.mark.parametrize("wheel", [wheel for wheel in WHEELS if tags(wheel)[1] == "abi3"])
def test_the_wheel_for_all_uses_nothing_but_the_limited_api(wheel: Path) -> None:
    run(BIN / "abi3audit", "--strict", wheel)


@pytest.mark.parametrize(
    ("wheel", "interpreter"),
    [
        pytest.param(wheel, each, id=f"{'-'.join(tags(wheel)[:2])}-on-{each.tag}")
        for wheel in WHEELS
        for each in INTERPRETERS
        if is_for(wheel, each)
    ],
)
def test_a_timer_fires_where_nothing_else_is_installed_and_messages_where_its_extra_is(
    wheel: Path, interpreter: Interpreter, tmp_path: Path
) -> None:
    made = environment(tmp_path / "venv", interpreter.path, wheel)
    check_alone(made)
    check_delivering(made, wheel)
