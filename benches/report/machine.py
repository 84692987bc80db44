"""The machine and the versions of a run. The report must be written on the machine that measured."""

import os
import platform
import subprocess
from pathlib import Path

from .results import Suite


def describe() -> str:
    """CPU, cores, memory, kernel and system, in one line."""
    memory_gib = _field("/proc/meminfo", "MemTotal", "0").split()[0]
    return ", ".join(
        [
            _field("/proc/cpuinfo", "model name", platform.machine()),
            f"{os.cpu_count()} cores",
            f"{int(memory_gib) / 2**20:.1f} GiB RAM",
            f"{platform.system()} {platform.release()}",
            platform.freedesktop_os_release()["PRETTY_NAME"],
        ]
    )


def versions(suite: Suite) -> str:
    """The versions in the result file. That of the compiler is asked from the compiler if the file has none."""
    noted = dict(suite.versions)
    if suite.name == "rust" and "rustc" not in noted:
        answer = subprocess.run(["rustc", "--version"], capture_output=True, text=True, check=True)
        noted["rustc"] = answer.stdout.split()[1]
    return ", ".join(f"{name} {version}" for name, version in noted.items())


def _field(file: str, name: str, missing: str) -> str:
    """The value of the first `name : value` of a file in /proc."""
    for line in Path(file).read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return missing
