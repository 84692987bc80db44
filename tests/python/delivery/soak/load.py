"""A seeded load with duplicates and cancels, and the check of what an independent receiver got."""

import json
import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

Name = tuple[str | None, str]

FIRST_DUE_MS = 1_700_000_000_000


class Received(NamedTuple):
    """One delivery as a receiver saw it, in order of arrival."""

    name: Name
    redelivered: bool
    payload: Any


@dataclass
class Load:
    """`order` has the messages that must come, by key, in order of (due, acceptance); `cancelled` ones may come."""

    lines: list[str]
    payloads: dict[Name, Any] = field(default_factory=dict)
    order: dict[str, list[Name]] = field(default_factory=dict)
    cancelled: set[Name] = field(default_factory=set)
    span_ms: int = 0

    def write(self, path: Path) -> None:
        path.write_text("\n".join(self.lines) + "\n", encoding="utf-8")

    def problems(self, received: Sequence[Received], *, may_repeat: bool) -> list[str]:
        """The problems of the received messages; with `may_repeat`, repeats with a mark are allowed."""
        seen: dict[Name, int] = {}
        found = []
        for place, one in enumerate(received):
            if one.name not in self.payloads:
                found.append(f"never asked for: {one.name}")
            elif one.payload != self.payloads[one.name]:
                found.append(f"changed: {one.name}")
            if one.name in seen and not (may_repeat and one.redelivered):
                found.append(f"repeated without a mark: {one.name}")
            seen.setdefault(one.name, place)
        found += [f"missing: {name}" for name in self.payloads if name not in seen and name not in self.cancelled]
        for names in self.order.values():
            places = [seen[name] for name in names if name in seen]
            if places != sorted(places):
                found.append(f"out of order: {names[0][0]}")
        return found


def make_load(
    messages: int, *, seed: int, keys: int, span_ms: int, duplicates: float = 0.05, cancels: float = 0.02
) -> Load:
    """Messages with keys and without, due within `span_ms`; a duplicate is after its original, a cancel anywhere."""
    rng = random.Random(seed)
    load = Load([], span_ms=span_ms)
    lines: list[tuple[float, str]] = []
    by_key = defaultdict(list)
    for number in range(messages):
        key = None if rng.random() < 0.1 else f"key {rng.randrange(keys)}"
        name = (key, f"message {number}")
        due_ms = FIRST_DUE_MS + rng.randrange(span_ms)
        payload = {"number": number, "text": "x" * rng.randrange(200)}
        line = json.dumps({"id": name[1], "key": key, "due": due_ms, "payload": payload})
        place = rng.random()
        lines.append((place, line))
        load.payloads[name] = payload
        if key is not None:
            by_key[key].append((due_ms, place, name))
        if rng.random() < duplicates:
            lines.append((rng.uniform(place, 1), line))
        if rng.random() < cancels:
            lines.append((rng.random(), json.dumps({"id": name[1], "key": key, "op": "cancel"})))
            load.cancelled.add(name)
    load.lines = [line for _, line in sorted(lines)]
    load.order = {key: [name for _, _, name in sorted(every)] for key, every in by_key.items()}
    return load


def whole_lines(path: Path) -> Iterable[dict[str, Any]]:
    """The lines of a file without those that a kill truncated: their messages come again."""
    for line in path.read_bytes().splitlines() if path.exists() else []:
        try:
            yield json.loads(line)
        except ValueError:
            continue


def from_ndjson(path: Path) -> list[Received]:
    """The deliveries in a file."""
    return [Received((one["key"], one["id"]), one["redelivered"], one["payload"]) for one in whole_lines(path)]
