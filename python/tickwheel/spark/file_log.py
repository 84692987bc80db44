"""Spark's list of the input's files: `sources` in the checkpoint. The files of the next micro-batch are on it, too.

Each micro-batch adds a file with its entries. From time to time Spark sums up all entries in `N.compact`.
"""

from collections.abc import Iterator, Mapping
from typing import Final
from urllib.parse import unquote

import msgspec

from tickwheel.delivery.base.errors import WrongUsage
from tickwheel.spark.shape import Folder, read_text

_SUMMARY: Final = ".compact"


class Entry(msgspec.Struct, rename={"changed_ms": "timestamp", "number": "batchId"}):
    """A file: its address, and the time of its last change in milliseconds since 1970. `number`: of the file of the
    list that had it first.
    """

    path: str
    changed_ms: int
    number: int


_ENTRY: Final = msgspec.json.Decoder(Entry)


def names_of(query: Folder, source: int, *, after: int) -> Mapping[int, str]:
    """The files of the list with a number above `after`, in order. A summary stands for all before it."""
    names = {*query.names(f"sources/{source}")}
    numbers = {int(it.removesuffix(_SUMMARY)) for it in names if it.removesuffix(_SUMMARY).isdecimal()}
    within = sorted(it for it in numbers if it > after)
    first = max((it for it in within if f"{it}{_SUMMARY}" in names), default=-1)
    return {it: f"sources/{source}/{it}{_SUMMARY if it == first else ''}" for it in within if it >= first}


def entries(query: Folder, name: str) -> Iterator[Entry]:
    """The entries of one file of the list. Errors: `WrongUsage` if it is damaged."""
    for line in (read_text(query, name) or "").split("\n")[1:]:  # the first is a version
        if line:
            try:
                found = _ENTRY.decode(line)
            except msgspec.MsgspecError as error:
                raise WrongUsage(
                    f"{query}/{name}, which lists files that were read, is damaged ({error}): restore it from a copy"
                ) from error
            yield Entry(unquote(found.path), found.changed_ms, found.number)
