"""How far the sources of a checkpoint were read, from Spark's own logs."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

import msgspec

from tickwheel.delivery.base.errors import WrongUsage
from tickwheel.spark.shape import Folder

_NUMBER = re.compile(r"\d+")


class Source(msgspec.Struct, omit_defaults=True):
    """The position in a source. `offsets`: the next offset of each topic and partition of Kafka. `files`: those that
    were read. `other`: any other source's own text.
    """

    offsets: Mapping[str, Mapping[str, int]] | None = None
    files: Sequence[str] | None = None
    other: str | None = None


def last_done(query: Folder) -> int:
    """The last complete micro-batch. Errors: `WrongUsage` if there is none."""
    done = [int(it) for it in query.names("commits") if _NUMBER.fullmatch(it)]
    if not done:
        raise WrongUsage(
            f"{query} has no complete micro-batch, so it holds nothing: start with a new checkpoint, and read the "
            "input from its start"
        )
    return max(done)


def sources_of(query: Folder, batch: int, notes: Folder | None) -> list[Source]:
    """All sources but the hold's ticks. `notes`: where `tickwheel deliver` notes which files there are; its query reads
    these notes. Errors: `WrongUsage` if a part is missing.
    """
    text = query.read(f"offsets/{batch}")
    if text is None:
        raise WrongUsage(f"{query}/offsets/{batch} is missing: restore it from a copy")
    # Line 0 is a version, line 1 has settings; then each source has a line.
    lines = enumerate(text.decode().split("\n")[2:])
    return [found for number, line in lines if (found := _source(query, number, line, notes)) is not None]


def _source(query: Folder, number: int, line: str, notes: Folder | None) -> Source | None:
    try:
        offset = msgspec.json.decode(line)
    except msgspec.MsgspecError:
        return Source(other=line)
    match offset:
        case {"offset": int(), "timestamp": int()}:
            return None
        case {"logOffset": int(last)}:
            files = [*_files(query, number, last)]
            return Source(files=sorted(files if notes is None else _noted(files, notes)))
        case {**topics} if topics and all(isinstance(it, dict) for it in topics.values()):
            return Source(offsets=msgspec.convert(topics, dict[str, dict[str, int]]))
    return Source(other=line)


def _files(query: Folder, number: int, last: int) -> Iterator[str]:
    """The addresses of files that were read, from the last summary on."""
    folder = f"sources/{number}"
    names = {*query.names(folder)}
    first = max((at for at in range(last + 1) if f"{at}.compact" in names), default=0)
    for at in range(first, last + 1):
        name = f"{at}.compact" if f"{at}.compact" in names else f"{at}"
        text = query.read(f"{folder}/{name}")
        if text is None:
            raise WrongUsage(f"{query}/{folder}/{name} is missing, which lists files that were read: restore it")
        for line in text.decode().split("\n")[1:]:
            if line:
                entry: dict[str, Any] = msgspec.json.decode(line)
                yield unquote(entry["path"])


def _noted(paths: Sequence[str], notes: Folder) -> Iterator[str]:
    for path in paths:
        text = notes.read(path.rpartition("/")[2])
        if text is not None:
            yield unquote(text.decode().strip())
