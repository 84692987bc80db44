"""A timer as its rules are written: the slowest obvious model, a list that is sorted again for every release."""

from dataclasses import dataclass, field
from typing import Any

Key = Any
"""A task by its number, or (number of the batch, index)."""


@dataclass
class Model:
    """A timer as its rules are written. Times are in microseconds."""

    tick_ms: int
    is_exact: bool
    max_pending: int | None
    now_us: int
    number: int = 0
    entries: dict[Key, tuple[int, int, int]] = field(default_factory=dict)  # (due, add number, release)
    released: dict[Key, int] = field(default_factory=dict)  # their add numbers
    log: list[tuple[int, Any]] = field(default_factory=list)

    def taken(self) -> int:
        return len(self.entries) + len(self.released)

    def add(self, key: Key, due_us: int) -> bool:
        is_move = self.cancel(key)
        if not is_move and self.max_pending is not None and self.taken() >= self.max_pending:
            return False
        self.number += 1
        bucket_us = due_us // (self.tick_ms * 1000) * self.tick_ms * 1000
        release_us = due_us if self.is_exact else max(self.now_us, bucket_us)
        self.entries[key] = (due_us, self.number, release_us)
        return True

    def cancel(self, key: Key) -> bool:
        return (self.entries.pop(key, None) or self.released.pop(key, None)) is not None

    def pending(self) -> list[tuple[int, Key]]:
        found = sorted((due_us, number, key) for key, (due_us, number, _) in self.entries.items())
        return [(due_us, key) for due_us, _, key in found]

    def next_release_us(self) -> int | None:
        return min((release_us for _, _, release_us in self.entries.values()), default=None)

    def release(self) -> list[tuple[Key, int]]:
        """Takes out what is released now; in order, with add numbers."""
        ready = [key for key, (_, _, release_us) in self.entries.items() if release_us <= self.now_us]
        ready.sort(key=lambda key: self.entries[key][:2])
        for key in ready:
            self.released[key] = self.entries.pop(key)[1]
        return [(key, self.released[key]) for key in ready]
