"""Downloads published jars once with Maven into the project's build folder: one folder for each pom in `poms/`."""

import fcntl
import os
import shutil
import subprocess
from hashlib import blake2b
from pathlib import Path

import pytest

_POMS = Path(__file__).with_name("poms")
_BUILD = Path(__file__).parents[3] / "build" / "kafka"


def jars_of(name: str) -> Path:
    """The folder with the jars of this pom. Without the jars and without Maven the test is skipped; in CI it fails."""
    pom = _POMS / name / "pom.xml"
    folder = _BUILD / name
    stamp = folder / "stamp"
    version = blake2b(pom.read_bytes(), digest_size=16).hexdigest()
    _BUILD.mkdir(parents=True, exist_ok=True)
    with (_BUILD / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another run may be downloading them
        if stamp.exists() and stamp.read_text() == version:
            return folder
        maven = shutil.which("mvn")
        if maven is None:
            problem = "Maven, which downloads the jars, is missing: install maven, or put mvn on PATH"
            if os.environ.get("CI") == "true":
                pytest.fail(problem)
            pytest.skip(problem)
        shutil.rmtree(folder, ignore_errors=True)
        done = subprocess.run(
            [maven, "-q", "-B", "-f", pom, "dependency:copy-dependencies", f"-DoutputDirectory={folder}"],
            check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        assert done.returncode == 0, f"Maven can't download the jars of {pom}: {done.stdout}{done.stderr}"
        stamp.write_text(version)
        return folder
