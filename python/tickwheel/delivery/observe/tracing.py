"""Traces by OpenTelemetry (rule D15): a message carries the `traceparent` of its producer, and the span of its delivery
links to the producer's span.

The delivery is no child of that span, because then the producer's trace would stay open for days. The program, or
`opentelemetry-instrument`, has set OpenTelemetry up before the queue is opened. If nothing has imported OpenTelemetry,
this module does not import it either, and a put costs one look into `sys.modules`.
"""

import sys
import threading
import weakref
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import wraps
from typing import Any, Final

from tickwheel import __version__
from tickwheel._event import Event
from tickwheel._native import Delivery, Destination

_API: Final = "opentelemetry.trace"
_HEADER: Final = "traceparent"
_EVERY_S: Final = 0.5


def current_traceparent() -> str | None:
    """The current span as W3C Trace Context writes it; `None` if there is no span, or nothing traces."""
    if _API not in sys.modules:
        return None
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier)
    return carrier.get(_HEADER)


def is_tracing() -> bool:
    """Whether the program has set OpenTelemetry up. Some library may have imported its API alone."""
    if _API not in sys.modules:
        return False
    from opentelemetry import trace

    return not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)


def traced(function: Callable[[Delivery], object]) -> Callable[[Delivery], object]:
    """`function` inside a span of its own for each delivery, if the program traces; otherwise `function` itself.

    The span `deliver` is of the kind `CONSUMER`. An exception of the function is recorded in it.
    """
    if not is_tracing():
        return function
    span_of = _spans()

    @wraps(function)
    def deliver(delivery: Delivery) -> object:
        with span_of(delivery):
            return function(delivery)

    return deliver


def traced_coroutine(function: Callable[[Delivery], Awaitable[object]]) -> Callable[[Delivery], Awaitable[object]]:
    """As `traced`, for a coroutine function: the span is open until it has ended."""
    if not is_tracing():
        return function
    span_of = _spans()

    @wraps(function)
    async def deliver(delivery: Delivery) -> object:
        with span_of(delivery):
            return await function(delivery)

    return deliver


def _spans() -> Callable[[Delivery], AbstractContextManager[None]]:
    """Makes the span of a delivery, which is the current one inside the block."""
    from opentelemetry import trace

    start = _starter(trace.SpanKind.CONSUMER)

    @contextmanager
    def span_of(delivery: Delivery) -> Iterator[None]:
        message = delivery.message
        attributes = _attributes(message.id, message.key, delivery.attempt, delivery.redelivered, delivery.lateness_ms)
        span = start(message.traceparent, attributes, None)
        with trace.use_span(span, end_on_exit=True, record_exception=False, set_status_on_exception=False):
            try:
                yield
            except BaseException as error:
                span.set_status(trace.Status(trace.StatusCode.ERROR, type(error).__name__))
                with suppress(Exception):  # the text of an error may fail
                    span.record_exception(error)
                raise

    return span_of


class SendSpans(threading.Thread):
    """Makes a `CLIENT` span for each send of a webhook, soon after its answer, because the engine makes the requests
    and knows no spans. At most ten thousand sends are kept for half a second; further sends get no span.
    """

    def __init__(self, destination: Destination, owner: object) -> None:
        super().__init__(name="spans-deliver", daemon=True)
        self._destination = destination
        self._owner = weakref.ref(owner)
        self._over = Event()

    def run(self) -> None:
        """In the thread, until `stop`, or until the owner is gone without it."""
        while not self._over.wait(_EVERY_S) and self._owner() is not None:
            self._make()

    def stop(self) -> None:
        """Make the remaining spans, and end."""
        self._over.set()
        if self.is_alive():
            self.join()
        self._make()

    def _make(self) -> None:
        from opentelemetry import trace

        start = _starter(trace.SpanKind.CLIENT)
        for (
            key,
            id_,
            traceparent,
        ), attempt, redelivered, late_us, began_us, ended_us, error in self._destination.take_sends():
            span = start(traceparent, _attributes(id_, key, attempt, redelivered, late_us / 1_000), began_us * 1_000)
            if error is not None:
                span.set_status(trace.Status(trace.StatusCode.ERROR, error))
            span.end(ended_us * 1_000)


def _starter(kind: Any) -> Callable[[str | None, Mapping[str, Any], int | None], Any]:
    """Starts a span that links to the producer's span, if there is one. `at_ns`: ns since 1970; `None`: now."""
    from opentelemetry import trace
    from opentelemetry.context import Context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    tracer = trace.get_tracer("tickwheel", __version__)
    propagator = TraceContextTextMapPropagator()

    def start(traceparent: str | None, attributes: Mapping[str, Any], at_ns: int | None) -> trace.Span:
        links = []
        if traceparent is not None:
            producer = trace.get_current_span(propagator.extract({_HEADER: traceparent}, Context())).get_span_context()
            links = [trace.Link(producer)] if producer.is_valid else []
        return tracer.start_span("deliver", Context(), kind, attributes, links, start_time=at_ns)

    return start


def _attributes(id_: str, key: str | None, attempt: int, redelivered: bool, late_ms: float) -> Mapping[str, Any]:
    attributes: dict[str, str | int | bool | float] = {
        "messaging.system": "tickwheel",
        "messaging.operation.name": "deliver",
        "messaging.operation.type": "process",
        "messaging.message.id": id_,
        "tickwheel.attempt": attempt,
        "tickwheel.redelivered": redelivered,
        "tickwheel.lateness_ms": late_ms,
    }
    if key is not None:
        attributes["tickwheel.key"] = key
    return attributes
