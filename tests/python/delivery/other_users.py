"""pytest's folders are for their owner alone, and a test that becomes another user must reach its own."""

from pathlib import Path


def let_others_reach(folder: Path) -> None:
    """Let all users enter this folder of a test, and those around it that pytest has made."""
    made = [each for each in (folder, *folder.parents) if any("pytest-of-" in part for part in each.parts)]
    assert made, f"{folder} is no folder of pytest"
    for each in made:
        each.chmod(0o755)
