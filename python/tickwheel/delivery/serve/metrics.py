"""The metrics of `GET /metrics` (rule D15), as text of Prometheus or OpenMetrics; `docs/metrics.md` explains each.

Counters and histograms start with the process, and the engine keeps them. For a scrape the engine looks through the
messages in memory, and counts the waiting messages in the store, up to `MOST`. A scrape takes at most some 0.1 s, and
some 0.05 s more with a thousand named destinations. It holds up no message.
No label has a key or an id. The first thousand named destinations have series of their own, and so have tenants; all
others have one as `other`. So the number of time series is bounded.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Final, NamedTuple, TypeAlias

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from tickwheel import __version__
from tickwheel._native import EngineMeasures, StoreSnapshot
from tickwheel.delivery.engine.running import Running
from tickwheel.delivery.model.summary import Summary
from tickwheel.delivery.sight.status import count_paused_keys, sizes_of

MOST: Final = 250_000
NAMED: Final = 1_000
"""How many destinations have time series of their own, and how many tenants."""
_Family: TypeAlias = type[GaugeMetricFamily] | type[CounterMetricFamily]
WINDOWS_MS: Final = {"1m": 60_000, "1h": 3_600_000, "1d": 86_400_000}

_OTHER: Final = "other"
_OF_TENANT: Final[Sequence[tuple[str, _Family, str, str, float]]] = (
    ("waiting", GaugeMetricFamily, "waiting_messages", "Its messages in memory without an outcome.", 1),
    ("overdue", GaugeMetricFamily, "overdue_messages", "Its due messages in memory without an outcome.", 1),
    ("delivered", CounterMetricFamily, "delivered_messages", "Its messages that have arrived.", 1),
    ("late", CounterMetricFamily, "late_messages", "Those that were sent more than a second after they were due.", 1),
    ("lateness_us", CounterMetricFamily, "lateness_seconds", "How late those were together that have arrived.", 1e-6),
    ("failed_attempts", CounterMetricFamily, "failed_attempts", "Its attempts that failed.", 1),
)
"""The figures of a tenant: of the engine, and as a metric, with its unit."""

_Buckets: TypeAlias = tuple[list[int], list[int], int]


class Waiting(NamedTuple):
    """The waiting messages: how long the first has been due, and how many are due by the end of each window."""

    oldest_overdue_ms: int
    due: dict[str, int]


class EngineCollector(Collector):
    """Reads the engine's counts at each scrape."""

    def __init__(self, running: Running, wall_ns: Callable[[], int] = time.time_ns) -> None:
        self._running = running
        self._wall_ns = wall_ns
        self._tenants: dict[str, None] = {}  # those with time series of their own

    def collect(self) -> Iterator[Metric]:
        """Every metric. Errors: `StoreFailed`."""
        measures = self._running.engine.measures()
        yield InfoMetricFamily("tickwheel_build", "The version that runs.", {"version": __version__})
        yield from _messages(self._running.summary, measures)
        yield from _sending(measures)
        yield from self._destination(measures)
        yield from self._destinations()
        yield from self._of_tenants()
        yield from self._waiting(measures)
        yield from self._outboxes()
        yield from self._store(measures)
        yield from self._replication()

    def _outboxes(self) -> Iterator[Metric]:
        outboxes = self._running.outboxes
        yield counter("outbox_rows", "Rows of outboxes that were accepted.", sum(each.rows for each in outboxes))
        down = sum(not each.is_up for each in outboxes)
        yield gauge("outboxes_down", "Outboxes whose database does not answer.", down)
        now_ms = self._wall_ns() // 1_000_000
        ages_ms = [max(0, now_ms - each.oldest_ms) for each in outboxes if each.oldest_ms is not None]
        age = "How long ago the oldest row was written that the last look into an outbox has found; 0 if none."
        yield gauge("outbox_oldest_row_seconds", age, max(ages_ms, default=0) / 1000)

    def _destination(self, measures: EngineMeasures) -> Iterator[Metric]:
        running = self._running
        if measures.destination_changed_ms is not None:
            up = "Whether the destination of messages that name none takes them."
            yield gauge("destination_up", up, running.engine.down is None)
            yield gauge(
                "destination_changed_timestamp_seconds",
                "Since when that destination is up, or down.",
                measures.destination_changed_ms / 1000,
            )
        yield gauge("paused", "Whether sending is paused.", running.engine.is_paused)
        with StoreSnapshot(running.store) as db:
            yield gauge("paused_keys", "Keys of which nothing is sent.", count_paused_keys(db))
        rate = "How many messages --rate allows in a second; 0 if it is not given."
        yield gauge("rate_messages_per_second", rate, running.rate_per_s)

    def _destinations(self) -> Iterator[Metric]:
        counts, each = self._running.engine.destination_measures(NAMED)
        yield gauge("destinations", "Named destinations.", counts["all"])
        yield gauge("destinations_down", "Named destinations that are down.", counts["down"])
        yield gauge("destinations_paused", "Named destinations that are paused.", counts["paused"])
        *named, others = each
        told = [*named, others | {"name": _OTHER}] if any(others.values()) else named

        def of(
            family: _Family,
            name: str,
            what: str,
            figure: str,
            unit: float = 1,
        ) -> Metric:
            values = ((it["name"], it[figure] * unit) for it in told)
            return _labelled(family, f"destination_{name}", what, "destination", values)

        yield of(CounterMetricFamily, "delivered_messages", "Messages that have arrived there.", "delivered")
        late = "Messages that have arrived there, and were sent more than a second after they were due."
        yield of(CounterMetricFamily, "late_messages", late, "late")
        lateness = "How late the messages were together that have arrived there."
        yield of(CounterMetricFamily, "lateness_seconds", lateness, "lateness_us", 1e-6)
        yield of(CounterMetricFamily, "failed_attempts", "Attempts that failed there.", "failed")
        yield of(GaugeMetricFamily, "down", "Whether it is down, and not paused; of the others, how many are.", "down")
        yield of(GaugeMetricFamily, "paused", "Whether it is paused; of the others, how many are.", "paused")
        overdue = [(it["name"], it["overdue_ms"] / 1000) for it in named]
        age = "How long the oldest message without an outcome has been due there."
        yield _labelled(GaugeMetricFamily, "destination_oldest_overdue_seconds", age, "destination", overdue)

    def _of_tenants(self) -> Iterator[Metric]:
        found, others = self._running.engine.tenant_figures(NAMED, [*self._tenants])
        sums = {name: Counter[str]() for name in self._tenants}
        for it in (*found, {**others, "name": _OTHER}):
            if it["name"] != _OTHER and len(self._tenants) < NAMED:
                self._tenants[it["name"]] = None
            name = it["name"] if it["name"] in self._tenants else _OTHER
            counts = {figure: it[figure] for figure, *_ in _OF_TENANT}
            if name != _OTHER or any(counts.values()):
                sums.setdefault(name, Counter()).update(counts)
        for figure, family, metric, what, unit in _OF_TENANT:
            values = ((name, each[figure] * unit) for name, each in sums.items())
            yield _labelled(family, f"tenant_{metric}", what, "tenant", values)

    def _waiting(self, measures: EngineMeasures) -> Iterator[Metric]:
        yield _labelled(GaugeMetricFamily, "messages", "Messages without an outcome.", "state", measures.states)
        waiting = look(self._running, self._wall_ns() // 1_000_000)
        within = f"Messages that are due within this time, or overdue; counted up to {MOST}."
        yield _labelled(GaugeMetricFamily, "due_messages", within, "within", waiting.due.items())
        yield gauge(
            "oldest_overdue_seconds",
            "How long the oldest message without an outcome has been due.",
            waiting.oldest_overdue_ms / 1000,
        )
        yield _labelled(
            GaugeMetricFamily,
            "blocked_keys",
            "Keys whose next message is due and has to wait for another of the key.",
            "behind",
            measures.blocked_keys,
        )
        messages, size = self._running.engine.in_memory()
        yield gauge("window_messages", "Messages in memory.", messages)
        yield gauge("window_bytes", "Memory that the messages take, as far as it is bounded.", size)

    def _store(self, measures: EngineMeasures) -> Iterator[Metric]:
        yield _histogram("commit_duration_seconds", "How long a commit took.", measures.commit_durations)
        running = "For how long a commit has been going on, with the destination's sync before it; 0 if none is."
        yield gauge("commit_running_seconds", running, measures.commit_running_us / 1e6)
        yield gauge(
            "last_commit_timestamp_seconds",
            "When the last commit ended, or the store was opened.",
            measures.last_commit_ms / 1000,
        )
        size, log_size = sizes_of(self._running.store)
        yield gauge("store_bytes", "The size of the store's file.", size)
        yield gauge("store_log_bytes", "The size of the store's write-ahead log.", log_size)

    def _replication(self) -> Iterator[Metric]:
        found = self._running.engine.replication() or {"epoch": 0, "lag_s": 0, "lag_bytes": 0}
        epoch = "The number of the take-over by this process; 0 if the store is not replicated."
        yield gauge("replication_epoch", epoch, found["epoch"])
        lag = "For how long PostgreSQL has not confirmed a group; 0 if it has confirmed all."
        yield gauge("replication_lag_seconds", lag, found["lag_s"])
        yield gauge("replication_lag_bytes", "Bytes of what it has not confirmed.", found["lag_bytes"])


def _messages(summary: Summary, measures: EngineMeasures) -> Iterator[Metric]:
    """The outcomes of messages, as of the last commit."""
    yield counter("accepted_messages", "New messages.", summary.accepted)
    yield counter("delivered_messages", "Messages that have arrived.", summary.delivered)
    yield counter("redelivered_messages", "Those among them that may have arrived before too.", measures.redelivered)
    yield counter("cancelled_messages", "Messages that were cancelled.", summary.cancelled)
    yield counter("late_cancels", "Cancels that came after the message was sent.", summary.cancels_too_late)
    yield counter("rescheduled_messages", "Messages that got another due time or payload.", summary.rescheduled)
    yield counter("late_reschedules", "Other due times that came too late.", summary.reschedules_too_late)
    yield counter("events", "Events that came, each once.", summary.events)
    yield counter("let_go_messages", "Messages that events have let go.", summary.let_go)
    yield counter("expired_messages", "Messages whose time was over before they were sent.", summary.expired)
    yield counter("requeued_messages", "Dead letters that are tried anew.", summary.requeued)
    yield counter("duplicates", "Messages and cancels that were known already.", summary.duplicates)
    yield counter("conflicts", "Messages that were known with other content.", summary.conflicts)
    letters = {"input": summary.dead_letters - summary.undeliverable, "delivery": summary.undeliverable}
    told = "Records that could not be read, and messages that were given up or have expired."
    yield _labelled(CounterMetricFamily, "dead_letters", told, "source", letters.items())


def _sending(measures: EngineMeasures) -> Iterator[Metric]:
    yield counter("attempts", "Messages that were sent, each time.", measures.attempts)
    failed = "Attempts that failed, also those that do not count."
    yield _labelled(CounterMetricFamily, "failed_attempts", failed, "cause", measures.failures)
    yield counter("cut_off_sends", "Sends that took longer than --sink-timeout.", measures.cut_off_sends)
    yield gauge("keys_in_doubt", "Keys whose last send was not accepted, or was slow.", measures.keys_in_doubt)
    taken, all_of_them = measures.spare_places
    yield gauge("spare_places", "Spare places, for sends that take long and for keys in doubt.", all_of_them)
    yield gauge("spare_places_taken", "Spare places that are taken.", taken)
    yield gauge("hanging_senders", "Threads that were cut off, and have not ended.", measures.hanging_senders)
    late = "How long after its due time a message was sent that has arrived."
    yield _histogram("lateness_seconds", late, measures.lateness)
    yield _histogram("send_duration_seconds", "How long the destination took for a send.", measures.send_durations)


def look(running: Running, now_ms: int, windows_ms: Mapping[str, int] = WINDOWS_MS) -> Waiting:
    """Counts the waiting messages, at most `MOST` per window. Errors: `StoreFailed`."""
    first_ms, due = running.engine.census([now_ms + ms for ms in windows_ms.values()], MOST)
    return Waiting(max(0, now_ms - first_ms) if first_ms is not None else 0, dict(zip(windows_ms, due, strict=True)))


def renderer(running: Running) -> Callable[[str], tuple[bytes, str]]:
    """The function that makes the text and its type, for the value of `Accept`. Its errors: `StoreFailed`."""
    registry = CollectorRegistry()
    registry.register(EngineCollector(running))
    ProcessCollector(registry=registry)

    def render(accept: str) -> tuple[bytes, str]:
        encode, kind = choose_encoder(accept)
        return encode(registry), kind

    return render


def gauge(name: str, what: str, value: float) -> Metric:
    """A figure as it is now."""
    return GaugeMetricFamily(f"tickwheel_{name}", what, value)


def counter(name: str, what: str, value: int) -> Metric:
    """A count that only grows."""
    return CounterMetricFamily(f"tickwheel_{name}", what, value)


def _labelled(
    family: _Family,
    name: str,
    what: str,
    label: str,
    values: Iterable[tuple[str, float]],
) -> Metric:
    made = family(f"tickwheel_{name}", what, labels=[label])
    for each, value in values:
        made.add_metric([each], value)
    return made


def _histogram(name: str, what: str, buckets: _Buckets) -> Metric:
    bounds_us, counts, sum_us = buckets
    bounds = [*(str(bound_us / 1e6) for bound_us in bounds_us), "+Inf"]
    ends = [*zip(bounds, accumulate(counts), strict=True)]
    return HistogramMetricFamily(f"tickwheel_{name}", what, buckets=ends, sum_value=sum_us / 1e6)
