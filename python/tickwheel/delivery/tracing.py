"""Traces by OpenTelemetry (rule D15): a message carries the `traceparent` of its producer, and its delivery is a span
that is linked to that.

A link and not a child: the producer's trace would stay open for days. The program, or `opentelemetry-instrument`, has
set OpenTelemetry up before the queue is opened. Where nothing has imported it, nothing here does either, and a put
costs a look into `sys.modules`.
"""

import sys
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from typing import Final

from tickwheel import __version__
from tickwheel._native import Delivery

_API: Final = "opentelemetry.trace"
_HEADER: Final = "traceparent"


def current_traceparent() -> str | None:
    """Of the current span, as W3C Trace Context writes it; `None` if there is none, or nothing traces."""
    if _API not in sys.modules:
        return None
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier)
    return carrier.get(_HEADER)


def traced(function: Callable[[Delivery], object]) -> Callable[[Delivery], object]:
    """`function` inside a span of its own for each delivery, if the program traces; otherwise `function` itself.

    The span `deliver` is of the kind `CONSUMER`. An exception of the function is recorded in it.
    """
    if _API not in sys.modules:
        return function
    from opentelemetry import trace
    from opentelemetry.context import Context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        return function  # some library has imported the API, and nothing has set it up
    tracer = trace.get_tracer("tickwheel", __version__)
    propagator = TraceContextTextMapPropagator()

    def links_of(traceparent: str | None) -> list[trace.Link]:
        if traceparent is None:
            return []
        producer = trace.get_current_span(propagator.extract({_HEADER: traceparent}, Context())).get_span_context()
        return [trace.Link(producer)] if producer.is_valid else []

    @wraps(function)
    def deliver(delivery: Delivery) -> object:
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
        links = links_of(message.traceparent)
        span = tracer.start_span("deliver", Context(), trace.SpanKind.CONSUMER, attributes, links)
        with trace.use_span(span, end_on_exit=True, record_exception=False, set_status_on_exception=False):
            try:
                return function(delivery)
            except BaseException as error:
                span.set_status(trace.Status(trace.StatusCode.ERROR, type(error).__name__))
                with suppress(Exception):  # the text of an error may fail
                    span.record_exception(error)
                raise

    return deliver
