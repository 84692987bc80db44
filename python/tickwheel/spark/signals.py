"""SIGTERM and SIGINT are this process's to handle, whichever of its two processes they are sent to (rule D13).

A JVM that gets one ends at once, in the middle of a micro-batch, and the driver then fails with a page of errors. Under
`spark-submit` the JVM is the process that a user or Kubernetes knows, and it starts this one; else it is a child.
"""

import os
import signal
from typing import Any, Final

from pyspark import SparkContext
from pyspark.java_gateway import ensure_callback_server_started

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


def take_signals() -> None:
    """If the JVM has started this process, it passes these signals on from now on; otherwise it ignores them."""
    SparkContext._ensure_initialized()
    gateway: Any = SparkContext._gateway
    sun = gateway.jvm.sun.misc
    is_parent = "PYSPARK_GATEWAY_PORT" in os.environ
    if is_parent:
        ensure_callback_server_started(gateway)
    for number in _SIGNALS:
        handler = _SendOn(number) if is_parent else sun.SignalHandler.SIG_IGN
        sun.Signal.handle(sun.Signal(number.name.removeprefix("SIG")), handler)


class _SendOn:
    """A handler in the JVM. The names are those of `sun.misc.SignalHandler`."""

    def __init__(self, number: signal.Signals) -> None:
        self._number = number

    def handle(self, _signal: Any) -> None:
        """Called by the JVM, in a thread of this process."""
        os.kill(os.getpid(), self._number)

    class Java:
        """What it implements."""

        implements: Final = ["sun.misc.SignalHandler"]
