"""Any text is a name, and any bytes are a payload: both come out unchanged, and none is confused with another."""

import time
from collections.abc import Iterator
from itertools import permutations
from pathlib import Path

import msgspec
import pytest

from delivery.delivering import LONG_S, Run, to_function
from tickwheel.delivery import Answer, Cancel, Delivery, Message
from tickwheel.delivery.model.entries import Look
from tickwheel.delivery.model.settings import Settings

DUE_MS = 1_700_000_000_000

ODD = [
    "\0",
    "a\0b",
    "a\0",
    "a",
    "'",
    '"; DROP TABLE messages; --',
    "%_?",
    "🦊",
    "é",
    "e\u0301",
    " a",
    "a ",
    "A",
    "\n",
    "ß",
]


def message(id_: str, key: str | None = None, payload: msgspec.Raw | bytes = b"1") -> Message:
    return Message(id_, key, DUE_MS, payload)


def not_started(folder: Path, *, to: list[Delivery] | None = None) -> Run:
    """Nothing is due yet."""
    return Run(folder, to_function(([] if to is None else to).append), starts=False)


def deliver_all(folder: Path) -> list[Delivery]:
    """Opens the store again, and delivers what is in it."""
    arrived: list[Delivery] = []
    with not_started(folder, to=arrived) as run:
        run.running.start()
        assert run.running.wait(LONG_S)
    return arrived


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    with not_started(tmp_path) as opened:
        yield opened


def test_odd_texts_are_names_of_their_own_as_id_and_as_key__D1(tmp_path: Path) -> None:
    pairs = [(None, id_) for id_ in ODD] + list(permutations(ODD, 2))
    with not_started(tmp_path) as run:
        assert set(run.give(*(message(id_, key) for key, id_ in pairs))) == {Answer.ACCEPTED}
    cancelled = pairs[::2]
    with not_started(tmp_path) as run:
        assert run.give(*(Look(id_, key) for key, id_ in pairs)) == [Answer.WAITING] * len(pairs)
        assert run.give(*(message(id_, key) for key, id_ in pairs)) == [Answer.DUPLICATE] * len(pairs)
        assert set(run.give(*(Cancel(id_, key) for key, id_ in cancelled))) == {Answer.CANCELLED}
    sent = [(it.message.key, it.message.id) for it in deliver_all(tmp_path)]
    assert sorted(sent, key=pairs.index) == [pair for pair in pairs if pair not in cancelled]


def test_a_mebibyte_is_a_name_too__D1(tmp_path: Path) -> None:
    long = "x" * (1 << 20)
    items = [message(long), message("a", long), message(long[:-1] + "y"), message("y", long)]
    with not_started(tmp_path) as run:
        assert run.give(*items) == [Answer.ACCEPTED] * 4
        assert run.give(Cancel(long, long)) == [Answer.UNKNOWN]
    with not_started(tmp_path) as run:
        assert run.give(*items) == [Answer.DUPLICATE] * 4
        assert run.give(message(long, long)) == [Answer.CANCELLED]
    sent = deliver_all(tmp_path)
    assert {(it.message.key, it.message.id) for it in sent} == {(it.key, it.id) for it in items}


def test_what_a_message_takes_in_memory_counts_its_key_and_id__D8(tmp_path: Path) -> None:
    long = "🦊" * 100_000
    soon_ms = time.time_ns() // 1_000_000 + 1_800_000
    with Run(tmp_path, to_function(print), Settings(horizon_s=3_600)) as run:
        run.give(Message(long, None, soon_ms, b"1"), Message("a", long, soon_ms, b"1"))
        messages, size = run.running.engine.in_memory()
    assert messages == 2
    assert size >= 2 * len(long.encode())


@pytest.mark.parametrize(
    "payload",
    [b"", b"\0", b"\xff\xfe", b"1", msgspec.Raw(b"1"), msgspec.Raw(b'"\\u0000"'), msgspec.Raw('"é🦊"'.encode())],
    ids=lambda payload: f"{type(payload).__name__} {bytes(payload)!r}",
)
def test_a_payload_comes_out_as_it_went_in__D1(tmp_path: Path, payload: msgspec.Raw | bytes) -> None:
    with not_started(tmp_path) as run:
        run.give(message("a", payload=payload))
    [delivery] = deliver_all(tmp_path)
    found = delivery.message.payload
    assert (type(found), bytes(found)) == (type(payload), bytes(payload))


def test_the_content_tells_bytes_from_text_and_a_time_from_a_delay__D5(run: Run) -> None:
    others = [
        Message("a", None, DUE_MS, b"1"),
        Message("a", None, DUE_MS, msgspec.Raw(b"1")),
        Message("a", None, DUE_MS, msgspec.Raw(b'"MQ=="')),
        Message("a", None, DUE_MS + 1, b"1"),
        Message("a", None, DUE_MS, b"1", 5),
        Message("a", None, DUE_MS, b"1", 6),
        Message("a", None, DUE_MS, msgspec.Raw(b"1"), 5),
    ]
    for first in others:
        named = [msgspec.structs.replace(it, key=f"{others.index(first)}") for it in (first, *others)]
        expected = [Answer.DUPLICATE if it is first else Answer.CONFLICT for it in others]
        assert run.give(*named) == [Answer.ACCEPTED, *expected]


@pytest.mark.parametrize(("given", "again"), [(10, 10.0), (10.0, 10), (1.5, 1.5)])
def test_the_same_delay_is_the_same_content_with_and_without_a_point__D5(run: Run, given: float, again: float) -> None:
    assert run.give(Message("a", None, DUE_MS, b"1", given)) == [Answer.ACCEPTED]
    assert run.give(Message("a", None, DUE_MS + 7, b"1", again)) == [Answer.DUPLICATE]


def test_the_border_between_key_and_id_counts__D1(run: Run) -> None:
    pairs = [("a", "bc"), ("ab", "c"), (None, "abc"), ("1:a", "b"), ("1", ":ab"), ("1", "a:b")]
    assert run.give(*(message(id_, key) for key, id_ in pairs)) == [Answer.ACCEPTED] * len(pairs)
