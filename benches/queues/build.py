"""What the queues of other languages need: packages of Node, and River's program, in the project's build folder."""

import json
import re
import shutil
import subprocess
from pathlib import Path

from .servers import program
from .sides import FOLDER, HERE, SIDES


def all_that_can_be() -> None:
    """Fetch and build for the sides that this machine can measure."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    languages = {side.language for side in SIDES if not side.missing}
    if "Node" in languages:
        source, target = HERE / "programs/node", FOLDER / "node"
        target.mkdir(exist_ok=True)
        lock, stamp = source / "package-lock.json", target / "package-lock.json"
        is_new = not stamp.exists() or stamp.read_bytes() != lock.read_bytes() or not (target / "node_modules").exists()
        for file in source.iterdir():
            if file.is_file():
                shutil.copy(file, target)
        if is_new:
            _run(["npm", "ci", "--no-audit", "--no-fund", "--loglevel=error"], target)
    if "Go" in languages:
        _run(["go", "build", "-o", str(FOLDER / "river"), "."], HERE / "programs/river")


def versions() -> dict[str, str]:
    """Of what is no Python package; and why a side is not measured."""
    packages = json.loads((HERE / "programs/node/package.json").read_text())["dependencies"]
    river = re.search(r"riverqueue/river v(\S+)", (HERE / "programs/river/go.mod").read_text())
    found = {name: str(version) for name, version in packages.items()} | {"river": river[1] if river else ""}
    for name, ask in (("postgresql", "postgres"), ("redis", "redis-server")):
        if path := program(ask):
            said = subprocess.run([path, "--version"], capture_output=True, text=True, check=True).stdout
            number = re.search(r"\d+(\.\d+)+", said)
            found[name] = number[0] if number else said.strip()
    return found | {side.name: f"not measured, {side.missing} is missing" for side in SIDES if side.missing}


def _run(command: list[str], folder: Path) -> None:
    subprocess.run(command, cwd=folder, check=True)
