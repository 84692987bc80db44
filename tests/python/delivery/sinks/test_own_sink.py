"""A program's own sink: a subclass of `Sink`, given to a queue or named by `python:MODULE:CLASS` (rule D10)."""

import logging
import sqlite3
import threading
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tickwheel.delivery import Delivery, DeliveryFailed, DeliveryQueue, WrongUsage
from tickwheel.delivery.sinks import Refusals, Sink, SinkSettings, open_sink, sink_of

pytestmark = pytest.mark.timeout(60)


class Keeping(Sink):
    """Keeps what it gets in a list of the class."""

    max_batch = 10
    threads = 2
    opened: ClassVar[list[SinkSettings]] = []
    kept: ClassVar[list[tuple[str, str]]] = []

    def __init__(self, settings: SinkSettings, name: str = "-") -> None:
        self.opened.append(settings)
        self.name = name

    def send(self, deliveries: Sequence[Delivery]) -> Refusals:
        self.kept.extend((self.name, it.message.id) for it in deliveries)
        return {}


@pytest.fixture(autouse=True)
def _empty() -> None:
    Keeping.opened.clear()
    Keeping.kept.clear()


def put(folder: Path, to: Any) -> None:
    with DeliveryQueue(folder / "store.db", to=to, sink_timeout_s=7) as queue:
        queue.put("a", delay_ms=0)
        assert queue.wait_until_empty(20)


def test_a_queue_takes_a_class_and_opens_one_for_each_thread__D10(tmp_path: Path) -> None:
    put(tmp_path, Keeping)
    assert Keeping.kept == [("-", "a")]
    [first, second] = Keeping.opened
    assert first == second
    assert first.timeout_s == 7
    assert len(first.store_id) > 8


def test_a_partial_of_a_class_gives_it_arguments__D10(tmp_path: Path) -> None:
    put(tmp_path, partial(Keeping, name="the cellar"))
    assert Keeping.kept == [("the cellar", "a")]


def test_a_class_may_be_named_by_its_module__D10(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_sink_here.py").write_text(
        "from tickwheel.delivery.sinks import Sink\n"
        "class Shelf(Sink):\n"
        "    ids = []\n"
        "    def send(self, deliveries):\n"
        "        self.ids += [it.message.id for it in deliveries]\n"
        "        return {}\n"
    )
    put(tmp_path, "python:own_sink_here:Shelf")
    import own_sink_here  # type: ignore[import-not-found]

    assert own_sink_here.Shelf.ids == ["a"]


def test_what_can_not_be_opened_again_or_sends_nothing_is_refused__D10(tmp_path: Path) -> None:
    class Nothing(Sink):
        pass

    with pytest.raises(WrongUsage, match="the sink Nothing has no send: define it"):
        sink_of(Nothing)
    with pytest.raises(WrongUsage, match="a new one is needed for each thread: give the class"):
        sink_of(Keeping(SinkSettings("x")))
    with pytest.raises(WrongUsage, match="the sink Sink has no send"):
        open_sink("python:tickwheel.delivery.sinks:Sink")


def test_a_constructor_that_raises_keeps_the_queue_from_opening__D10(tmp_path: Path) -> None:
    class Closed(Keeping):
        def __init__(self, settings: SinkSettings) -> None:
            raise OSError("no route to the cellar")

    with pytest.raises(DeliveryFailed, match="the sink can't be opened: OSError: no route to the cellar"):
        put(tmp_path, Closed)


def test_a_sink_that_can_not_forget_costs_no_attempt_and_is_asked_again__D5(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[tuple[int, bool]] = []
    sent: list[tuple[str, int]] = []

    class Forgetful(Sink):
        def send(self, deliveries: Sequence[Delivery]) -> Refusals:
            sent.extend((it.message.id, it.attempt) for it in deliveries)
            return {}

        def committed(self, sends: int, earlier: bool) -> None:
            told.append((sends, earlier))
            if len(told) <= 3:
                raise KeyError("the digests")

    with (
        caplog.at_level(logging.ERROR, "tickwheel.delivery"),
        DeliveryQueue(tmp_path / "store.db", to=Forgetful, max_attempts=1) as queue,
    ):
        for number in range(5):
            queue.put(f"{number}", delay_ms=0)
            assert queue.wait_until_empty(20)
    assert sent == [(f"{number}", 1) for number in range(5)]
    assert told == [(number, True) for number in range(5)]
    logged = [record for record in caplog.records if "committed() failed" in record.getMessage()]
    assert len(logged) == 1
    assert "KeyError('the digests')" in logged[0].getMessage()
    assert logged[0].exc_info is not None


@pytest.mark.parametrize("position", [5, "\ud800", KeyError("the position")], ids=["a number", "no text", "an error"])
def test_a_position_that_can_not_be_told_is_logged_once_and_the_last_one_holds__D5(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, position: object
) -> None:
    asked: list[object] = []

    class Lost(Sink):
        def send(self, deliveries: Sequence[Delivery]) -> Refusals:
            return {}

        def position(self) -> Any:
            asked.append(position)
            if len(asked) in (1, 3):
                return f"after {len(asked)} calls"
            if isinstance(position, Exception):
                raise position
            return position

    with (
        caplog.at_level(logging.ERROR, "tickwheel.delivery"),
        DeliveryQueue(tmp_path / "store.db", to=Lost) as queue,
    ):
        for number in range(6):
            queue.put(f"{number}", delay_ms=0)
            assert queue.wait_until_empty(20)
    assert queue.summary.delivered == 6
    logged = [record for record in caplog.records if "position() failed" in record.getMessage()]
    assert len(logged) == 2, "once before the third call, and once after it"
    assert all(record.exc_info is not None for record in logged)
    with closing(sqlite3.connect(tmp_path / "store.db")) as db:
        assert db.execute("SELECT value FROM meta WHERE name = 'position'").fetchall() == [("after 3 calls",)]


def test_a_position_that_can_not_be_told_at_the_start_is_logged__D5(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Lost(Keeping):
        threads = 1

        def position(self) -> str:
            raise KeyError("the position")

    put(tmp_path, Lost)
    assert Keeping.kept == [("-", "a")]
    assert "a sink's position() failed" in caplog.text


def test_a_position_that_hangs_is_cut_off_as_a_send_is__D6(tmp_path: Path) -> None:
    held = threading.Event()
    sent: list[tuple[str, int]] = []
    asked: list[int] = []

    class Hangs(Sink):
        def send(self, deliveries: Sequence[Delivery]) -> Refusals:
            sent.extend((it.message.id, it.attempt) for it in deliveries)
            return {}

        def position(self) -> None:
            asked.append(len(sent))
            if asked == [0, 1]:
                held.wait(20)

    with DeliveryQueue(tmp_path / "store.db", to=Hangs, sink_timeout_s=0.2, backoff_s=(0.01, 0.1)) as queue:
        queue.put("a", delay_ms=0)
        assert queue.wait_until_empty(20)
        held.set()
    assert sent == [("a", 1), ("a", 2)]


def test_a_sync_that_fails_says_that_it_was_the_sinks_sync__D5(tmp_path: Path) -> None:
    class Broken(Keeping):
        threads = 1

        def sync(self) -> None:
            raise OSError("the tape is full")

    queue = DeliveryQueue(tmp_path / "store.db", to=Broken)
    queue.put("a", delay_ms=0)
    with pytest.raises(DeliveryFailed, match=r"the sink's sync\(\) failed: OSError: the tape is full"):
        queue.wait_until_empty(20)
    with pytest.raises(DeliveryFailed, match=r"the sink's sync\(\) failed"):
        queue.close()


def test_a_sync_that_hangs_is_told_while_it_does__D15(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    told = threading.Event()

    class Tells(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "sync()" in record.getMessage():
                told.set()

    class Slow(Keeping):
        threads = 1

        def sync(self) -> None:
            assert told.wait(30)

    logger, handler = logging.getLogger("tickwheel.delivery"), Tells()
    logger.addHandler(handler)
    try:
        put(tmp_path, Slow)
    finally:
        logger.removeHandler(handler)
    [record] = [record for record in caplog.records if "sync()" in record.getMessage()]
    assert record.levelno == logging.WARNING
    assert record.getMessage() == "a sink's sync() takes more than 3 s, and nothing is committed until it returns"
