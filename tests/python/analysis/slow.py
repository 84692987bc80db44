"""The figures computed by plain loops over all rows of the stores' tables, without Spark and the analysis's code."""

import math
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Row = dict[str, Any]
NAMES = {1: "delivered", 2: "cancelled", 3: "undeliverable"}


def read(paths: Sequence[Path]) -> list[Row]:
    """Every message, with the columns of `LEDGER_MESSAGES`."""
    found = []
    for number, path in enumerate(paths):
        db = sqlite3.connect(path)
        known = {
            seq: (key, id_, due_ms) for seq, key, id_, due_ms in db.execute("SELECT seq, key, id, due_ms FROM messages")
        }
        columns = "seq, outcome, at_ms, lateness_us, attempts, redelivered"
        rows = [(*row[:1], NAMES[row[1]], *row[2:]) for row in db.execute(f"SELECT {columns} FROM ledger")]
        rows += [
            (seq, "waiting", None, None, None, again)
            for seq, again in db.execute("SELECT seq, redelivered FROM waiting")
        ]
        for seq, outcome, at_ms, late_us, attempts, again in rows:
            key, id_, due_ms = known[seq]
            found.append(
                {"ledger": number, "seq": seq, "key": key, "id": id_, "due_ms": due_ms, "outcome": outcome,
                 "at_ms": at_ms, "lateness_us": late_us, "attempts": attempts, "redelivered": bool(again)}
            )  # fmt: skip
        db.close()
    return found


def ranked(rows: Sequence[Row]) -> Row:
    values = sorted(row["lateness_us"] for row in rows)
    ranks = {"p50_ms": 0.5, "p99_ms": 0.99, "p999_ms": 0.999, "max_ms": 1.0}
    picked = {name: values[math.ceil(q * len(values)) - 1] / 1000 if values else None for name, q in ranks.items()}
    return {"messages": len(values), **picked}


def late(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row["outcome"] == "delivered" and row["lateness_us"] is not None]


def groups(rows: Sequence[Row], of: Any) -> dict[Any, list[Row]]:
    found = defaultdict(list)
    for row in rows:
        found[of(row)].append(row)
    return found


def outcomes(rows: Sequence[Row]) -> list[Row]:
    out = []
    for (ledger, outcome), some in sorted(groups(rows, lambda it: (it["ledger"], it["outcome"])).items()):
        times = [it["at_ms"] for it in some if it["at_ms"] is not None]
        again = sum(it["redelivered"] for it in some)
        ends = {"first_ms": min(times, default=None), "last_ms": max(times, default=None)}
        out.append({"ledger": ledger, "outcome": outcome, "messages": len(some), "redelivered": again, **ends})
    return out


def lateness(rows: Sequence[Row]) -> list[Row]:
    return [ranked(late(rows))]


def lateness_by_minute(rows: Sequence[Row], step: int = 60_000) -> list[Row]:
    minutes = groups(late(rows), lambda it: it["at_ms"] // step * step)
    return [{"start_ms": start, **ranked(some)} for start, some in sorted(minutes.items())]


def lateness_by_key(rows: Sequence[Row], most: int = 100) -> list[Row]:
    keys = groups([it for it in late(rows) if it["key"] is not None], lambda it: it["key"])
    figures = {key: ranked(some) for key, some in keys.items()}
    busiest = sorted(figures, key=lambda key: (-figures[key]["messages"], key))[:most]
    latest = sorted(figures, key=lambda key: (-figures[key]["max_ms"], key))[:most]
    shown = sorted({*busiest, *latest}, key=lambda key: (-figures[key]["messages"], key))

    def place(of: list[str], key: str) -> int | None:
        return of.index(key) + 1 if key in of else None

    return [{"key": it, **figures[it], "busiest": place(busiest, it), "latest": place(latest, it)} for it in shown]


def lateness_by_size(rows: Sequence[Row]) -> list[Row]:
    bounds = [digit * 10**power for power in range(1, 18) for digit in (1, 2, 5)]
    found = Counter(next((b for b in bounds if it["lateness_us"] <= b), bounds[-1]) for it in late(rows))
    return [{"up_to_ms": bound / 1000, "messages": found[bound]} for bound in bounds if found[bound]]


def hot_keys(rows: Sequence[Row], most: int = 100) -> list[Row]:
    keys = groups([it for it in rows if it["key"] is not None], lambda it: it["key"])
    out = []
    for key in sorted(keys, key=lambda key: (-len(keys[key]), key))[:most]:
        ended = Counter(it["outcome"] for it in keys[key])
        counts = {name: ended[name] for name in ("delivered", "cancelled", "undeliverable", "waiting")}
        retried = sum((it["attempts"] or 0) > 1 for it in keys[key])
        out.append(
            {"key": key, "messages": len(keys[key]), "share": len(keys[key]) / len(rows), "retried": retried, **counts}
        )
    return out


def attempts(rows: Sequence[Row]) -> list[Row]:
    ended = groups([it for it in rows if it["outcome"] != "waiting"], lambda it: (it["attempts"], it["outcome"]))
    return [
        {"attempts": n, "outcome": outcome, "messages": len(some), "redelivered": sum(it["redelivered"] for it in some)}
        for (n, outcome), some in sorted(ended.items())
    ]


def repeats(rows: Sequence[Row]) -> list[Row]:
    names = groups(rows, lambda it: (it["key"], it["id"])).values()
    delivered = [[it for it in some if it["outcome"] == "delivered"] for some in names]
    return [
        {
            "redelivered": sum(it["redelivered"] for some in delivered for it in some),
            "may_have_arrived": sum(it["redelivered"] for it in rows if it["outcome"] == "waiting"),
            "in_several_ledgers": sum(len(some) > 1 for some in names),
            "delivered_by_several": sum(len(some) > 1 for some in delivered),
        }
    ]


def throughput(rows: Sequence[Row], step: int = 60_000) -> list[Row]:
    out = []
    ended = [it for it in rows if it["at_ms"] is not None]
    for start, some in sorted(groups(ended, lambda it: it["at_ms"] // step * step).items()):
        found = Counter(it["outcome"] for it in some)
        counts = {name: found[name] for name in ("delivered", "cancelled", "undeliverable")}
        out.append({"start_ms": start, **counts, "attempts": sum(it["attempts"] for it in some)})
    return out


def due_forecast(rows: Sequence[Row]) -> list[Row]:
    out = []
    for unit, step in (("minute", 60_000), ("hour", 3_600_000), ("day", 86_400_000)):
        found = Counter(it["due_ms"] // step * step for it in rows if it["outcome"] == "waiting")
        out += [{"unit": unit, "start_ms": start, "messages": n} for start, n in sorted(found.items())]
    return out


FIGURES = {
    it.__name__: it
    for it in (
        outcomes, lateness, lateness_by_minute, lateness_by_key, lateness_by_size, hot_keys, attempts, repeats,
        throughput, due_forecast,
    )
}  # fmt: skip
