"""The targets, and whether the repeats meet them. Each target is a line of data.

A target is a limit for the ratio ours / theirs within one run, or for our figure itself. A missed target stays in the
list. The page shows the median, but each repeat is held against the target: only if all of them meet it, or none does,
it is judged. The median then says the same.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from typing import Final, Literal

from .errors import ReportError
from .figures import figure, percent, spread_percent
from .results import OURS, Suite


@dataclass(frozen=True)
class Target:
    """Our figure at `work` divided by that of `side` at `at` is within `limit`. With a `unit` our figure itself is.

    `limit` is a number or a fraction as text: "0.6", "1/14".
    """

    suite: str
    work: str
    limit: str
    side: str = ""
    at: str = ""
    """The work of the other side, if it is a different one."""
    unit: str = ""
    bound: Literal["≤", "≥"] = "≤"
    ours: str = OURS
    """Which of our sides."""

    @property
    def name(self) -> str:
        """The work, and our side if it is a variant: "rolling time-outs, Wheel"."""
        return self.work + self.ours.removeprefix(OURS)

    @property
    def limit_value(self) -> Fraction:
        """The limit as a number."""
        return Fraction(self.limit)


TARGETS: Final = (
    Target("rust", "insert", "0.55", "DelayQueue"),
    Target("rust", "insert", "0.75", "nexus-timer"),
    Target("rust", "cancel, one by one", "0.2", "DelayQueue"),
    Target("rust", "fire all", "0.15", "DelayQueue"),
    Target("rust", "fire all", "1", "BTreeMap"),
    Target("rust", "fire all, claimed", "1.1", OURS, at="fire all"),
    Target("rust", "fire, 5,000 in each ms", "1.3", OURS, at="fire all"),
    Target("rust", "fire, 100,000 in each tick of 10 ms", "1.3", OURS, at="fire all"),
    Target("rust", "fire, all in one tick of 1 s", "1.3", OURS, at="fire all"),
    Target("rust", "reset, one by one", "0.25", "DelayQueue"),
    Target("rust", "reset, one by one", "1", "tokio sleep"),
    Target("rust", "rolling time-outs", "0.3", "DelayQueue"),
    Target("rust", "rolling time-outs", "0.95", "nexus-timer"),
    Target("rust", "rolling time-outs", "1", "nexus-timer", ours="tickwheel, Wheel"),
    Target("rust", "pair, 1 thread", "0.3", "DelayQueue"),
    Target("rust", "pair, 1 thread, no lock", "1", "nexus-timer", ours="tickwheel, Wheel"),
    Target("rust", "pair, 2 threads", "0.15", "DelayQueue"),
    Target("rust", "pair, 2 threads", "1.3", OURS, at="pair, 1 thread"),
    Target("rust", "pair after a burst", "1.2", OURS, at="pair, 1 thread"),
    Target("rust", "pair, 7 threads", "1.25", "tickwheel, std mutex"),
    Target("rust", "pair, 7 threads, longest wait", "1.5", "tickwheel, std mutex"),
    Target("rust", "memory at peak", "40", unit="bytes"),
    Target("rust", "memory after all have gone", "0.1", OURS, at="memory at peak"),
    Target("rust", "longest hold, 1M", "300", unit="µs"),
    Target("rust", "longest hold, 6M", "1000", unit="µs"),
    Target("rust", "longest hold, 65,536 buckets a level", "1000", unit="µs"),
    Target("python", "add", "1/14", "asyncio"),
    Target("python", "add", "1/4", "rloop"),
    Target("python", "add, TimerTask", "1/10", "asyncio", at="add"),
    Target("python", "add_many, per timer", "1/3", OURS, at="add"),
    Target("python", "cancel", "0.4", "asyncio"),
    Target("python", "cancel", "1/6", "uvloop"),
    Target("python", "rolling pair", "1/10", "asyncio"),
    Target("python", "rolling pair", "1/3", "rloop"),
    Target("python", "burst fire", "8", "asyncio", bound="≥"),
    Target("python", "burst fire", "2", "rloop", bound="≥"),
    Target("python", "spread fire", "0.25", "asyncio"),
    Target("python", "add from another thread", "1/25", "asyncio"),
    Target("python", "add from another thread", "1/4", "rloop"),
    Target("python", "bytes per timer", "125", unit="bytes"),
    Target("python", "bytes per TimerTask", "160", unit="bytes"),
    Target("python", "gc.collect with 1M pending", "1/10", "asyncio"),
    Target("python", "lateness p50", "1/5", "asyncio"),
    Target("python", "lateness p99", "1/5", "asyncio"),
    Target("python", "early", "0"),
    Target("asyncio", "call_later, 10,000 pending", "0.2", "asyncio"),
    Target("asyncio", "call_later, 10,000 pending, on uvloop", "0.35", "uvloop"),
    Target("asyncio", "call_later, 1M pending", "0.2", "asyncio"),
    Target("asyncio", "call_later, 1M pending, on uvloop", "0.35", "uvloop"),
    Target("asyncio", "pair, 10,000 pending", "0.12", "asyncio"),
    Target("asyncio", "pair, 10,000 pending, on uvloop", "0.4", "uvloop"),
    Target("asyncio", "pair, 1M pending", "0.12", "asyncio"),
    Target("asyncio", "pair, 1M pending, on uvloop", "0.4", "uvloop"),
    Target("asyncio", "longest turn while time-outs roll", "1/30", "asyncio"),
    Target("asyncio", "longest wait while all are due at once", "5", unit="ms"),
    Target("asyncio", "longest wait while all are due at once, on uvloop", "5", unit="ms"),
    Target("asyncio", "CPU per timer, one a ms, slack_us=500, on uvloop", "1", "uvloop"),
    Target("asyncio", "lateness p50", "1/5", "asyncio"),
    Target("asyncio", "early", "0"),
    Target("asyncio", "early, on uvloop", "0"),
    Target("asyncio", "echo server with idle time-outs, CPU per message", "0.9", "asyncio"),
    Target("asyncio", "aiohttp, CPU per request", "1", "asyncio"),
    Target("asyncio", "aiohttp, CPU per request, on uvloop", "1", "uvloop"),
)


AT_LEAST: Final = 3
"""Fewer repeats do not show how far they spread."""


class Answer(Enum):
    """The answers to a target. Those that are not *met* are bold where something is to be done."""

    MET = "met"
    MISSED = "**MISSED**"
    NOT_JUDGED = "not judged"
    NO_FIGURE = "no figure"


@dataclass(frozen=True)
class Verdict:
    """A target, the measured value, and that of each repeat. Without a figure on both sides there is no answer."""

    target: Target
    measured: float | None
    each: Sequence[float] = ()
    """The value of each repeat by itself: the sides take turns within a repeat, so their ratio in it counts."""
    repeats: int = 0
    """Of the run. A repeat in which a side failed has no value."""

    @property
    def answer(self) -> Answer:
        """*Met* if each repeat meets the target, *missed* if none does, else the repeats are too far apart to say."""
        if self.measured is None:
            return Answer.NO_FIGURE
        met = [self._is_met_by(value) for value in self.each]
        if self._is_a_promise and not all(met):
            return Answer.MISSED
        if len(met) < max(self.repeats, AT_LEAST) or (any(met) and not all(met)):
            return Answer.NOT_JUDGED
        return Answer.MET if all(met) else Answer.MISSED

    @property
    def text(self) -> str:
        """The answer, and why a target isn't judged."""
        if self.answer is not Answer.NOT_JUDGED or self.measured is None:
            return self.answer.value
        if len(self.each) < self.repeats:
            return f"{self.answer.value}: {len(self.each)} of {self.repeats} repeats can be compared"
        if self.repeats < AT_LEAST:
            return f"{self.answer.value}: {AT_LEAST} repeats are needed"
        limit = float(self.target.limit_value)
        spread, gap = spread_percent(self.each), 100 * abs(self.measured - limit) / limit
        return f"{self.answer.value}: the repeats spread by {percent(spread)}, the gap to the target is {percent(gap)}"

    @property
    def against(self) -> str:
        """The figure with which ours is compared, in words."""
        target = self.target
        return ": ".join(filter(None, (target.side, target.at))) or "—"

    @property
    def asked(self) -> str:
        """The limit as text."""
        return f"{self.target.bound} {self.target.limit} {self.target.unit}".strip()

    @property
    def found(self) -> str:
        """The measured value in the format of the target: 1/15.2 for a target of 1/14."""
        if self.measured is None:
            return "—"
        if "/" in self.target.limit and 0 < self.measured < 1:
            return f"1/{figure(1 / self.measured)}"
        return f"{figure(self.measured)} {self.target.unit}".strip()

    @property
    def _is_a_promise(self) -> bool:
        """A target of 0 counts what must never happen: one repeat in which it does breaks it."""
        return not self.target.side and self.target.limit_value == 0

    def _is_met_by(self, value: float) -> bool:
        return value >= self.target.limit_value if self.target.bound == "≥" else value <= self.target.limit_value


def judge(suite: Suite) -> list[Verdict]:
    """The verdicts on the suite's targets, in order."""
    return [_verdict(target, suite) for target in TARGETS if target.suite == suite.name]


def _verdict(target: Target, suite: Suite) -> Verdict:
    ours = suite.find(target.work, target.ours)
    if ours is None:
        return Verdict(target, None)
    if not target.side:
        if target.unit and ours.unit.split("/")[0] != target.unit:  # bytes/timer are bytes
            raise ReportError(
                f"{target.work!r} is measured in {ours.unit!r}, its target is in {target.unit!r}: make them the same"
            )
        measured = max(ours.values) if target.limit_value == 0 else ours.median
        return Verdict(target, measured, ours.values, suite.repeats)
    if ours.unit.startswith("%"):  # a percentage of the other figure is a ratio already
        return Verdict(target, ours.median / 100, [value / 100 for value in ours.values], suite.repeats)
    theirs = suite.find(target.at or target.work, target.side)
    if theirs is None or min(ours.median, theirs.median) <= 0:
        return Verdict(target, None)
    if ours.unit != theirs.unit:
        raise ReportError(f"{ours.work!r} is in {ours.unit!r}, {theirs.work!r} in {theirs.unit!r}: make them the same")
    # A repeat that failed is not in the list, so only full lists are in step.
    in_step = len(ours.values) == len(theirs.values) == suite.repeats
    pairs = zip(ours.values, theirs.values, strict=True) if in_step else ()
    ratios = [one / other for one, other in pairs if min(one, other) > 0]
    return Verdict(target, ours.median / theirs.median, ratios, suite.repeats)
