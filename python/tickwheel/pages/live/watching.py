"""Serves the page of a timer on loopback, from threads of its own, with the standard library alone."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Final, Self

from tickwheel import Timer
from tickwheel.pages.live.assembly import live_page
from tickwheel.pages.live.frames import figures_frame, wheel_frame

_FRAME_S: Final = 0.2
_FIGURES_EVERY: Final = 5  # frames
_MOST_STREAMS: Final = 16
_NAMES: Final = ("127.0.0.1", "localhost")


class Watch:
    """The page of a timer, as long as this is open: `url` is its address. Used in a `with` block, or until `close`."""

    def __init__(self, timer: Timer, port: int) -> None:
        self._server = _Server(timer, port)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.1,), name=f"watch-{timer.name}", daemon=True
        )
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}/"

    def close(self) -> None:
        """Close the port; a second call does nothing. The timer goes on."""
        self._server.ending.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Watch of {self._server.timer!r} at {self.url}>"


def watch(timer: Timer, *, port: int = 0) -> Watch:
    """Show a timer at work on a page: its wheel turning, what is due, how late its calls are.

    Open `url` in a browser on this machine; others can't reach it. `port`: 0 takes any free one. Costs five looks at
    the timer a second while a page is open, each O(buckets) and a step for each 1,024 tasks. Errors: `TypeError` for
    what is no timer, `OSError` for a port that can't be opened.

    >>> import urllib.request
    >>> from tickwheel import SystemTimer
    >>> with SystemTimer("demo") as timer, watch(timer) as page:
    ...     b"The wheel" in urllib.request.urlopen(page.url).read()
    True
    """
    if not isinstance(timer, Timer):
        raise TypeError(f"timer must be a SystemTimer or a ManualTimer, got {type(timer).__name__}")
    return Watch(timer, port)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False  # a thread that sends to a client which does not read must not hold up `close`

    def __init__(self, timer: Timer, port: int) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.timer = timer
        self.page = live_page("timer", f"Timer {timer.name}", {})
        self.ending = threading.Event()
        self.streams = threading.BoundedSemaphore(_MOST_STREAMS)

    def events(self) -> Iterator[tuple[str, Any]]:
        """What a page is sent, for ever; nothing more once the timer is shut down."""
        yield "hello", {"rights": [], "name": self.timer.name}
        frame = 0
        while not self.ending.wait(_FRAME_S if frame else 0):
            yield "wheel", wheel_frame(self.timer)
            if frame % _FIGURES_EVERY == 0:
                yield "figures", figures_frame(self.timer)
            if self.timer.is_shut_down:
                yield "gone", {}
                self.ending.wait()
            frame += 1

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away is no error of the program."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = 30  # of a client that takes nothing, or asks for nothing

    def do_GET(self) -> None:
        """`/` is the page, `/events` its stream."""
        if not self._is_own():
            self._answer(403, b"This page is for browsers on this machine.")
        elif self.path == "/":
            self._answer(200, self.server.page.body, **self.server.page.headers)
        elif self.path != "/events":
            self._answer(404, b"Here are / and /events.")
        elif not self.server.streams.acquire(blocking=False):
            self._answer(503, b"Too many pages are open.")
        else:
            try:
                self._stream()
            finally:
                self.server.streams.release()

    def _stream(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("cache-control", "no-store")
        self.end_headers()
        for event, data in self.server.events():
            self.wfile.write(f"event: {event}\ndata: {json.dumps(data)}\n\n".encode())

    def _answer(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"content-type": "text/plain", **headers, "content-length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def _is_own(self) -> bool:
        """Whether the page itself asks, or a person: a page of another site could have a name that leads here."""
        host = self.headers.get("host", "")
        origin = self.headers.get("origin", f"http://{host}")
        return host.partition(":")[0] in _NAMES and origin == f"http://{host}"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002, as the base class has it
        """Nothing: standard error is the program's."""
