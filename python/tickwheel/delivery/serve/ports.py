"""The ports of `tickwheel serve` and their threads (rules D9, D11, D12).

One thread accepts the connections of both, and serves HTTP. Flight has threads of its own, behind `relay.py`.
"""

import asyncio
import contextlib
import logging
import socket
import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from tickwheel.delivery.errors import WrongUsage
from tickwheel.delivery.running import Running
from tickwheel.delivery.serve.access import Access, Address
from tickwheel.delivery.serve.connections import Acceptor, Place
from tickwheel.delivery.serve.relay import FlightSocket, RelayConnection
from tickwheel.delivery.serve.tls import Certificates

if TYPE_CHECKING:
    import uvicorn
    from starlette.types import ASGIApp

_REQUESTS_END_WITHIN_S = 5
_STREAMS_END_WITHIN_S = 1
_CONNECTIONS = 256  # of a port, that wait for their clients


class Listening:
    """The sockets of both ports, before anything else is made. Errors: `WrongUsage` if a port can't be opened."""

    def __init__(self, listen: Address, flight: Address) -> None:
        self.addresses = listen, flight
        self.http = _listen(listen)
        try:
            self.flight = _listen(flight)
        except BaseException:
            self.http.close()
            raise

    def close(self) -> None:
        """Close both."""
        self.http.close()
        self.flight.close()

    def urls(self, *, is_tls: bool) -> str:
        """What clients are told."""
        http, flight = self.addresses
        of_http = http.url("https" if is_tls else "http", self.http.getsockname()[1])
        of_flight = flight.url("grpc+tls" if is_tls else "grpc", self.flight.getsockname()[1])
        return f"{of_http} and {of_flight}"


class Ports:
    """Both ports, served from the start. `listening` is closed at the end."""

    def __init__(
        self,
        listening: Listening,
        access: Access,
        certificates: Certificates | None,
        max_payload: int,
        running: Running,
    ) -> None:
        from tickwheel.delivery.serve.flight import FlightServer
        from tickwheel.delivery.serve.http import app

        self.urls = listening.urls(is_tls=certificates is not None)
        self._listening = listening
        self._certificates = certificates
        self._server = _http_server(app(running, access, max_payload))
        submit = partial(running.submit, max_payload=max_payload)
        with contextlib.ExitStack() as undone:
            undone.callback(listening.close)
            self._behind = FlightSocket()
            undone.callback(self._behind.close)
            self._flight = FlightServer(self._behind.location, submit, access, max_payload)
            self._behind.hide()
            undone.pop_all()
        self._over = threading.Event()
        self._failure: BaseException | None = None
        self._loop = asyncio.new_event_loop()
        self._is_ending = asyncio.Event()
        self._accepting: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._serve, name="http-serve", daemon=True)
        self._thread.start()

    def are_open(self, timeout_s: float) -> bool:
        """Whether they are still open after this time. Raises the error that closed them."""
        self._over.wait(timeout_s)
        if self._failure is not None:
            raise self._failure
        return not self._over.is_set()

    def stop_requests(self) -> None:
        """Close the HTTP port. Requests in progress still get their answer, for some seconds."""
        self._call(self._stop_requests)
        self._over.wait(_REQUESTS_END_WITHIN_S + 1)

    def stop_streams(self) -> bool:
        """Close the Flight port, and after a second its streams. Returns whether all have ended."""
        self._flight.stop(_STREAMS_END_WITHIN_S)
        self._call(self._is_ending.set)
        self._thread.join(_STREAMS_END_WITHIN_S)
        have_ended = self._flight.stop(_STREAMS_END_WITHIN_S)
        self._behind.close()
        return have_ended

    def _call(self, function: Callable[[], object]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(function)

    def _stop_requests(self) -> None:
        if self._accepting is not None:
            self._accepting.cancel()
        self._server.should_exit = True

    def _serve(self) -> None:
        """In the thread. Uvicorn sets no signal handlers outside the main thread."""
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._accept())
        except BaseException as error:
            self._failure = error
        self._listening.close()
        self._over.set()

    async def _accept(self) -> None:
        certificates = self._certificates
        http = Acceptor(
            self._listening.http,
            lambda: certificates.http if certificates else None,
            partial(_http_connection, self._server),
            _CONNECTIONS,
        )
        flight = Acceptor(
            self._listening.flight,
            lambda: certificates.flight if certificates else None,
            lambda place: RelayConnection(place, self._behind.path),
            _CONNECTIONS,
        )
        async with asyncio.TaskGroup() as group:
            self._accepting = group.create_task(http.run())
            relaying = group.create_task(flight.run())
            await self._server.serve([])  # the connections are accepted here, so it opens no socket
            self._over.set()
            await self._is_ending.wait()
            relaying.cancel()
        flight.close()


def _http_server(app: "ASGIApp") -> "uvicorn.Server":
    import uvicorn

    logging.getLogger("uvicorn").setLevel(logging.ERROR)
    return uvicorn.Server(
        uvicorn.Config(
            app,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=_REQUESTS_END_WITHIN_S,
        )
    )


def _http_connection(server: "uvicorn.Server", place: Place) -> asyncio.Protocol:
    from tickwheel.delivery.serve.http_connection import HttpConnection

    return HttpConnection(place, config=server.config, server_state=server.server_state, app_state={})


def _listen(address: Address) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.ip else socket.AF_INET
    # With the protocol named: only for TCP does asyncio turn off Nagle's algorithm, which delays an answer by 40 ms.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # an earlier process may have just ended
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listening.bind((address.ip, address.port))
        listening.listen(_CONNECTIONS)
    except OSError as error:
        listening.close()
        raise WrongUsage(
            f"{address.option} {address.host}:{address.port} can't be opened: {error.strerror}; "
            "name another address, or port 0 for any free port"
        ) from error
    return listening
