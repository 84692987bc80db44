"""A store that a test fills, and the page made from it."""

import random
from pathlib import Path

import pytest

from delivery.made_store import Done, MadeStore
from tickwheel.delivery import Letter
from tickwheel.delivery.model.entries import Outcome
from tickwheel.delivery.report import write_report

NOW_MS = 1_700_000_000_000


class FilledStore:
    """A store; `page` is made at `now_ms`."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "store.db"
        self.folder = folder
        self.store = MadeStore(self.path)
        self.now_ms = NOW_MS

    def accept(self, *names: tuple[str | None, str, int]) -> list[int]:
        """Messages as `(key, id, due_ms)`; returns their numbers."""
        return self.store.accept(*names)

    def finish(self, *done: Done) -> None:
        self.store.finish(*done)

    def deliver(self, late_us: int, at_ms: int = NOW_MS, **more: int) -> None:
        """One message, from its acceptance to its outcome."""
        [seq] = self.accept((None, f"delivered {self.store.last_seq}", NOW_MS))
        self.finish(Done(seq, Outcome.DELIVERED, at_ms, late_us, more.get("attempts", 1)))

    def put_letters(self, *some: Letter) -> None:
        self.store.put_letters(NOW_MS, *some)

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
        for seq in seqs:
            outcome = rng.choice([Outcome.DELIVERED] * 6 + [Outcome.CANCELLED, Outcome.DEAD, None, None])
            if outcome is None:
                continue
            late_us = int(rng.lognormvariate(7, 3)) if outcome is Outcome.DELIVERED and rng.random() < 0.95 else None
            attempts = 0 if outcome is Outcome.CANCELLED else rng.choice([1, 1, 1, 2, 3, 15])
            at_ms = NOW_MS - rng.randrange(span_ms)
            done.append(Done(seq, outcome, at_ms, late_us, attempts, rng.random() < 0.1))
        self.finish(*done)

    def page(self, title: str = "A test") -> str:
        page = self.folder / "page.html"
        write_report(self.path, page, title=title, wall_ns=lambda: self.now_ms * 1_000_000)
        return page.read_text(encoding="utf-8")


@pytest.fixture
def desk(tmp_path: Path) -> FilledStore:
    return FilledStore(tmp_path)


@pytest.fixture
def nasty(desk: FilledStore) -> FilledStore:
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
