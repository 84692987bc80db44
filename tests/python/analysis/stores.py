"""Stores with messages of every kind."""

import random
from pathlib import Path

from delivery.made_store import Done, MadeStore
from tickwheel.delivery import Letter
from tickwheel.delivery.model.entries import OTHER_CONTENT, Outcome

NOW_MS = 1_700_000_000_123
LAST_MS = 253_402_300_799_999
ODD_KEYS = (
    "", " ", "a\0b\x1b[31m", "<script>alert(1)</script>", "</style></svg>{{ 7 * 191 }}", "\"'><img src=x onerror=a()>",
    "\u202emirrored", "\uffff", "\U0001f469\u200d\U0001f469", "&lt;b&gt;", "x" * 3000, "null", "é", "e\u0301",
)  # fmt: skip
"""With one beyond 16 bits, because UTF-16 and code points sort it differently."""


def fill(path: Path, seed: int, messages: int, span_ms: int = 3 * 3_600_000) -> None:
    """Messages of all kinds; half their names are the same for every seed."""
    rng = random.Random(seed)
    usual = [f"key {n}" for n in range(60)]
    store = MadeStore(path)
    names = []
    for n in range(messages):
        key = rng.choice([None, None, "hot", "hot", "hot", rng.choice(ODD_KEYS), rng.choice(usual), f"once {n}"])
        if n % 2:
            key = random.Random(n).choice([None, "hot", usual[n % 60]])
        names.append((key, f"m{n}" if n % 2 else f"{seed} {n}", NOW_MS + rng.randrange(-span_ms, 10 * span_ms)))
    names += [(None, f"{seed} first", 0), ("far", f"{seed} last", LAST_MS), ("far", f"{seed} now", NOW_MS)]
    seqs = store.accept(*names)
    done, again = [], []
    kinds = [*[Outcome.DELIVERED] * 6, Outcome.CANCELLED, Outcome.DEAD, None, None]
    for seq, (key, _, _) in list(zip(seqs, names, strict=True))[:-3]:
        outcome = rng.choice(kinds)
        if outcome is None:
            if rng.random() < 0.1:
                again.append(seq)
            continue
        late = rng.choice([0, 1, 10, 11, 1_000, int(rng.lognormvariate(7, 3)), 10**12 if rng.random() < 0.01 else 7])
        is_late = outcome is Outcome.DELIVERED and rng.random() < 0.95 and key != "é"
        attempts = 0 if outcome is Outcome.CANCELLED else rng.choice([0, 1, 1, 1, 2, 3, 15])
        at_ms = NOW_MS - rng.choice([0, 60_000, rng.randrange(span_ms)])
        done.append(Done(seq, outcome, at_ms, late if is_late else None, attempts, rng.random() < 0.1))
    rng.shuffle(done)
    store.finish(*done)
    store.mark_redelivered(again)
    words = [("in", OTHER_CONTENT.reason)] * 3 + [("delivery", "refused")] * 2
    store.put_letters(NOW_MS, *(Letter(source, 1, why, "x", b"{}") for source, why in words))
