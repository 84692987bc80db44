"""Traces by OpenTelemetry (rule D15): a message carries the `traceparent` of its producer, and the span of its delivery
links to the producer's span.

The delivery is no child of that span, because then the producer's trace would stay open for days. The program, or
`opentelemetry-instrument`, has set OpenTelemetry up before the queue is opened. If nothing has imported OpenTelemetry,
this module does not import it either, and a put costs one look into `sys.modules`.
"""

import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import wraps
from typing import Any, Final

from tickwheel import __version__
from tickwheel._native import Delivery

_API: Final = "opentelemetry.trace"
_HEADER: Final = "traceparent"


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
    """Makes the span of a delivery, which is the current one inside the block. It links to the producer's, if there is
    one.
    """
    from opentelemetry import trace
    from opentelemetry.context import Context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    tracer = trace.get_tracer("tickwheel", __version__)
    propagator = TraceContextTextMapPropagator()

    @contextmanager
    def span_of(delivery: Delivery) -> Iterator[None]:
        links = []
        if (traceparent := delivery.message.traceparent) is not None:
            producer = trace.get_current_span(propagator.extract({_HEADER: traceparent}, Context())).get_span_context()
            links = [trace.Link(producer)] if producer.is_valid else []
        span = tracer.start_span("deliver", Context(), trace.SpanKind.CONSUMER, _attributes(delivery), links)
        with trace.use_span(span, end_on_exit=True, record_exception=False, set_status_on_exception=False):
            try:
                yield
            except BaseException as error:
                span.set_status(trace.Status(trace.StatusCode.ERROR, type(error).__name__))
                with suppress(Exception):  # the text of an error may fail
                    span.record_exception(error)
                raise

    return span_of


def _attributes(delivery: Delivery) -> Mapping[str, Any]:
    message = delivery.message
    attributes: dict[str, str | int | bool | float] = {
        "messaging.system": "tickwheel",
        "messaging.operation.name": "deliver",
        "messaging.operation.type": "process",
        "messaging.message.id": message.id,
        "tickwheel.attempt": delivery.attempt,
        "tickwheel.redelivered": delivery.redelivered,
        "tickwheel.lateness_ms": delivery.lateness_ms,
    }
    if message.key is not None:
        attributes["tickwheel.key"] = message.key
    return attributes
