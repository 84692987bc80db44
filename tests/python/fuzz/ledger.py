"""What happened in one case, as plain numbers and weak references: the ledger keeps nothing of the graph alive.

Threads only append events, one at a time. The sums are made when the case is over.
"""

import collections
import itertools
import weakref
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

_raised = itertools.count()


class Planned(Exception):
    """What a callback raises on purpose. Each is to be reported once."""

    def __init__(self, number: int) -> None:
        super().__init__(f"planned failure {number}")
        self.number = number


def planned(number: int) -> Planned:
    """Each has a type of its own: the log only counts repeats of one type at one line."""
    of_type: type[Planned] = type(f"Planned{next(_raised)}", (Planned,), {})
    return of_type(number)


@dataclass(frozen=True)
class Entry:
    """What was added: `is_once` for one that is added a single time; `driver` as in `making.DRIVERS`."""

    kind: str
    driver: str
    is_once: bool


class Ledger:
    """Entries and operations by number, and the events of each."""

    def __init__(self, is_traced: bool) -> None:
        self.entries: dict[int, Entry] = {}
        self.events: collections.deque[tuple[str, int, int]] = collections.deque()
        self.problems: list[str] = []
        self.is_quiet = False  # at the end of a case: callbacks only count from here on
        self.returned: dict[str, int] = {}  # by timer: how many tasks its shutdown returned
        self.alive: list[weakref.ref[Any]] = []
        self.far: list[tuple[weakref.ref[Any], int, list[int]]] = []  # due in an hour; of a batch these of its indices
        self.revived: list[Any] = []  # by their destructors
        # A pool's threads end with its weak reference, also where a destructor brings it back: none is garbage yet.
        self.pools: list[ThreadPoolExecutor] = []
        self._is_traced = is_traced
        self._budget = 300  # actions, or a task that adds itself again would never end
        self._numbers = itertools.count(1)

    def watch(self, thing: Any) -> None:
        self.alive.append(weakref.ref(thing))

    def spend(self) -> bool:
        """Whether there is an action left."""
        self._budget -= 1
        return self._budget > 0

    def trace(self, text: str) -> None:
        if self._is_traced:
            print(text, flush=True)

    def number(self) -> int:
        return next(self._numbers)

    def note(self, what: str, number: int, count: int = 1) -> None:
        self.events.append((what, number, count))

    def problem(self, text: str) -> None:
        self.problems.append(text)

    def sums(self) -> dict[str, collections.Counter[int]]:
        found: dict[str, collections.Counter[int]] = collections.defaultdict(collections.Counter)
        for what, number, count in self.events:
            found[what][number] += count
        return found

    def check(self) -> None:
        """Adds what is wrong to `problems`. To be called when every timer has ended."""
        sums = self.sums()
        self._check_entries(sums)
        self._check_operations(sums)
        for number, count in sums["raised"].items():
            if sums["heard"][number] != count:
                self.problem(f"failure {number} was raised {count} times and reported {sums['heard'][number]} times")

    def _check_entries(self, sums: dict[str, collections.Counter[int]]) -> None:
        lost = 0
        for number, entry in self.entries.items():
            added, ran = sums["added"][number], sums["ran"][number]
            ended = ran + sums["cancelled"][number]
            if ended > added:
                self.problem(f"{entry} {number} was added {added} times, and ran {ran} times of {ended} endings")
            if entry.driver in {"own", "pool", "loop"} and added:
                lost += added - ended if entry.is_once else ended == 0
        told = sum(self.returned.values()) + sum(sums["rejected"].values())
        if lost > told:
            self.problem(f"{lost} tasks neither ran nor were cancelled, and only {told} were returned or rejected")

    def _check_operations(self, sums: dict[str, collections.Counter[int]]) -> None:
        for number in sums["watched"] | sums["forced"] | sums["completed"]:
            forced, completed, expired = (sums[what][number] for what in ("forced", "completed", "expired"))
            if max(forced, completed, expired) > 1 or expired > completed or forced > completed:
                self.problem(f"operation {number}: won {forced}, on_complete {completed}, on_expiration {expired}")
            ended = completed + sums["taken out"][number]
            if sums["watched"][number] and not ended and sums["must end"][number]:
                self.problem(f"operation {number} was watched, and neither completed nor was it taken out")
