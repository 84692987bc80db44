"""Rows of SQLite that compute for long: each costs its own attempt only (D6)."""

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

from delivery.sinks.making import batch, delivery, opened
from tickwheel.delivery.base.errors import Unanswered
from tickwheel.delivery.sinks import Sink, interrupting, sqlite

pytestmark = pytest.mark.timeout(60)

HOURS = 9_000.0
FOR_EVER = -1  # no limit
LOOKED_AT = 1_000_000  # rows to count: the sink has looked at the clock meanwhile

Slow = Callable[..., None]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "out.db"
    opened(f"sqlite:{path}?table=t").close()
    return path


@pytest.fixture
def slow(path: Path) -> Slow:
    """Makes rows slow: their trigger calls this function, and counts rows."""

    def make_slow(seqs: Iterable[int], rows: int = FOR_EVER, call: str = "1") -> None:
        names = ", ".join(f"'id{seq}'" for seq in seqs)
        with closing(sqlite3.connect(path)) as database:
            database.execute(
                f"CREATE TRIGGER slow BEFORE INSERT ON t WHEN new.id IN ({names}) BEGIN SELECT {call};"
                " SELECT count(*) FROM"
                f" (WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n LIMIT {rows}) SELECT x FROM n); END"
            )

    return make_slow


@pytest.fixture
def sink(path: Path) -> Iterator[Sink]:
    with closing(opened(f"sqlite:{path}?table=t", timeout_s=HOURS)) as sink:
        yield sink


@pytest.fixture
def takes(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> Callable[[float], str]:
    """A function of SQL that takes so many seconds, by the clock that the sink sees."""
    now_s = 0.0

    def pass_time(seconds: float) -> int:
        nonlocal now_s
        now_s += seconds
        return 1

    for module in (interrupting, sqlite):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now_s))
    assert isinstance(sink, sqlite.SqliteSink)
    sink._open().create_function("pass_time", 1, pass_time)
    return lambda seconds: f"pass_time({seconds})"


def there(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as database:
        return sorted(id_ for (id_,) in database.execute("SELECT id FROM t"))


def names_of(seqs: Iterable[int]) -> list[str]:
    return sorted(f"id{seq}" for seq in seqs)


@pytest.mark.parametrize("bad", [[5], [0, 1, 2, 3, 4], [0, 299]])
def test_rows_that_take_long_do_not_hold_up_their_batch__D6(path: Path, slow: Slow, bad: list[int]) -> None:
    slow(bad)
    with closing(opened(f"sqlite:{path}?table=t", timeout_s=4)) as sink:
        told = sink.send(batch(range(300)))
    assert sorted(told) == bad
    assert all(isinstance(reason, Unanswered) and "takes too long" in str(reason) for reason in told.values())
    assert there(path) == names_of(seq for seq in range(300) if seq not in bad)


def test_a_row_that_takes_for_ever_is_interrupted_and_the_next_send_goes_on__D6(path: Path, slow: Slow) -> None:
    """Its transaction would lock the file for ever, also after the send was cut off."""
    slow([5])
    with closing(opened(f"sqlite:{path}?table=t", timeout_s=1)) as sink:
        assert "takes too long" in str(sink.send(batch([5]))[0])
        assert sink.send(batch([6])) == {}
    assert there(path) == ["id6"]


def test_a_row_that_takes_long_is_written_where_it_is_sent_alone__D6(
    path: Path, sink: Sink, slow: Slow, takes: Callable[[float], str]
) -> None:
    slow([5], LOOKED_AT, takes(0.3 * HOURS))
    assert list(sink.send(batch(range(6)))) == [5]
    assert sink.send([delivery(5, attempt=2)]) == {}
    assert there(path) == names_of(range(6))


@pytest.mark.parametrize("slow_ones", [[5], [0, 299], range(0, 300, 150)])
def test_rows_that_take_a_part_of_the_time_are_written_at_once__D6(
    path: Path, sink: Sink, slow: Slow, takes: Callable[[float], str], slow_ones: Iterable[int]
) -> None:
    slow(slow_ones, LOOKED_AT, takes(0.05 * HOURS))
    assert sink.send(batch(range(300))) == {}
    assert there(path) == names_of(range(300))


def test_rows_that_no_time_is_left_for_were_not_tried__D6(path: Path, slow: Slow) -> None:
    slow(range(1, 1_000))
    with closing(opened(f"sqlite:{path}?table=t", timeout_s=2)) as sink:
        told = sink.send(batch(range(1_000)))
    assert sorted(told) == [*range(1, 1_000)]
    assert told[999] is None
    assert isinstance(told[1], Unanswered)
    assert there(path) == ["id0"]
