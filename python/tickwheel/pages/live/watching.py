"""Serves the page of a timer on loopback, from threads of its own, with the standard library alone."""

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final, Self

from tickwheel import Timer
from tickwheel.pages.live.assembly import live_page
from tickwheel.pages.live.frames import REST, figures_frame, wheel_frame

_FRAME_S: Final = 0.2
_FIGURES_EVERY: Final = 5  # frames
_MOST_STREAMS: Final = 16
_NAMES: Final = ("127.0.0.1", "localhost")


class Watch:
    """The page of a timer, as long as this is open: `url` is its address. Used in a `with` block, or until `close`."""

    def __init__(self, timer: Timer, port: int) -> None:
        self._process = os.getpid()
        self._server = _Server(timer, port)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.1,), name=f"watch-{timer.name}", daemon=True
        )
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}/"

    def close(self) -> None:
        """Close the port; a second call does nothing. The timer goes on. In a forked child it closes the child's."""
        if self._process == os.getpid():
            self._server.ending.set()
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Watch of {self._server.timer!r} at {self.url}>"


def watch(timer: Timer, *, port: int = 0) -> Watch:
    """Show a timer at work on a page: its wheel turning, what is due, how late its calls are.

    Open `url` in a browser on this machine; others can't reach it. `port`: 0 takes any free one. Costs five looks at
    the timer a second while pages are open, each O(pending), in steps; fewer where they would take more than a
    twentieth of a processor. Errors: `TypeError` if `timer` is no timer, `ValueError` if `port` is no port, `OSError`
    if it can't be opened; `TimerForked`.

    >>> import urllib.request
    >>> from tickwheel import SystemTimer
    >>> with SystemTimer("demo") as timer, watch(timer) as page:
    ...     b"The wheel" in urllib.request.urlopen(page.url).read()
    True
    """
    if not isinstance(timer, Timer):
        raise TypeError(f"timer must be a SystemTimer or a ManualTimer, got {type(timer).__name__}")
    if isinstance(port, bool) or not isinstance(port, int) or not 0 <= port <= 65_535:
        raise ValueError(f"port must be an int from 0 to 65535, got {port!r}: leave it out for any free one")
    timer.occupancy()  # raises what a page could not tell
    return Watch(timer, port)


class _Looks:
    """What all pages are told: each look at the timer is for all that ask within its time."""

    def __init__(self, look: Callable[[], object], lasts_s: float) -> None:
        self._look, self._lasts_s = look, lasts_s
        self._lock = threading.Lock()
        self._next_s, self._seen = 0.0, b""

    def last(self) -> bytes:
        with self._lock:
            begins_s = time.monotonic()
            if begins_s >= self._next_s:
                self._seen = json.dumps(self._look()).encode()
                self._next_s = begins_s + max(self._lasts_s, (time.monotonic() - begins_s) * REST)
            return self._seen


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False  # a thread that sends to a client which does not read must not hold up `close`

    def __init__(self, timer: Timer, port: int) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.timer = timer
        self.page = live_page("timer", f"Timer {timer.name}", {})
        self.ending = threading.Event()
        self.streams = threading.BoundedSemaphore(_MOST_STREAMS)
        self._wheels = _Looks(lambda: wheel_frame(timer), 0.9 * _FRAME_S)
        self._figures = _Looks(lambda: figures_frame(timer), 0.9 * _FRAME_S * _FIGURES_EVERY)

    def events(self) -> Iterator[tuple[str, bytes]]:
        """The data for a page, without an end. After the shutdown of the timer only that: it shows when a page left."""
        yield "hello", json.dumps({"rights": [], "name": self.timer.name}).encode()
        frame = 0
        while not self.ending.wait(_FRAME_S if frame else 0):
            yield "wheel", self._wheels.last()
            if frame % _FIGURES_EVERY == 0:
                yield "figures", self._figures.last()
            frame += 1
            while self.timer.is_shut_down and not self.ending.wait(_FRAME_S):
                yield "gone", b"{}"

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away is no error of the program."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = 30  # of a client that takes nothing, or asks for nothing

    def do_GET(self) -> None:
        """`/` is the page, `/events` its stream."""
        path = self.path.partition("?")[0]
        if not self._is_own():
            self._refuse(403, "the sender is a page of another site", "a browser on this machine")
        elif path == "/":
            self._answer(200, self.server.page.body, **self.server.page.headers)
        elif path != "/events":
            self._refuse(404, f"there is no {path[:200]}", "/ and /events")
        elif self.command == "HEAD":
            self._answer(200, b"", **{"content-type": "text/event-stream"})
        elif not self.server.streams.acquire(blocking=False):
            self._refuse(503, f"{_MOST_STREAMS} pages are open already", "the same request again, later")
        else:
            try:
                self._stream()
            finally:
                self.server.streams.release()

    do_HEAD = do_GET  # noqa: N815, as the base class has it

    def _stream(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("cache-control", "no-store")
        self.end_headers()
        for event, data in self.server.events():
            self.wfile.write(b"event: %b\ndata: %b\n\n" % (event.encode(), data))

    def _refuse(self, status: int, reason: str, allowed: str) -> None:
        self._answer(status, json.dumps({"reason": reason, "allowed": allowed}).encode())

    def _answer(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        given = {"content-type": "application/json", **headers, "content-length": str(len(body))}
        for name, value in given.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _is_own(self) -> bool:
        """Whether the page itself asks, or a person: a page of another site could have a name that leads here."""
        host = self.headers.get("host", "")
        origin = self.headers.get("origin", f"http://{host}")
        return host.partition(":")[0].lower() in _NAMES and origin == f"http://{host}"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002, as the base class has it
        """Nothing: standard error is the program's."""
