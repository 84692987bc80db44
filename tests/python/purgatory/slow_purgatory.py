"""A purgatory as its rules are written: the slowest obvious model, a list that is searched from end to end."""

from dataclasses import dataclass, field


@dataclass
class Waiting:
    number: int
    keys: frozenset[int]
    due_ms: int | None
    added: int
    """Number of its deadline among all that were set: what is due together ends in this order."""


@dataclass
class Model:
    """Operations by number. Those that are ready complete when they are tried."""

    timer_enabled: bool
    now_ms: int = 0
    added: int = 0
    waiting: list[Waiting] = field(default_factory=list)  # in order of arrival
    done: dict[int, str] = field(default_factory=dict)  # how each ended
    ready: set[int] = field(default_factory=set)
    log: list[tuple[int, int, str]] = field(default_factory=list)
    counted: dict[str, int] = field(default_factory=lambda: {"completed": 0, "expired": 0, "cancelled": 0})

    def find(self, number: int) -> Waiting | None:
        return next((waiting for waiting in self.waiting if waiting.number == number), None)

    def end(self, number: int, how: str) -> None:
        waiting = self.find(number)
        if waiting:
            self.waiting.remove(waiting)
            self.counted["expired" if how == "expired" else "completed"] += 1
        self.done[number] = how
        self.log.append((self.now_ms, number, "complete"))
        if how == "expired":
            self.log.append((self.now_ms, number, "expire"))

    def watch(self, number: int, keys: frozenset[int], delay_ms: int) -> bool | None:
        """`None`: refused, as it waits already."""
        if number in self.done:
            return False
        if self.find(number):
            return None
        if number in self.ready:
            self.end(number, "completed")
            self.counted["completed"] += 1
            return True
        self.added += 1
        due_ms = self.now_ms + max(0, delay_ms) if self.timer_enabled else None
        self.waiting.append(Waiting(number, keys, due_ms, self.added))
        return False

    def check(self, key: int) -> int:
        found = [waiting.number for waiting in self.waiting if key in waiting.keys and waiting.number in self.ready]
        for number in found:
            self.end(number, "completed")
        return len(found)

    def force(self, number: int) -> bool:
        if number in self.done:
            return False
        self.end(number, "completed")
        return True

    def cancel(self, number: int) -> bool:
        waiting = self.find(number)
        if waiting is None:
            return False
        self.waiting.remove(waiting)
        self.counted["cancelled"] += 1
        return True

    def cancel_for_key(self, key: int) -> list[int]:
        found = [waiting.number for waiting in self.waiting if key in waiting.keys]
        for number in found:
            self.cancel(number)
        return found

    def lose_deadlines(self, numbers: list[int]) -> int:
        found = [waiting for waiting in self.waiting if waiting.number in numbers and waiting.due_ms is not None]
        for waiting in found:
            waiting.due_ms = None
        return len(found)

    def advance(self, by_ms: int) -> int:
        until_ms, count = self.now_ms + by_ms, 0
        while True:
            due = [(one.due_ms, one.added, one.number) for one in self.waiting if one.due_ms is not None]
            if not due or min(due)[0] > until_ms:
                break
            due_ms, _, number = min(due)
            self.now_ms = max(self.now_ms, due_ms)
            self.end(number, "expired")
            count += 1
        self.now_ms = until_ms
        return count

    def counts(self) -> tuple[int, int, int, int]:
        keys: set[int] = set().union(*(waiting.keys for waiting in self.waiting))
        delayed = sum(waiting.due_ms is not None for waiting in self.waiting)
        return len(self.waiting), delayed, sum(len(waiting.keys) for waiting in self.waiting), len(keys)
