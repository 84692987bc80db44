"""The folder that a batch job writes its figures and its page to: new, empty, or written by the same command before.

Everything is made in a folder inside it and moved to its place at the end, the page last. A failed job changes nothing
there. A mark in the folder says which command made it, so that nothing else is ever overwritten.
"""

import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from tickwheel.delivery.base.errors import DeliveryFailed, WrongUsage

PAGE: Final = "index.html"

_MARK: Final = ".tickwheel"
_NEW: Final = "unfinished"


def check_out(out: Path, names: Collection[str], command: str) -> None:
    """Errors: `WrongUsage` if the folder holds anything but files of these names that this command wrote."""
    if out.is_dir():
        there = {path.name for path in out.iterdir()}
        others = sorted(there - {_MARK, _NEW, PAGE, *names} if _is_of(out, command) else there)
        if others:
            raise WrongUsage(f"--out: {out} holds other things ({others[0]}): name a new folder, or an empty one")
    elif out.exists():
        raise WrongUsage(f"--out: {out} is not a folder: name a new one")
    elif not out.parent.is_dir():
        raise WrongUsage(f"--out: there is no folder {out.parent}: make it, or name another")


@contextmanager
def replacing(out: Path, names: Collection[str], command: str) -> Iterator[Path]:
    """A folder to write to; at the end its contents replace those of `out`.

    Errors: `WrongUsage`, `DeliveryFailed`.
    """
    check_out(out, names, command)
    new, was_there, was_marked = out / _NEW, out.exists(), (out / _MARK).exists()
    try:
        out.mkdir(exist_ok=True)
        (out / _MARK).write_text(_made_by(command), encoding="utf-8")
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir()
        yield new
        (out / PAGE).unlink(missing_ok=True)  # a folder without its page is visibly incomplete
        for name in (*names, PAGE):
            if (out / name).is_dir():
                shutil.rmtree(out / name)
            if (new / name).exists():
                (new / name).rename(out / name)
    except OSError as error:
        raise DeliveryFailed(f"{out} can't be written: {error.strerror or error}") from error
    finally:
        shutil.rmtree(new, ignore_errors=True)
        if not (was_marked or (out / PAGE).exists()):
            (out / _MARK).unlink(missing_ok=True)
            if not was_there:
                with suppress(OSError):
                    out.rmdir()


def _is_of(out: Path, command: str) -> bool:
    mark = out / _MARK
    return mark.is_file() and mark.read_text(encoding="utf-8", errors="replace") == _made_by(command)


def _made_by(command: str) -> str:
    return f"made by {command}, which replaces what is here\n"
