"""The stubs agree with the extension: `mypy.stubtest` compares names, signatures and bases with the built module."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_stubs_and_the_extension_agree():
    # In the package only `_native` has a stub; the other modules have their types in their own source.
    command = [sys.executable, "-m", "mypy.stubtest", "--concise", "--mypy-config-file", "pyproject.toml"]
    done = subprocess.run([*command, "tickwheel._native"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
