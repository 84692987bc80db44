"""`make wheels` builds what is published, into build/wheels: the source distribution, and from it the wheels.

One wheel for each announced CPython of this machine, and one for the limited API, which every later one can use as
well. They run on each Linux with glibc 2.28 or later: zig links them for that, whatever glibc this machine has.
`test_wheels.py` tries each.
"""

import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from packages.archives import ROOT, sdist, unpack, wheel
from packages.interpreters import announced, find, folders

FOLDER = ROOT / "build/wheels"
ON_LINUX = ["--zig", "--compatibility", "manylinux_2_28"] if sys.platform == "linux" else []
LIMITED = ["--features", "abi3"]
CACHE = {"CARGO_TARGET_DIR": str(ROOT / "target/wheels")}


def main() -> None:
    """Build all, a release build of one to two minutes each, the first one longer."""
    interpreters = find(announced(), folders())
    if not interpreters:
        sys.exit(
            f"No CPython of {', '.join(f'3.{minor}' for minor in announced())} is on PATH or in pyenv: install one."
        )
    shutil.rmtree(FOLDER, ignore_errors=True)
    with timed():
        source = sdist(FOLDER)
        print(source.name, end="", flush=True)
    with tempfile.TemporaryDirectory() as scratch:
        unpacked = unpack(source, Path(scratch))
        for interpreter in interpreters.values():
            build(interpreter.path, unpacked)
        build(interpreters[min(interpreters)].path, unpacked, *LIMITED)
    for minor in sorted({*announced()} - {*interpreters}):
        print(f"missing: CPython 3.{minor}, so there is no wheel for it alone: install it, on PATH or by pyenv")


def build(interpreter: Path, source: Path, *more: str) -> None:
    """One wheel, with a line that says so."""
    with timed():
        print(wheel(source, FOLDER, interpreter, "--release", *ON_LINUX, *more, **CACHE).name, end="", flush=True)


@contextmanager
def timed() -> Iterator[None]:
    """Print how long it took, at the end of the line."""
    start_s = time.monotonic()
    yield
    print(f"  ({time.monotonic() - start_s:.0f} s)", flush=True)


if __name__ == "__main__":
    main()
