"""A store that a test fills, and the page made from it."""

import random
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tickwheel.delivery.message import Message
from tickwheel.delivery.report import write_report
from tickwheel.delivery.store import Done, Incoming, Outcome, Store, letters
from tickwheel.delivery.store.letters import Letter

NOW_MS = 1_700_000_000_000


class Desk:
    """A store that stays open, as if a delivery used it; `page` is made at `now_ms`."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "store.db"
        self.folder = folder
        self.store = Store(self.path)
        self.now_ms = NOW_MS

    def accept(self, *names: tuple[str | None, str, int]) -> list[int]:
        """Messages as `(key, id, due_ms)`; returns their numbers."""
        items = [Incoming.of(Message(id_, key, due_ms, msgspec.Raw(b"1"))) for key, id_, due_ms in names]
        with self.store.transaction():
            answers = self.store.accept(items, NOW_MS)
        return [answer for answer in answers if isinstance(answer, int)]

    def finish(self, *done: Done) -> None:
        with self.store.transaction():
            self.store.finish(done)

    def deliver(self, late_us: int, at_ms: int = NOW_MS, **more: int) -> None:
        """One message, from its acceptance to its outcome."""
        [seq] = self.accept((None, f"delivered {self.store.last_seq}", NOW_MS))
        self.finish(Done(seq, NOW_MS, Outcome.DELIVERED, at_ms, late_us, more.get("attempts", 1)))

    def put_letters(self, *some: Letter) -> None:
        with self.store.transaction():
            letters.put(self.store.db, some, NOW_MS)

    def fill(self, seed: int, messages: int = 600) -> None:
        """Messages of all kinds, over a minute to ten days."""
        rng = random.Random(seed)
        span_ms = rng.choice([60_000, 3_600_000, 864_000_000])
        names = [
            (rng.choice([None, "a", "b", f"k{rng.randrange(40)}"]), f"m{n}", NOW_MS + rng.randrange(-span_ms, span_ms))
            for n in range(messages)
        ]
        seqs = self.accept(*names)
        done = []
        for seq, (_, _, due_ms) in zip(seqs, names, strict=True):
            outcome = rng.choice([Outcome.DELIVERED] * 6 + [Outcome.CANCELLED, Outcome.DEAD, None, None])
            if outcome is None:
                continue
            late_us = int(rng.lognormvariate(7, 3)) if outcome is Outcome.DELIVERED and rng.random() < 0.95 else None
            attempts = 0 if outcome is Outcome.CANCELLED else rng.choice([1, 1, 1, 2, 3, 15])
            at_ms = NOW_MS - rng.randrange(span_ms)
            done.append(Done(seq, due_ms, outcome, at_ms, late_us, attempts, rng.random() < 0.1))
        self.finish(*done)

    def page(self, title: str = "A test") -> str:
        page = self.folder / "page.html"
        write_report(self.path, page, title=title, wall_ns=lambda: self.now_ms * 1_000_000)
        return page.read_text(encoding="utf-8")


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    made = Desk(tmp_path)
    yield made
    made.store.close()


@pytest.fixture
def nasty(desk: Desk) -> Desk:
    """A store full of names that would break an unescaped page."""
    names = [
        "<script>alert(1)</script>", "x" * 3000, "\u202emirrored", "\U0001f469\u200d\U0001f469", "a\0b\x1b[31m",
        "\"'><img src=x onerror=alert(1)>", "</style></svg>{{ 7 * 191 }}", "&lt;b&gt;",
    ]  # fmt: skip
    desk.accept(
        *((name, name, NOW_MS + 60_000 * n) for n, name in enumerate(names)), (None, "far", 253_402_300_799_999)
    )
    desk.put_letters(*(Letter(name, 1, name, name, name.encode() + b"\xff") for name in names))
    for late_us in (0, 1, 90, 700_000_000_000, 10**13):
        desk.deliver(late_us)
    return desk
