"""Writes a delivery as one line of NDJSON (rule D11), the same for files, standard output and webhooks.

`id, key, due, payload` (or `payload_base64`), `delivered_at, lateness_ms, attempt, redelivered`. Times are RFC 3339 in
UTC with milliseconds; `lateness_ms` is to the microsecond.
"""

from tickwheel.delivery.sinks.sink import Delivery


def line_of(delivery: Delivery) -> bytes:
    """The line, with its newline."""
    return delivery.line
