"""Checks the recordings given to a command before Spark starts."""

from collections.abc import Sequence
from pathlib import Path

from tickwheel.delivery.base.errors import WrongUsage
from tickwheel.recording import About, BadRecording, about


def look_at(recordings: Sequence[Path]) -> Sequence[tuple[Path, About]]:
    """Each recording's own description. Errors: `WrongUsage`."""
    found = []
    for path in recordings:
        try:
            found.append((path, about(path)))
        except FileNotFoundError as error:
            raise WrongUsage(f"there is no recording {path}: name a file that tickwheel.recording wrote") from error
        except (BadRecording, OSError) as error:
            raise WrongUsage(str(error)) from error
    return found
