"""Finds files of which an earlier run has refused rows: their dead letters are kept, and the rows still stand there.

Such a row is not read again, also if it was refused for an option that was left out, as `--zone`. So a run that reads
on in such a file does not end with 0.
"""

from codecs import BOM_UTF8
from collections.abc import Iterator, Mapping
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Final

from tickwheel._native import StoreSnapshot

_PAGE: Final = 1_000
_FIRST_BYTES: Final = 1_000
_CANDIDATES: Final = 20
"""How many letters of a file's name are looked at, the last one first."""


def refused_rows(store: Path, files: Mapping[str, Path]) -> dict[str, str]:
    """For each of these files with a refused row, the reason of the last one. Errors: `StoreFailed`, `OSError`."""
    left, found = dict.fromkeys(files, _CANDIDATES), dict[str, str]()
    with StoreSnapshot(store) as db:
        for source, reason, record in _letters(db):
            for name in [name for name in left if files[name].name == Path(source).name]:
                left[name] -= 1
                if _holds(files[name], record):
                    found[name] = reason
                if name in found or not left[name]:
                    del left[name]
            if not left:
                break
    return found


def _letters(db: StoreSnapshot) -> Iterator[tuple[str, str, bytes]]:
    before_n = 2**62
    while rows := db.letters(before_n, None, None, _PAGE, _FIRST_BYTES):
        for n, _, source, _, reason, _, record, *_ in rows:
            before_n = n
            yield source, reason, record


def _holds(path: Path, record: bytes) -> bool:
    """Whether it is a line of the file. A letter of Parquet has the row as JSON: its name must do."""
    if path.suffix.lower() == ".parquet":
        return True
    is_cut = len(record) == _FIRST_BYTES
    with path.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as data:
        at = data.find(record)
        while at >= 0:
            begin, end = data.rfind(b"\n", 0, at) + 1, data.find(b"\n", at + len(record))
            before, after = data[begin:at], data[at + len(record) : len(data) if end < 0 else end]
            if not before.removeprefix(BOM_UTF8).strip() and (is_cut or not after.strip()):
                return True
            at = -1 if end < 0 else data.find(record, end + 1)
        return False
