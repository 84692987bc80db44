"""The CPythons of this machine that a release has a wheel for: those on PATH, and those of pyenv.

Which versions a release has is in the classifiers of `pyproject.toml`.
"""

import json
import os
import re
import subprocess
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[3]
MINOR = re.compile(r"Programming Language :: Python :: 3\.(\d+)$")
PROBE = """
import json, sys, sysconfig
print(json.dumps({
    "is_cpython": sys.implementation.name == "cpython",
    "version": sys.version_info[:3],
    "is_final": sys.version_info.releaselevel == "final",
    "has_gil": not sysconfig.get_config_var("Py_GIL_DISABLED"),
}))
"""


@dataclass(frozen=True, slots=True, order=True)
class Interpreter:
    """A CPython with a GIL, of a final release."""

    version: tuple[int, int, int]
    path: Path

    @property
    def tag(self) -> str:
        """As in the name of a wheel: cp312."""
        return f"cp{self.version[0]}{self.version[1]}"


def announced() -> list[int]:
    """The minor versions among the classifiers, the oldest first."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return sorted(int(found[1]) for line in project["classifiers"] if (found := MINOR.match(line)))


def find(minors: Iterable[int], folders: Iterable[Path]) -> dict[int, Interpreter]:
    """The newest interpreter of each minor version in these folders."""
    wanted, found = list(minors), dict[int, Interpreter]()
    for folder in folders:
        for minor in wanted:
            path = folder / f"python3.{minor}"
            if path.is_file() and (interpreter := probe(path)) and interpreter.version[1] == minor:
                found[minor] = max(interpreter, found.get(minor, interpreter))
    return found


def probe(path: Path) -> Interpreter | None:
    """What this file is; `None` if there is no wheel for it. pyenv's shims may be of a version that is not chosen."""
    done = subprocess.run([path, "-I", "-c", PROBE], capture_output=True, text=True, timeout=60)
    if done.returncode != 0:
        return None
    about = json.loads(done.stdout)
    is_for_us = about["is_cpython"] and about["is_final"] and about["has_gil"]
    return Interpreter(tuple(about["version"]), path) if is_for_us else None


def folders() -> Iterator[Path]:
    """Where interpreters are: the folders of PATH, and each version that pyenv has installed."""
    yield from (Path(folder) for folder in os.environ["PATH"].split(os.pathsep) if folder)
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    yield from sorted(pyenv.glob("versions/*/bin"))
