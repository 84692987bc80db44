"""The metrics of a query (rule D15), in Prometheus's text format and as Spark's own; `docs/spark.md` explains each.

They are as of the last micro-batch: a scrape asks nothing of Spark, so it costs nothing and holds up no message. No
label has a key or an id. Counters start at 0 with the process.
"""

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from prometheus_client import CollectorRegistry, ProcessCollector, start_http_server
from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from tickwheel import __version__
from tickwheel.delivery.base.errors import WrongUsage
from tickwheel.delivery.serve.access import Address
from tickwheel.delivery.serve.metrics import counter, gauge
from tickwheel.spark.hand_off import HandOff
from tickwheel.spark.query import read
from tickwheel.spark.schemas import DUE_WITHIN

OBSERVED: Final = "tickwheel"


def observed(near: DataFrame) -> DataFrame:
    """`NEAR` with Spark's observed metrics: they are in `query.lastProgress["observedMetrics"]["tickwheel"]`."""
    return near.observe(
        OBSERVED,
        F.sum("waiting").alias("held_messages"),
        F.sum("given").alias("unsettled_messages"),
        F.min("due_ms").alias("next_due_ms"),
        *(F.sum(F.element_at("due_within", at)).alias(f"due_within_{name}") for at, name in enumerate(DUE_WITHIN, 1)),
    )


@dataclass(slots=True)
class QueryMeasures:
    """What the driver counts of its query. `batch_s`: how long the last micro-batch took."""

    lead_s: float
    batches: int = 0
    read_rows: int = 0
    batch_s: float = 0.0
    ended_at_s: float = field(default_factory=time.time)
    started_within_s: float = 0.0
    _last: int = -1

    def note(self, progress: Mapping[str, Any]) -> bool:
        """Count a report of Spark's. Whether it is a new one."""
        if progress["batchId"] == self._last:
            return False
        self._last = progress["batchId"]
        self.batches += 1
        self.read_rows += read(progress)
        self.batch_s = progress["durationMs"].get("triggerExecution", 0) / 1000
        self.ended_at_s = time.time()
        return True


class QueryCollector(Collector):
    """Reads what the hand-off and the driver know, at each scrape."""

    def __init__(self, hand_off: HandOff, measures: QueryMeasures) -> None:
        self._hand_off = hand_off
        self._measures = measures

    def collect(self) -> Iterator[Metric]:
        """Every metric."""
        measures, report = self._measures, self._hand_off.report
        shards = [*report.shards.values()]  # the query's thread adds to it
        yield InfoMetricFamily("tickwheel_build", "The version that runs.", {"version": __version__})
        if shards:  # none before the first micro-batch has ended: then nothing is known of what is held
            yield from _held(shards)
        yield counter("spark_handed_off_messages", "Messages that deliverers took, each time.", report.sent)
        yield counter(
            "spark_failed_hand_offs", "Deliverers that did not take what they were sent, each time.", report.failed
        )
        yield from self._deliverers(shards)
        yield gauge("spark_lead_seconds", "How long before they are due messages leave the hold.", measures.lead_s)
        yield counter("spark_batches", "Micro-batches that have ended.", measures.batches)
        yield counter("spark_read_rows", "Rows that were read: records, or files.", measures.read_rows)
        yield gauge("spark_batch_duration_seconds", "How long the last micro-batch took.", measures.batch_s)
        yield gauge("spark_last_batch_timestamp_seconds", "When the last one ended, or the start.", measures.ended_at_s)
        first_hand_off = "From the start to the end of the first hand-off; 0 before it."
        yield gauge("spark_start_duration_seconds", first_hand_off, measures.started_within_s)

    def _deliverers(self, shards: list[Mapping[str, Any]]) -> Iterator[Metric]:
        up = GaugeMetricFamily("tickwheel_spark_deliverer_up", "Whether a deliverer answers.", labels=["deliverer"])
        what = "Messages of its keys that wait for a deliverer, held and unsettled ones."
        waiting = GaugeMetricFamily("tickwheel_spark_deliverer_messages", what, labels=["deliverer"])
        counts: Counter[str] = Counter()
        for it in shards:
            counts[it["taker"]] += it["waiting"] + it["given"]
        for address, answers in self._hand_off.up.items():
            up.add_metric([address], answers)
            if shards:
                waiting.add_metric([address], counts[address])
        yield up
        yield waiting


@contextmanager
def served(address: Address | None, hand_off: HandOff, measures: QueryMeasures) -> Iterator[int]:
    """A port with `/metrics`, if there is an address. Errors: `WrongUsage` if it can't be opened."""
    if address is None:
        yield 0
        return
    registry = CollectorRegistry()
    registry.register(QueryCollector(hand_off, measures))
    ProcessCollector(registry=registry)
    try:
        server, thread = start_http_server(address.port, address.ip, registry)
    except OSError as error:
        raise WrongUsage(
            f"{address.option} {address.host}:{address.port} can't be opened: {error.strerror}: name another port"
        ) from error
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _held(shards: list[Mapping[str, Any]]) -> Iterator[Metric]:
    yield gauge("spark_held_messages", "Messages that wait until they are near.", sum(it["waiting"] for it in shards))
    yield gauge(
        "spark_unsettled_messages",
        "Messages that were handed off, and whose outcome no deliverer has told yet.",
        sum(it["given"] for it in shards),
    )
    yield _due_within(shards)
    if first := [it["due_ms"] for it in shards if it["due_ms"] is not None]:
        yield gauge("spark_next_due_timestamp_seconds", "When the first held message is due.", min(first) / 1000)


def _due_within(shards: list[Mapping[str, Any]]) -> Metric:
    what = "Messages, held and unsettled ones, that are due within this time, or overdue; about."
    due = GaugeMetricFamily("tickwheel_spark_due_messages", what, labels=["within"])
    for at, within in enumerate(DUE_WITHIN):
        due.add_metric([within], sum(it["due_within"][at] for it in shards))
    return due
