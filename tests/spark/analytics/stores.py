"""Stores with messages of every kind, made with the store's own classes."""

import random
from pathlib import Path

import msgspec

from tickwheel.delivery.items import OTHER_CONTENT
from tickwheel.delivery.message import Message
from tickwheel.delivery.store import Done, Incoming, Outcome, Store, letters
from tickwheel.delivery.store.letters import Letter

NOW_MS = 1_700_000_000_123
LAST_MS = 253_402_300_799_999
ODD_KEYS = (
    "", " ", "a\0b\x1b[31m", "<script>alert(1)</script>", "</style></svg>{{ 7 * 191 }}", "\"'><img src=x onerror=a()>",
    "\u202emirrored", "\uffff", "\U0001f469\u200d\U0001f469", "&lt;b&gt;", "x" * 3000, "null", "é", "e\u0301",
)  # fmt: skip
"""With one beyond 16 bits, because UTF-16 and code points sort it differently."""


def accept(store: Store, *names: tuple[str | None, str, int]) -> list[int]:
    """Messages as `(key, id, due_ms)`; returns their numbers."""
    items = [Incoming.of(Message(id_, key, due_ms, msgspec.Raw(b"1"))) for key, id_, due_ms in names]
    with store.transaction():
        answers = store.accept(items, NOW_MS)
    assert all(isinstance(answer, int) for answer in answers)
    return [answer for answer in answers if isinstance(answer, int)]


def finish(store: Store, *done: Done) -> None:
    with store.transaction():
        store.finish(done)


def fill(path: Path, seed: int, messages: int, span_ms: int = 3 * 3_600_000) -> None:
    """Messages of all kinds; half their names are the same for every seed."""
    rng = random.Random(seed)
    usual = [f"key {n}" for n in range(60)]
    store = Store(path)
    names = []
    for n in range(messages):
        key = rng.choice([None, None, "hot", "hot", "hot", rng.choice(ODD_KEYS), rng.choice(usual), f"once {n}"])
        if n % 2:
            key = random.Random(n).choice([None, "hot", usual[n % 60]])
        names.append((key, f"m{n}" if n % 2 else f"{seed} {n}", NOW_MS + rng.randrange(-span_ms, 10 * span_ms)))
    names += [(None, f"{seed} first", 0), ("far", f"{seed} last", LAST_MS), ("far", f"{seed} now", NOW_MS)]
    seqs = accept(store, *names)
    done, again = [], []
    kinds = [*[Outcome.DELIVERED] * 6, Outcome.CANCELLED, Outcome.DEAD, None, None]
    for seq, (key, _, due_ms) in list(zip(seqs, names, strict=True))[:-3]:
        outcome = rng.choice(kinds)
        if outcome is None:
            if rng.random() < 0.1:
                again.append((due_ms, seq))
            continue
        late = rng.choice([0, 1, 10, 11, 1_000, int(rng.lognormvariate(7, 3)), 10**12 if rng.random() < 0.01 else 7])
        is_late = outcome is Outcome.DELIVERED and rng.random() < 0.95 and key != "é"
        attempts = 0 if outcome is Outcome.CANCELLED else rng.choice([0, 1, 1, 1, 2, 3, 15])
        at_ms = NOW_MS - rng.choice([0, 60_000, rng.randrange(span_ms)])
        done.append(Done(seq, due_ms, outcome, at_ms, late if is_late else None, attempts, rng.random() < 0.1))
    rng.shuffle(done)
    for start in range(0, len(done), 1_000):
        finish(store, *done[start : start + 1_000])
    with store.transaction():
        store.mark_redelivered(again)
        words = [("in", OTHER_CONTENT.reason)] * 3 + [("delivery", "refused")] * 2
        letters.put(store.db, [Letter(source, 1, why, "x", b"{}") for source, why in words], NOW_MS)
    store.close()
