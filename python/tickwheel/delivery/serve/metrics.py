"""The metrics of `GET /metrics` (rule D11), in Prometheus's text format. Counters start with the process.

The engine counts the waiting messages in the store itself, up to `MOST`. So a scrape takes at most some 0.1 s, and a
`tickwheel_due` of `MOST` is a lower bound. No label has a key or an id: the number of time series is fixed.
"""

import time
from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import Final, NamedTuple

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from tickwheel.delivery.running import Running

MOST: Final = 250_000
WINDOWS_MS: Final = {"1m": 60_000, "1h": 3_600_000, "1d": 86_400_000}
_COUNTERS: Final = {
    "accepted": ("accepted", "Messages that were accepted."),
    "delivered": ("delivered", "Messages that have arrived at their destination."),
    "duplicates_dropped": ("duplicates", "Messages and cancels that were already known."),
    "dead_letters": ("dead_letters", "Records that could not be read or delivered."),
    "cancelled": ("cancelled", "Messages that were cancelled."),
}


class Waiting(NamedTuple):
    """Of the waiting messages: how long the first has been due, and how many are due by the end of each window."""

    oldest_overdue_ms: int
    due: dict[str, int]


class EngineCollector(Collector):
    """Reads the engine's counts at each scrape."""

    def __init__(self, running: Running, wall_ns: Callable[[], int] = time.time_ns) -> None:
        self._running = running
        self._wall_ns = wall_ns

    def collect(self) -> Iterator[Metric]:
        """Every metric. Errors: `StoreFailed`."""
        running = self._running
        yield GaugeMetricFamily("tickwheel_messages_pending", "Messages that wait.", value=running.waiting)
        summary = running.summary
        for name, (part, what) in _COUNTERS.items():
            yield CounterMetricFamily(f"tickwheel_{name}", what, value=getattr(summary, part))
        bounds_us, counts, sum_us = running.lateness
        bounds = [*(str(bound_us / 1e6) for bound_us in bounds_us), "+Inf"]
        yield HistogramMetricFamily(
            "tickwheel_lateness_seconds",
            "How long after its due time a message was sent to its destination.",
            buckets=[*zip(bounds, accumulate(counts), strict=True)],
            sum_value=sum_us / 1e6,
        )
        yield GaugeMetricFamily("tickwheel_paused", "1 while sending is paused.", value=running.is_paused)
        waiting = look(running, self._wall_ns() // 1_000_000)
        yield GaugeMetricFamily(
            "tickwheel_oldest_overdue_seconds",
            "How long the oldest waiting message has been due.",
            value=waiting.oldest_overdue_ms / 1000,
        )
        due = GaugeMetricFamily(
            "tickwheel_due",
            f"Messages due by the end of the window, also overdue ones; at most {MOST}.",
            labels=["window"],
        )
        for window, count in waiting.due.items():
            due.add_metric([window], count)
        yield due


def look(running: Running, now_ms: int) -> Waiting:
    """Counts the waiting messages, at most `MOST` per window. Errors: `StoreFailed`."""
    first_ms, due = running.census([now_ms + ms for ms in WINDOWS_MS.values()], MOST)
    return Waiting(max(0, now_ms - first_ms) if first_ms is not None else 0, dict(zip(WINDOWS_MS, due, strict=True)))


def renderer(running: Running) -> Callable[[], bytes]:
    """The function that makes the text. Its errors: `StoreFailed`."""
    registry = CollectorRegistry()
    registry.register(EngineCollector(running))
    return lambda: generate_latest(registry)
