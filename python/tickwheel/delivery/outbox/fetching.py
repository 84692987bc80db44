"""Reads a batch of an outbox. If a row can't be fetched, that row is found, and the rows before it are read.

    read 4,096 rows: fails -> their numbers -> fetch the first half: fails -> its first half ... -> the row

A row is blamed only if the same statement succeeds for a row that is not there. Otherwise the whole outbox is down.
"""

from collections.abc import Sequence

from tickwheel.delivery.outbox.source import LEAST, MOST, Blame, Row, Source
from tickwheel.delivery.outbox.tables import BATCH_BYTES


def read_batch(source: Source, passed: Sequence[int]) -> Sequence[Row]:
    """A batch. If a row can't be fetched: the rows before it, and the row without its record. Errors: of the source."""
    try:
        return source.read(passed)
    except Exception as error:
        _blame_of(source, error)
        source.fetch([LEAST])  # there is no such row: if this fails, no row is the reason
        failure = error
    numbers = _first_numbers(source, passed)
    rows: list[Row] = []
    while numbers:  # one of them can't be fetched
        part = numbers[: (len(numbers) + 1) // 2]
        try:
            fetched = source.fetch(part) if len(part) > 1 else fetch_row(source, part[0])
        except Exception as error:
            _blame_of(source, error)
            numbers = part
            continue
        rows += fetched
        is_full = sum(row.size for row in rows) >= BATCH_BYTES
        if len(fetched) < len(part) or fetched[-1].fault or is_full:
            break
        numbers = numbers[len(part) :]
    if not rows:
        raise failure
    return rows


def fetch_row(source: Source, n: int) -> Sequence[Row]:
    """The row, or nothing if it is not there. If it can't be fetched, it has no record. Errors: of the source."""
    try:
        return source.fetch([n])
    except Exception as error:
        return [Row(n, 0, None, 0, text_of(error), stays=_blame_of(source, error) is Blame.CODE)]


def text_of(error: Exception) -> str:
    """The error in a line."""
    name = getattr(error, "sqlite_errorname", None)  # it says more than the text, which is "disk I/O error" for many
    return " ".join(f"{type(error).__name__}: {error}{f' ({name})' if name else ''}".split())


def _first_numbers(source: Source, passed: Sequence[int]) -> Sequence[int]:
    """If a policy of the database fails for a row, not even its number can be read. Then the range of all numbers is
    halved, at most 64 times, until the numbers before it are found, or this one.
    """
    low, high, middle = LEAST, MOST, MOST
    while low < high:
        try:
            numbers = source.first_numbers(passed, low, middle)
        except Exception as error:
            if _blame_of(source, error) is Blame.DAMAGE:
                raise
            high = middle
        else:
            if numbers or middle == MOST:
                return numbers
            low = middle + 1
        middle = (low + high) // 2
    return [low]


def _blame_of(source: Source, error: Exception) -> Blame:
    """Errors: the error, if it is not about a row."""
    blame = source.blame(error)
    if blame is Blame.ALL:
        raise error
    return blame
