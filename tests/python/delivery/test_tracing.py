"""Traces by OpenTelemetry (rule D15): the producer's span goes with its message, and its delivery is linked to it."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from tickwheel.delivery import AsyncDeliveryQueue, Delivery, DeliveryQueue, Letter, Message

from .loops import run, until
from .serve.conftest import Served
from .webhook_receiver import Receiver

pytestmark = pytest.mark.timeout(30)
PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    """For this test; the provider of a process can be set once only."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    return exporter


def linked(span: ReadableSpan) -> list[tuple[int, int]]:
    return [(link.context.trace_id, link.context.span_id) for link in span.links]


def delivered(spans: InMemorySpanExporter, count: int) -> list[ReadableSpan]:
    """In the order of the ids; each is a trace of its own."""
    found = [span for span in spans.get_finished_spans() if span.name == "deliver"]
    assert len(found) == count
    assert all(span.parent is None and span.kind is SpanKind.CONSUMER for span in found)
    return sorted(found, key=lambda span: str((span.attributes or {})["messaging.message.id"]))


def test_a_delivery_is_a_span_that_is_linked_to_the_one_of_the_put__D15(
    tmp_path: Path, spans: InMemorySpanExporter
) -> None:
    tracer = trace.get_tracer("shop")
    inside: list[int] = []

    def send(delivery: Delivery) -> None:
        inside.append(trace.get_current_span().get_span_context().span_id)

    with DeliveryQueue(tmp_path / "s.db", to=send) as queue:
        with tracer.start_as_current_span("order") as order:
            queue.put("a", "x", key="k", delay_ms=0)
            queue.put_many([("b", 1_700_000_000_005, "x"), {"id": "c", "delay_ms": 0, "traceparent": PARENT}])
            queue.put("d", "x", delay_ms=0, traceparent=PARENT)
        queue.put("e", "x", delay_ms=0)
        assert queue.wait_until_empty(10)
    a, b, c, d, e = delivered(spans, 5)
    producer = order.get_span_context()
    assert linked(a) == linked(b) == [(producer.trace_id, producer.span_id)]
    assert linked(c) == linked(d) == [(0x4BF92F3577B34DA6A3CE929D0E0E4736, 0x00F067AA0BA902B7)]
    assert linked(e) == []
    assert sorted(inside) == sorted(span.context.span_id for span in (a, b, c, d, e))
    assert a.status.status_code is StatusCode.UNSET
    told = dict(a.attributes or {})
    assert told.pop("tickwheel.lateness_ms", -1) >= 0
    assert told == {
        "messaging.system": "tickwheel",
        "messaging.operation.name": "deliver",
        "messaging.operation.type": "process",
        "messaging.message.id": "a",
        "tickwheel.key": "k",
        "tickwheel.attempt": 1,
        "tickwheel.redelivered": False,
    }


def test_a_coroutine_function_runs_inside_its_span_and_an_awaited_put_is_linked__D15(
    tmp_path: Path, spans: InMemorySpanExporter
) -> None:
    inside: dict[str, int] = {}

    async def send(delivery: Delivery) -> None:
        await asyncio.sleep(0.001)
        inside[delivery.message.id] = trace.get_current_span().get_span_context().span_id
        if delivery.message.id == "c":
            raise ValueError("no")

    async def main() -> trace.Span:
        options = {"max_attempts": 1, "on_dead_letter": lambda _: None}
        async with AsyncDeliveryQueue(tmp_path / "s.db", to=send, **options) as queue:  # type: ignore[arg-type]
            with trace.get_tracer("shop").start_as_current_span("order") as order:
                await asyncio.gather(queue.put("a", delay_ms=0), queue.put_many([("b", 1_700_000_000_005, "x")]))
            await queue.put("c", delay_ms=0)
            await until(lambda: len(queue) == 0)
        return order

    producer = run(main()).get_span_context()
    a, b, c = delivered(spans, 3)
    assert linked(a) == linked(b) == [(producer.trace_id, producer.span_id)]
    assert (linked(c), c.status.status_code) == ([], StatusCode.ERROR)
    assert inside == {name: span.context.span_id for name, span in zip("abc", (a, b, c), strict=True)}


def test_each_attempt_is_a_span_and_one_that_fails_says_why__D15(tmp_path: Path, spans: InMemorySpanExporter) -> None:
    def send(delivery: Delivery) -> None:
        if delivery.attempt == 1:
            raise ValueError("no such customer")

    with DeliveryQueue(tmp_path / "s.db", to=send, backoff_s=(0.001, 0.001)) as queue:
        queue.put("a", "x", delay_ms=0)
        assert queue.wait_until_empty(10)
    by_attempt = sorted(delivered(spans, 2), key=lambda span: int((span.attributes or {})["tickwheel.attempt"]))
    assert [span.status.status_code for span in by_attempt] == [StatusCode.ERROR, StatusCode.UNSET]
    [event] = by_attempt[0].events
    assert (event.attributes or {})["exception.message"] == "no such customer"


def test_a_webhook_passes_the_traceparent_on__D15(
    tmp_path: Path, spans: InMemorySpanExporter, receiver: Receiver
) -> None:
    receiver.statuses[:] = [400]
    with DeliveryQueue(tmp_path / "s.db", to=receiver.url, backoff_s=(0.001, 0.001)) as queue:
        queue.put("a", "x", key="k", delay_ms=0, traceparent=PARENT)
        assert queue.wait_until_empty(10)
    assert [headers["traceparent"] for headers, _ in receiver.requests] == [PARENT, PARENT]


def test_an_error_whose_text_fails_is_the_reason_all_the_same__D15(tmp_path: Path, spans: InMemorySpanExporter) -> None:
    class Unspeakable(Exception):
        def __str__(self) -> str:
            raise RuntimeError("never")

    def send(_: Delivery) -> None:
        raise Unspeakable

    letters: list[Letter] = []
    with DeliveryQueue(tmp_path / "s.db", to=send, max_attempts=1, on_dead_letter=letters.append) as queue:
        queue.put("a", "x", delay_ms=0)
        assert queue.wait_until_empty(10)
    assert [letter.reason for letter in letters] == ["gave up after 1 attempt: Unspeakable: its text can't be read"]
    [span] = delivered(spans, 1)
    assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, "Unspeakable")


def test_it_comes_out_after_a_restart_too__D15(tmp_path: Path, spans: InMemorySpanExporter) -> None:
    seen: list[str | None] = []
    with DeliveryQueue(tmp_path / "s.db", to=lambda _: None) as queue:
        queue.put("a", "x", due=1_900_000_000_000, traceparent=PARENT)
    with DeliveryQueue(tmp_path / "s.db", to=lambda it: seen.append(it.message.traceparent)) as queue:
        queue.reschedule("a", delay_ms=0)
        assert queue.wait_until_empty(10)
    assert seen == [PARENT]
    [span] = delivered(spans, 1)
    assert linked(span) == [(0x4BF92F3577B34DA6A3CE929D0E0E4736, 0x00F067AA0BA902B7)]


def test_what_is_put_again_in_another_span_is_a_duplicate__D15(tmp_path: Path, spans: InMemorySpanExporter) -> None:
    with DeliveryQueue(tmp_path / "s.db", to=lambda _: None) as queue:
        for expected in ("accepted", "duplicate"):
            with trace.get_tracer("shop").start_as_current_span("order"):
                assert queue.put("a", "x", due=1_900_000_000_000) == expected


def test_a_request_hands_its_span_on_to_its_messages__D15(tmp_path: Path, spans: InMemorySpanExporter) -> None:
    other = PARENT.replace("00f0", "11f0")
    served = Served(tmp_path)
    try:
        for headers, body in (
            ({"traceparent": PARENT}, b'{"id": "a", "delay_ms": 0}'),
            ({"traceparent": PARENT}, b'{"id": "b", "delay_ms": 0, "traceparent": "%s"}' % other.encode()),
            ({"traceparent": "no traceparent"}, b'{"id": "c", "delay_ms": 0}'),
            ({}, b'{"id": "d", "delay_ms": 0}'),
        ):
            assert served.ask("POST", "/messages", body, headers=headers).status == 201
        many = {"traceparent": PARENT, "content-type": "application/x-ndjson"}
        lines = b'{"id": "e", "delay_ms": 0}\n{"id": "f", "delay_ms": 0, "traceparent": "%s"}\n' % other.encode()
        assert served.ask("POST", "/messages", lines, headers=many).status == 200
        assert served.running.wait(10)
        arrived: dict[str, Message] = {}
        while len(arrived) < 6:
            message = served.arrived.get(timeout=10).message
            arrived[message.id] = message
    finally:
        served.close()
    expected = {"a": PARENT, "b": other, "c": None, "d": None, "e": PARENT, "f": other}
    assert {id_: message.traceparent for id_, message in arrived.items()} == expected


def test_a_program_that_does_not_trace_imports_nothing_of_it__D15(tmp_path: Path) -> None:
    program = f"""
import sys
from tickwheel.delivery import DeliveryQueue
seen = []
with DeliveryQueue({str(tmp_path / "s.db")!r}, to=lambda it: seen.append(it.message.traceparent)) as queue:
    queue.put("a", "x", delay_ms=0)
    queue.put("b", "x", delay_ms=0, traceparent={PARENT!r})
    assert queue.wait_until_empty(10)
print(sorted(seen, key=str), [name for name in sys.modules if name.startswith("opentelemetry")])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=20)
    assert (done.stdout, done.stderr) == (f"{[PARENT, None]} []\n", "")
