"""Checks the output files before anything is read: each in an existing folder, and none used for two purposes."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from tickwheel.delivery.errors import WrongUsage
from tickwheel.delivery.sources import Source


def check_outputs(outputs: Mapping[str, Path | None], sources: Sequence[Source]) -> None:
    """`outputs` by option; `None`: not used. Errors: `WrongUsage`."""
    taken = {source.path.resolve(): "an input" for source in sources if source.path is not None}
    for option, path in outputs.items():
        if path is None:
            continue
        if not path.parent.is_dir():
            raise WrongUsage(f"{option}: there is no folder {path.parent}: make it, or name another file")
        if path.is_dir():
            raise WrongUsage(f"{option}: {path} is a folder: name a file")
        if path.resolve() in taken:
            raise WrongUsage(f"{option}: {path} is already {taken[path.resolve()]}: name another file")
        taken[path.resolve()] = f"the file of {option}"
