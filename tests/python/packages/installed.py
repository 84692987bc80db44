"""An environment that has one wheel and nothing else, of any interpreter; and the programs that run there.

The programs see neither the checkout nor Rust: they run isolated, in the folder of the environment, and only that is on
PATH.
"""

import subprocess
from dataclasses import dataclass
from pathlib import Path

from packages.archives import PIP, ROOT, run

PROGRAMS = Path(__file__).parent / "programs"


@dataclass(frozen=True, slots=True)
class Environment:
    """The folder of a virtual environment without pip."""

    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin/python"

    def install(self, *what: object) -> None:
        run(*PIP, "--python", self.python, "install", "--only-binary", ":all:", *what, cwd=self.folder)

    def run(self, *words: object) -> "subprocess.CompletedProcess[str]":
        """The end of a command, the first word of which is in this environment."""
        command = [self.folder / "bin" / str(words[0]), *map(str, words[1:])]
        only = {"PATH": str(self.folder / "bin"), "HOME": str(self.folder)}
        return subprocess.run(command, cwd=self.folder, env=only, capture_output=True, text=True, timeout=120)

    def printed_by(self, program: str) -> str:
        """The output of one of the programs. A failure shows its errors."""
        done = self.run("python", "-I", "-W", "error", PROGRAMS / program)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


def environment(folder: Path, interpreter: object, wheel: Path) -> Environment:
    """A new environment with this wheel, and without what that could use."""
    run(interpreter, "-m", "venv", "--without-pip", folder, cwd=folder.parent)
    made = Environment(folder)
    made.install("--no-index", "--no-deps", wheel)
    return made


def check_alone(made: Environment) -> None:
    """A timer fires, and the command says what to install."""
    assert made.printed_by("alone.py") == "fired\n"
    for command in (["tickwheel"], ["tickwheel", "--help"], ["python", "-I", "-m", "tickwheel", "trace"]):
        done = made.run(*command)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr == "tickwheel: click is not installed: run pip install 'tickwheel[delivery]'\n"


def check_delivering(made: Environment, wheel: Path) -> None:
    """With its extra, which pip downloads, messages are delivered, and the command works."""
    made.install("-c", ROOT / "constraints.txt", f"{wheel}[delivery]")
    assert made.printed_by("delivering.py") == "delivered\n"
