"""The files of a folder that are read, and what is said about the others.

Files are left out if their name, or the name of a folder above them, begins with a dot or an underscore, and if their
suffix is no format. A compressed file is left out too: another program unpacks it into standard input. So is what is
no file, and a link to a folder, which could lead round in a circle. The name of a folder such as `country=de`, as Spark
and Hive write it, is no column: the files are read, and this is said.
"""

import errno
import os
import shlex
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from tickwheel.delivery.base.errors import WrongUsage

SUFFIXES: Final = (".ndjson", ".jsonl", ".csv", ".parquet")
_UNPACK: Final = {".gz": "zcat", ".zst": "zstdcat", ".bz2": "bzcat", ".xz": "xzcat"}
_NAMED = 5

# The errors of a link to nothing, and of one that leads to itself.
_NOTHING_THERE: Final = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG)


def files_of(folder: Path, say: Callable[[str], object]) -> list[Path]:
    """The files to read, by name. Errors: `WrongUsage` if there are none, or if a folder can't be read."""
    found, hidden, others, no_files = list[Path](), list[Path](), list[Path](), list[Path]()
    for file in _below(folder):
        name = file.relative_to(folder)
        is_format = file.suffix.lower() in SUFFIXES
        if _is_hidden(name):
            if is_format or way_to_read(file):
                hidden.append(name)
        elif not _is_file(file):
            no_files.append(name)
        elif is_format:
            found.append(file)
        else:
            others.append(name)
    formats = ", ".join(SUFFIXES)
    if hidden:
        say(f"Not read in {folder}, as the name begins with . or _: {some_of(hidden)}")
    if others:
        hints = [hint for hint in (way_to_read(folder / name) for name in others) if hint]
        more = f". Compressed: {hints[0]}" if hints else ""
        say(f"Not read in {folder}, as the suffix is none of {formats}: {some_of(others)}{more}")
    if no_files:
        say(f"Not read in {folder}, as they are links to folders, links to nothing, or no files: {some_of(no_files)}")
    if not found:
        raise WrongUsage(f"{folder} holds no files that can be read: give a folder with {formats} files")
    columns = sorted({part for file in found for part in file.relative_to(folder).parts[:-1] if "=" in part})
    if columns:
        say(f"Folders in {folder} are no columns, and no message has their values: {some_of(columns)}")
    return found


def _is_hidden(name: Path) -> bool:
    return any(part.startswith((".", "_")) or part == "lost+found" for part in name.parts)


def _below(folder: Path) -> list[Path]:
    """All that is below a folder but folders, by name. Errors: `WrongUsage` if one can't be read that is not hidden."""

    def refuse(error: OSError) -> None:
        if _is_hidden(Path(error.filename).relative_to(folder)):
            return
        where = path_as_text(Path(error.filename))
        raise WrongUsage(f"the folder {where} can't be read: {error.strerror}: permit it, or move it away") from error

    found = list[Path]()
    for above, folders, files in os.walk(folder, onerror=refuse):
        found += [Path(above, name) for name in files]
        # A folder that can't be entered says no, where `Path` raises.
        found += [path for name in folders if os.path.islink(path := Path(above, name))]  # noqa: PTH114
    return sorted(found)


def _is_file(path: Path) -> bool:
    """Whether it is a file, or a link to one. Errors: `WrongUsage` if that can't be seen."""
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except OSError as error:
        if error.errno in _NOTHING_THERE:
            return False
        where = path_as_text(path)
        raise WrongUsage(f"{where} can't be read: {error.strerror}: mend that, or move it away") from error


def way_to_read(path: Path) -> str | None:
    """How a compressed file can be read; `None` if it is not compressed."""
    unpack, inner = _UNPACK.get(path.suffix.lower()), Path(path.stem).suffix.lower()
    if unpack is None or inner not in ("", *SUFFIXES):
        return None
    name = shlex.quote(path_as_text(path))
    if inner == ".parquet":
        return f"unpack it: {unpack} {name} >{shlex.quote(path.stem)}"
    return f"pipe {unpack} {name} into the same command, with - --format {'csv' if inner == '.csv' else 'ndjson'}"


def path_as_text(path: Path) -> str:
    """A path as text that can be written, whatever bytes it holds."""
    return os.fsencode(path).decode(errors="backslashreplace")


def some_of(names: Sequence[Path | str]) -> str:
    """The first names, and how many more there are."""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(path_as_text(Path(name)) for name in names[:_NAMED]) + more
