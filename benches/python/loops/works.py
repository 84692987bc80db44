"""The table of works, and those of timers alone. Each is a coroutine, run on the loop that is measured."""

import asyncio
import functools
import gc
import random
import statistics
import time
from collections.abc import Coroutine, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pkgutil import resolve_name
from typing import Any, Final

from benches.python.records import Figure, TooLateError

from .sides import ASYNCIO, TICKWHEEL, UVLOOP

MINUTE_S: Final = 60
HOUR_S: Final = 3_600
FEW: Final = 10_000
AT_ONCE: Final = 1_000
"""Calls in a turn of the loop."""


@dataclass(frozen=True)
class Plan:
    """`count` timers. `pace` scales the length of works in real time; 1 is the full length."""

    count: int
    pace: float = 1.0
    source: random.Random = field(default_factory=lambda: random.Random(1))

    def delays_s(self, count: int) -> list[float]:
        """Over an hour, after a minute in which nothing is due."""
        return [it / 1000 for it in self.source.choices(range(MINUTE_S * 1000, HOUR_S * 1000), k=count)]


Figures = dict[str, float]


async def call_later(plan: Plan, *, many: bool) -> Figures:
    """The cost of one more timer."""
    loop, pending = asyncio.get_running_loop(), plan.count if many else min(FEW, plan.count)
    kept = [loop.call_later(delay, nothing) for delay in plan.delays_s(pending)]
    delays = plan.delays_s(min(FEW, pending))
    started_ns = begin()
    kept += [loop.call_later(delay, nothing) for delay in delays]
    return {name_of("call_later", many): since_ns(started_ns) / len(delays)}


async def pair(plan: Plan, *, many: bool) -> Figures:
    """The cost of a time-out that is renewed: the older one is cancelled. The loop has turns in between."""
    loop, pending = asyncio.get_running_loop(), plan.count if many else min(FEW, plan.count)
    handles = [loop.call_later(delay, nothing) for delay in plan.delays_s(pending)]
    spent_ns, pairs = 0, 0
    gc.collect()
    for places in in_parts(range(pending)):
        delays = plan.delays_s(len(places))
        started_ns = time.perf_counter_ns()
        for at, delay in zip(places, delays, strict=True):
            handles[at].cancel()
            handles[at] = loop.call_later(delay, nothing)
        await asyncio.sleep(0)
        spent_ns, pairs = spent_ns + since_ns(started_ns), pairs + len(places)
    return {name_of("pair", many): spent_ns / pairs}


async def longest_turn(plan: Plan) -> Figures:
    """While time-outs are renewed, a thousand in each turn, and one is pending for each: the longest of the turns."""
    loop = asyncio.get_running_loop()
    handles = [loop.call_later(delay, nothing) for delay in plan.delays_s(plan.count)]
    turns_ns = []
    gc.collect()
    gc.disable()  # its pauses are measured by others
    for places in in_parts(range(plan.count)):
        delays = plan.delays_s(len(places))
        started_ns = time.perf_counter_ns()
        for at, delay in zip(places, delays, strict=True):
            handles[at].cancel()
            handles[at] = loop.call_later(delay, nothing)
        await asyncio.sleep(0)
        turns_ns.append(since_ns(started_ns))
    return {"longest turn while time-outs roll": max(turns_ns) / 1e6}


async def due_at_once(plan: Plan) -> Figures:
    """How long another callback waits at most, while all of them come due in one instant."""
    loop = asyncio.get_running_loop()
    gc.collect()
    gc.disable()
    due = loop.time() + max(0.5, plan.count * 8e-6)  # more time than the adds take
    ran = [0]
    count = functools.partial(add_one, ran)
    kept = [loop.call_at(due, count) for _ in range(plan.count)]
    if loop.time() >= due:
        raise TooLateError
    await asyncio.sleep(due - loop.time() - 0.05)
    if ran[0]:
        raise TooLateError  # the machine was busy for longer
    waits_ns = []
    while ran[0] < len(kept):
        started_ns = time.perf_counter_ns()
        await asyncio.sleep(0)
        waits_ns.append(since_ns(started_ns))
    return {"longest wait while all are due at once": max(waits_ns) / 1e6}


async def sparse(plan: Plan, *, slack_us: int) -> Figures:
    """The loop's CPU for each of the timers that come one by one, one in each millisecond on average."""
    loop, length_s = asyncio.get_running_loop(), 3 * plan.pace
    count = max(20, int(length_s * 1000))
    done, ran = loop.create_future(), [0]
    start = loop.time() + 0.1
    for _ in range(count):
        loop.call_at(start + plan.source.random() * length_s, add_one, ran)
    loop.call_at(start + length_s + 0.05, done.set_result, None)
    await asyncio.sleep(0.05)
    started_s = time.process_time()
    await done
    assert ran[0] == count
    name = f"CPU per timer, one a ms{f', slack_us={slack_us}' if slack_us else ''}"
    return {name: (time.process_time() - started_s) / count * 1e6}


async def lateness(plan: Plan) -> Figures:
    """How late callbacks are by the monotonic clock, and how many are early."""
    loop, length_s = asyncio.get_running_loop(), 4 * plan.pace
    count = max(20, int(length_s * 500))
    late_us: list[float] = []
    done = loop.create_future()
    start_s = time.monotonic() + 0.1
    offset_s = loop.time() - time.monotonic()

    def ran(due_s: float) -> None:
        late_us.append((time.monotonic() - due_s) * 1e6)
        if len(late_us) == count:
            done.set_result(None)

    for _ in range(count):
        due_s = start_s + plan.source.random() * length_s
        loop.call_at(due_s + offset_s, ran, due_s)
    await done
    return {"lateness p50": statistics.median(late_us), "early": sum(it < 0 for it in late_us)}


def name_of(work: str, many: bool) -> str:
    return f"{work}, {'1M' if many else '10,000'} pending"


def in_parts(places: range) -> Iterator[range]:
    for start in range(0, len(places), AT_ONCE):
        yield places[start : start + AT_ONCE]


def nothing() -> None:
    pass


def add_one(counter: list[int]) -> None:
    counter[0] += 1


def begin() -> int:
    """Collect the garbage of the preparations, and read the clock."""
    gc.collect()
    return time.perf_counter_ns()


def since_ns(started_ns: int) -> int:
    return time.perf_counter_ns() - started_ns


@dataclass(frozen=True)
class Work:
    """What one process measures. On uvloop the names of its figures say so."""

    maker: str
    """`module:function` in this package."""

    figures: tuple[Figure, ...]
    base: str
    sides: tuple[str, ...]
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def suffix(self) -> str:
        """Of the names of its figures."""
        return ", on uvloop" if self.base == UVLOOP else ""

    def count_for(self, _: str, count: int) -> int:
        """How many timers it takes."""
        return count

    def coroutine(self, plan: Plan) -> Coroutine[Any, Any, Figures]:
        """Imports the works that are needed, and no others."""
        made: Coroutine[Any, Any, Figures] = resolve_name(f"{__package__}.{self.maker}")(plan, **self.options)
        return made


def both(maker: str, *figures: Figure, **options: Any) -> Iterable[Work]:
    """A work on both loops."""
    for base in (ASYNCIO, UVLOOP):
        suffix = ", on uvloop" if base == UVLOOP else ""
        named = tuple(Figure(f"{it.name}{suffix}", it.unit, it.better) for it in figures)
        yield Work(maker, named, base, (TICKWHEEL, base), options)


WORKS: Final = (
    *both("works:call_later", Figure("call_later, 10,000 pending", "ns"), many=False),
    *both("works:call_later", Figure("call_later, 1M pending", "ns"), many=True),
    *both("works:pair", Figure("pair, 10,000 pending", "ns"), many=False),
    *both("works:pair", Figure("pair, 1M pending", "ns"), many=True),
    *both("works:longest_turn", Figure("longest turn while time-outs roll", "ms")),
    *both("works:due_at_once", Figure("longest wait while all are due at once", "ms")),
    *both("works:sparse", Figure("CPU per timer, one a ms", "µs"), slack_us=0),
    *both("works:sparse", Figure("CPU per timer, one a ms, slack_us=500", "µs"), slack_us=500),
    *both("works:lateness", Figure("lateness p50", "µs"), Figure("early", "")),
    *both("serving:echo", Figure("echo server with idle time-outs, CPU per message", "µs")),
    *both("serving:http", Figure("aiohttp, CPU per request", "µs")),
)
