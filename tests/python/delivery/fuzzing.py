"""The common parts of the fuzzers: rounds with seeds, mutations, and what must be true of every parser's result.

By default each property takes a few seconds. `TICKWHEEL_FUZZ_SECONDS=60` runs for 60 s in total, each round with
another seed. A failure names its seed, and `TICKWHEEL_FUZZ_SEED=N` starts with that seed.
"""

import json
import os
import secrets
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from delivery.records import Item
from tickwheel._native import MAX_DUE_MS, due_of, rfc_3339
from tickwheel.delivery.base.errors import BadRecord
from tickwheel.delivery.model.message import Message

SECONDS = float(os.environ.get("TICKWHEEL_FUZZ_SECONDS", "0"))
PROPERTIES = 11
SEED = os.environ.get("TICKWHEEL_FUZZ_SEED")

timed = pytest.mark.timeout(120 + SECONDS)
"""The timeout of a file's tests: longer if more fuzzing time is set."""

NAMES = ["id", "key", "due", "delay_ms", "op", "payload", "payload_base64", "x", "é"]
NOW_NS = 1_700_000_000_000_000_000
MILLISECONDS = st.integers(100_000_000_000, MAX_DUE_MS)
"""Due times that do not look like seconds."""


def fuzz(*strategies: Any, examples: int = 200) -> Callable[[Callable[..., None]], Callable[[], None]]:
    """Turns a property into a test that runs in rounds, each with its own seed, until its share of the time is over."""
    how = settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=False,
        suppress_health_check=list(HealthCheck),
    )

    def decorate(holds: Callable[..., None]) -> Callable[[], None]:
        def test() -> None:
            end = time.monotonic() + SECONDS / PROPERTIES
            number = int(SEED) if SEED else secrets.randbits(32)
            while True:
                try:
                    test_once: Callable[[], None] = seed(number)(how(given(*strategies)(holds)))  # type: ignore[no-untyped-call]
                    test_once()
                except BaseException as error:
                    error.add_note(f"to see it again: TICKWHEEL_FUZZ_SEED={number}")
                    raise
                if time.monotonic() >= end:
                    return
                number = secrets.randbits(32)

        test.__name__ = holds.__name__
        return test

    return decorate


def mutated(valid: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    """Valid bytes with a few changes: cut, doubled, moved, replaced, flipped."""
    pieces = st.binary(max_size=4) | st.sampled_from(
        [b'"', b'""', b",", b"\n", b"\r", b"{", b"}", b"[", b"\\u", b"null"]
    )
    changes = st.tuples(st.integers(0, 10**6), st.integers(0, 12), st.sampled_from("cdmrf"), pieces)

    def change(data: bytes, edits: list[tuple[int, int, str, bytes]]) -> bytes:
        for place, length, kind, piece in edits:
            at = place % (len(data) + 1)
            before, part, after = data[:at], data[at : at + length], data[at + length :]
            data = {
                "c": before + after,
                "d": before + part + part + after,
                "m": part + before + after,
                "r": before + piece + after,
                "f": before + bytes(byte ^ (1 << place % 8) for byte in part[:1]) + part[1:] + after,
            }[kind]
        return data

    return st.builds(change, valid, st.lists(changes, min_size=1, max_size=4))


def checked(item: Item) -> Item:
    """The item that a record became; checks that it is complete."""
    if isinstance(item, BadRecord):
        assert item.reason.strip()
        assert item.allowed.strip()
    else:
        assert item.id
        assert item.key != ""
        (item.id + (item.key or "")).encode()
    if isinstance(item, Message):
        assert 0 <= item.due_ms <= MAX_DUE_MS
        assert due_of(rfc_3339(item.due_ms), "due") == item.due_ms
        if not isinstance(item.payload, bytes):
            text = bytes(item.payload).decode()
            assert not {"\n", "\r"} & set(text)
            parsed(text)
    return item


def parsed(text: str) -> Any:
    """JSON read by the standard library, in strict mode."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse, parse_int=str, parse_float=str)
