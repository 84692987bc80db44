"""Tells systemd what this process does, if a unit of `Type=notify` has started it (`sd_notify(3)`).

A datagram of `NAME=VALUE` lines to the socket that `NOTIFY_SOCKET` names. Libraries for it need a compiler or are not
kept any more, and this is one call.

| it says | when |
|---|---|
| `STATUS=` | it waits for its store; it delivers; it stops |
| `READY=1` | the store is open, and so are the ports |
| `RELOADING=1`, then `READY=1` | around a SIGHUP |
| `STOPPING=1` | at the end |
| `WATCHDOG=1` | twice within `WATCHDOG_USEC`, by the loop that also sees whether delivery has failed |
"""

import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from tickwheel._printable import logger_of

_log = logger_of("tickwheel.delivery")


class Notifier:
    """Does nothing where systemd has not started this process. A socket that can't be written is a warning, once."""

    def __init__(
        self, environ: Mapping[str, str] = os.environ, monotonic_ns: Callable[[], int] = time.monotonic_ns
    ) -> None:
        path = environ.get("NOTIFY_SOCKET", "")
        self._address = f"\0{path[1:]}" if path.startswith("@") else path
        self._monotonic_ns = monotonic_ns
        self._watchdog_ns = _watchdog_ns(environ) if path else 0
        self._next_ns = 0

    def status(self, text: str) -> None:
        """What `systemctl status` shows."""
        self._send(f"STATUS={_line(text)}")

    def ready(self, text: str) -> None:
        """The ports are open, and the store is this process's."""
        self._send(f"READY=1\nSTATUS={_line(text)}")

    def stopping(self, text: str) -> None:
        """The end has begun."""
        self._send(f"STOPPING=1\nSTATUS={_line(text)}")

    @contextmanager
    def reloading(self) -> Iterator[None]:
        """While files are read again."""
        self._send(f"RELOADING=1\nMONOTONIC_USEC={self._monotonic_ns() // 1000}")
        yield
        self._send("READY=1")

    def alive(self) -> None:
        """All is well; to be called more often than the watchdog asks for it. Most calls send nothing."""
        if self._watchdog_ns and (now_ns := self._monotonic_ns()) >= self._next_ns:
            self._next_ns = now_ns + self._watchdog_ns // 2
            self._send("WATCHDOG=1")

    def _send(self, text: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as to:
                to.connect(self._address)
                to.sendall(text.encode(errors="replace"))  # a path may be any bytes
        except OSError as error:
            _log.warning("systemd can't be told %s: %s", text.partition("\n")[0], error)
            self._address = ""


def _watchdog_ns(environ: Mapping[str, str]) -> int:
    """The time within which systemd expects a message from this process; 0 if it expects none."""
    is_other = environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid())
    wanted = environ.get("WATCHDOG_USEC", "")
    return 0 if is_other or not wanted.isdecimal() else int(wanted) * 1000


def _line(text: str) -> str:
    return " ".join(text.split())
