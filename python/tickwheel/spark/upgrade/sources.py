"""How far the sources of a checkpoint were read, from Spark's own logs."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from urllib.parse import unquote

import msgspec

from tickwheel.delivery.base.errors import WrongUsage
from tickwheel.spark.file_log import SUMMARY, entries, names_of
from tickwheel.spark.shape import Folder, read_text

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
    these notes. Errors: `WrongUsage` if a part is missing or damaged.
    """
    name = f"offsets/{batch}"
    text = read_text(query, name)
    if text is None:
        raise WrongUsage(f"{query}/{name} is missing: restore it from a copy")
    # Line 0 is a version, line 1 has settings; then each source has a line.
    lines = enumerate(text.split("\n")[2:])
    found = [source for number, line in lines if (source := _source(query, number, line, notes)) is not None]
    if not found:
        raise WrongUsage(f"{query}/{name} is damaged, as it names no input: restore it from a copy")
    return found


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
        case {**topics} if topics:
            with suppress(msgspec.ValidationError):  # that of another source
                return Source(offsets=msgspec.convert(topics, dict[str, dict[str, int]]))
    return Source(other=line)


def _files(query: Folder, number: int, last: int) -> Iterator[str]:
    """The addresses of files that were read. Errors: `WrongUsage` if one of Spark's lists is missing or damaged."""
    names = names_of(query, number, last=last)
    first = next((at for at, name in names.items() if name.endswith(SUMMARY)), 0)
    missing = [at for at in range(first, last + 1) if at not in names]
    if missing:
        raise WrongUsage(
            f"{query}/sources/{number}/{missing[0]} is missing, which lists files that were read: restore it from a "
            "copy"
        )
    for name in names.values():
        yield from (it.path for it in entries(query, name))


def _noted(paths: Sequence[str], notes: Folder) -> Iterator[str]:
    for path in paths:
        text = read_text(notes, path.rpartition("/")[2])
        if text is not None:
            yield unquote(text.strip())
