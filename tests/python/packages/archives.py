"""Makes the archives for users: the crate, the source distribution, the wheels."""

import os
import subprocess
import sys
import tarfile
from pathlib import Path

ROOT = Path(__file__).parents[3]
BIN = Path(sys.executable).parent
CARGO = Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo"))
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]


def run(*command: object, cwd: Path = ROOT, **variables: str) -> str:
    """The command's output. A failure shows its errors."""
    environment = os.environ | {
        "CARGO_TARGET_DIR": str(ROOT / "target/packages"),
        "MATURIN_PEP517_ARGS": "--locked",
        "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",  # pip's build finds maturin there, and maturin finds zig
        "PYO3_PYTHON": sys.executable,
    }
    done = subprocess.run([*map(str, command)], cwd=cwd, env=environment | variables, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


def sdist(folder: Path) -> Path:
    """The source distribution."""
    run(BIN / "maturin", "sdist", "--out", folder)
    (archive,) = folder.glob("*.tar.gz")
    return archive


def unpack(source: Path, folder: Path) -> Path:
    """The folder of the sources. Its files are new, so that cargo does not take an older build for theirs."""
    with tarfile.open(source) as archive:
        archive.extractall(folder, filter="data")
    (unpacked,) = folder.iterdir()
    for path in unpacked.rglob("*"):
        path.touch()
    return unpacked


def without_folders() -> str:
    """Flags by which the library does not name the folders of this machine: panics name the files of crates."""
    run("cargo", "fetch", "--locked")
    return " ".join(f"--remap-path-prefix={it}=crates" for it in (CARGO / "registry/src").iterdir())


def wheel(source: Path, folder: Path, interpreter: object, *more: object, **variables: str) -> Path:
    """The wheel of an interpreter, built from the sources in this folder."""
    before = {*folder.glob("*.whl")}
    variables["RUSTFLAGS"] = without_folders()
    run(
        BIN / "maturin",
        "build",
        "--locked",
        "--interpreter",
        interpreter,
        "--out",
        folder,
        *more,
        cwd=source,
        **variables,
    )
    (archive,) = {*folder.glob("*.whl")} - before
    return archive


def wheel_by_pip(source: Path, folder: Path, **variables: str) -> Path:
    """The wheel that pip builds, as `pip install` does."""
    quiet = ["--no-index", "--no-deps", "--no-build-isolation"]
    run(*PIP, "wheel", *quiet, "--wheel-dir", folder, source, cwd=folder, **variables)
    (archive,) = folder.glob("*.whl")
    return archive


def is_dirty() -> bool:
    """Whether there are uncommitted changes, with which cargo packages the crate only with `--allow-dirty`."""
    return run("git", "status", "--porcelain") != ""
