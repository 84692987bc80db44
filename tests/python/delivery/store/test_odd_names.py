"""Any text is a name, and any bytes are a payload: both come out unchanged, and none is confused with another."""

from itertools import permutations
from typing import Any

import msgspec
import pytest

from tickwheel.delivery import Answer, Cancel, Message
from tickwheel.delivery.model.entries import Look

Desk = Any  # of ../conftest.py
START_MS = 1_700_000_000_000
LATER_MS = START_MS + 1_000

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
    return Message(id_, key, LATER_MS, payload)


def test_odd_texts_are_names_of_their_own_as_id_and_as_key__D1(desk: Desk) -> None:
    pairs = [(None, id_) for id_ in ODD] + list(permutations(ODD, 2))
    assert set(desk.hand_in(*(message(id_, key) for key, id_ in pairs))) == {Answer.ACCEPTED}
    desk = desk.again()
    assert desk.hand_in(*(Look(id_, key) for key, id_ in pairs)) == [Answer.WAITING] * len(pairs)
    assert desk.hand_in(*(message(id_, key) for key, id_ in pairs)) == [Answer.DUPLICATE] * len(pairs)
    cancelled = pairs[::2]
    assert set(desk.hand_in(*(Cancel(id_, key) for key, id_ in cancelled))) == {Answer.CANCELLED}
    desk.start().advance(1_000)
    sent = [(it.message.key, it.message.id) for it in desk.sink.sent]
    assert sorted(sent, key=pairs.index) == [pair for pair in pairs if pair not in cancelled]


def test_a_mebibyte_is_a_name_too__D1(desk: Desk) -> None:
    long = "x" * (1 << 20)
    items = [message(long), message("a", long), message(long[:-1] + "y"), message("y", long)]
    assert desk.hand_in(*items) == [Answer.ACCEPTED] * 4
    assert desk.cancel(long, long) is Answer.UNKNOWN
    desk = desk.again().start()
    assert desk.hand_in(*items) == [Answer.DUPLICATE] * 4
    assert desk.hand_in(message(long, long)) == [Answer.CANCELLED]
    desk.advance(1_000)
    assert {(it.message.key, it.message.id) for it in desk.sink.sent} == {(it.key, it.id) for it in items}


def test_what_a_message_takes_in_memory_counts_its_key_and_id__D8(desk: Desk) -> None:
    long = "🦊" * 100_000
    desk.start().hand_in(message(long), message("a", long))
    messages, size = desk.engine.native.in_memory()
    assert messages == 2
    assert size >= 2 * len(long.encode())


@pytest.mark.parametrize(
    "payload",
    [b"", b"\0", b"\xff\xfe", b"1", msgspec.Raw(b"1"), msgspec.Raw(b'"\\u0000"'), msgspec.Raw('"é🦊"'.encode())],
    ids=lambda payload: f"{type(payload).__name__} {bytes(payload)!r}",
)
def test_a_payload_comes_out_as_it_went_in__D1(desk: Desk, payload: msgspec.Raw | bytes) -> None:
    desk.hand_in(message("a", payload=payload))
    desk = desk.again().start()
    desk.advance(1_000)
    [delivery] = desk.sink.sent
    found = delivery.message.payload
    assert (type(found), bytes(found)) == (type(payload), bytes(payload))


def test_the_content_tells_bytes_from_text_and_a_time_from_a_delay__D5(desk: Desk) -> None:
    others = [
        Message("a", None, LATER_MS, b"1"),
        Message("a", None, LATER_MS, msgspec.Raw(b"1")),
        Message("a", None, LATER_MS, msgspec.Raw(b'"MQ=="')),
        Message("a", None, LATER_MS + 1, b"1"),
        Message("a", None, LATER_MS, b"1", 5),
        Message("a", None, LATER_MS, b"1", 6),
        Message("a", None, LATER_MS, msgspec.Raw(b"1"), 5),
    ]
    for first in others:
        named = [msgspec.structs.replace(it, key=f"{others.index(first)}") for it in (first, *others)]
        expected = [Answer.DUPLICATE if it is first else Answer.CONFLICT for it in others]
        assert desk.hand_in(*named) == [Answer.ACCEPTED, *expected]


@pytest.mark.parametrize(("given", "again"), [(10, 10.0), (10.0, 10), (1.5, 1.5)])
def test_the_same_delay_is_the_same_content_with_and_without_a_point__D5(
    desk: Desk, given: float, again: float
) -> None:
    assert desk.hand_in(Message("a", None, LATER_MS, b"1", given)) == [Answer.ACCEPTED]
    assert desk.hand_in(Message("a", None, LATER_MS + 7, b"1", again)) == [Answer.DUPLICATE]


def test_the_border_between_key_and_id_counts__D1(desk: Desk) -> None:
    pairs = [("a", "bc"), ("ab", "c"), (None, "abc"), ("1:a", "b"), ("1", ":ab"), ("1", "a:b")]
    assert desk.hand_in(*(message(id_, key) for key, id_ in pairs)) == [Answer.ACCEPTED] * len(pairs)
