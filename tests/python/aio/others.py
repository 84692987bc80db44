"""The tests of uvloop, anyio and aiohttp on loops whose timers are in a wheel (T21): `make loop-tests`.

They are taken from the source packages, and run twice in an environment of their own: on the loops as they are, and on
the wheel. What fails on the wheel alone is run once more on both, because some of them fail now and then. Takes a
network and a quarter of an hour; the outcome is printed, and is 1 if anything fails on the wheel alone.
"""

import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).parents[3]
PLACE = ROOT / "build/loop-tests"
PYTHON = PLACE / "venv/bin/python"
# The versions that were tried. uvloop's tests take asyncio's loops for comparison, and put things in their place that a
# wheel needs; so only its own are on the wheel there.
PROJECTS = {
    "uvloop": ("uvloop==0.23.0", []),
    "anyio": ("anyio==4.16.0", ["-k", "not trio"]),
    "aiohttp": ("aiohttp==3.14.5", ["-n", "2", "--ignore", "tests/autobahn", "-m", "not dev_mode"]),
}
NEEDED = (
    "pytest pytest-timeout pytest-xdist pytest-mock pytest-cov trio blockbuster coverage freezegun gunicorn hypothesis "
    "isal mypy proxy.py psutil pyOpenSSL pytest_codspeed python-on-whales re-assert setuptools-git trustme truststore "
    "typing_extensions zlib_ng"
)


def main(projects: Sequence[str]) -> int:
    prepare()
    return max(compare(name) for name in projects or PROJECTS)


def prepare() -> None:
    """An environment with these projects, that finds the package here."""
    PLACE.mkdir(parents=True, exist_ok=True)
    if not PYTHON.exists():
        call(sys.executable, "-m", "venv", PLACE / "venv")
        pinned = [pin for pin, _ in PROJECTS.values()]
        call(PYTHON, "-m", "pip", "install", "--quiet", *pinned, *NEEDED.split())
        call(PYTHON, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:", "-d", PLACE, *pinned)
    (site,) = (PLACE / "venv/lib").glob("*/site-packages")
    (site / "tickwheel.pth").write_text(f"{ROOT / 'python'}\n{Path(__file__).parent}\n")
    for name, (pin, _) in PROJECTS.items():
        # Without the project's own package, which would be imported in place of the installed one.
        folder = PLACE / name
        shutil.rmtree(folder, ignore_errors=True)
        (archive,) = PLACE.glob(f"{pin.replace('==', '-')}*.tar.gz")
        with tarfile.open(archive) as packed:
            packed.extractall(PLACE / "sources", filter="data")
        folder.mkdir()
        source = PLACE / "sources" / archive.name.removesuffix(".tar.gz")
        shutil.copytree(source / "tests", folder / "tests")
        settings = source / "pyproject.toml"
        if settings.exists() and "[tool.pytest" in settings.read_text():
            shutil.copy(settings, folder)
        else:
            (folder / "pytest.ini").write_text("[pytest]\n")  # or pytest takes those of this project


def compare(name: str) -> int:
    """Run the tests of a project on both. 1 if some fail on the wheel alone."""
    base, wheel = (outcomes(name, kind) for kind in ("base", "wheel"))
    worse = sorted(test for test, failed in wheel.items() if failed and not base.get(test))
    if worse:
        names = {test.rpartition("::")[2].partition("[")[0] for test in worse}
        base_again, wheel_again = (outcomes(name, kind, " or ".join(names)) for kind in ("base", "wheel"))
        worse = [test for test in worse if wheel_again.get(test) and not base_again.get(test)]
    failed = [sum(found.values()) for found in (base, wheel)]
    print(f"{name}: {len(wheel)} tests; {failed[0]} fail on its own loops, {failed[1]} on the wheel", flush=True)
    for test in worse:
        print(f"  on the wheel alone: {test}")
    return int(bool(worse) or not wheel)


def outcomes(name: str, kind: str, only: str = "") -> dict[str, bool]:
    """Of each test whether it failed."""
    report = PLACE / f"{name}-{kind}.xml"
    report.unlink(missing_ok=True)
    options = ["--timeout", "60", "-p", "no:cacheprovider", "--junitxml", report, *PROJECTS[name][1]]
    if kind == "wheel":
        options += ["-p", "on_the_wheel"]
    if only:
        options += ["-k", only]
    with (PLACE / f"{name}-{kind}.log").open("w") as log:
        environment = {**os.environ, "WHEEL_ON": "uvloop" if name == "uvloop" else "asyncio uvloop"}
        command = [PYTHON, "-m", "pytest", "-q", *options, "tests"]
        subprocess.run(
            command, cwd=PLACE / name, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=False
        )
    found: dict[str, bool] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        test = f"{case.get('classname')}::{case.get('name')}"
        found[test] = found.get(test, False) or any(part.tag in ("failure", "error") for part in case)
    return found


def call(*command: object) -> None:
    subprocess.run([*map(str, command)], check=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
