"""The ports of `tickwheel serve`, and the thread that serves them (rules D9, D11, D12).

The main port is for requests. A second port, if the operator wants it, answers health only.
"""

import asyncio
import contextlib
import errno
import logging
import resource
import socket
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from tickwheel._event import Event
from tickwheel._printable import logger_of
from tickwheel.delivery.base.errors import WrongUsage
from tickwheel.delivery.base.threads import start
from tickwheel.delivery.engine.running import Running
from tickwheel.delivery.serve.access import Access, Address
from tickwheel.delivery.serve.connections import Acceptor, Place
from tickwheel.delivery.serve.tls import Certificates

if TYPE_CHECKING:
    import uvicorn
    from starlette.types import ASGIApp

    from tickwheel.delivery.serve.bodies import Bodies
    from tickwheel.delivery.serve.live import Live

_REQUESTS_END_WITHIN_S = 5
_CONNECTIONS = 256  # of a port, that wait for their clients: of each kind
_SHARE_OF_FILES = 4  # what needs no token, of two kinds, may take half of all open files
_FREE_WITHIN_S, _FREE_EVERY_S = 1, 0.01


class Listening:
    """The sockets of the ports. The port for health is open from the start. The port for requests is open from `open`
    on, once this process has the store, or is a standby. Until then another process may have the store, and needs this
    port. Errors: `WrongUsage` if a port can never be opened.
    """

    def __init__(self, listen: Address, health: Address | None = None) -> None:
        self._address = listen
        self._health_address = health
        self.http: socket.socket | None = None
        _check(listen)
        self.health = _listening(health) if health else None

    def open(self) -> None:
        """Open the port for requests, if it is not. Errors: `WrongUsage` if it can't be opened."""
        self.http = self.http or _listening_soon(self._address)

    def open_if_free(self) -> bool:
        """Whether the port for requests is open now. The owner may be on this machine too."""
        with contextlib.suppress(WrongUsage):
            self.http = self.http or _listening(self._address)
        return self.http is not None

    def close(self) -> None:
        """Close all."""
        for each in (self.http, self.health):
            if each is not None:
                each.close()

    def url(self, *, is_tls: bool) -> str:
        """The URL for clients."""
        assert self.http is not None
        return _url(self._address, "https" if is_tls else "http", self.http)

    @property
    def port(self) -> int:
        """The port in use."""
        assert self.http is not None
        port: int = self.http.getsockname()[1]
        return port

    @property
    def health_url(self) -> str | None:
        """The URL that answers health from the start; `None` without a port for health."""
        return _url(self._health_address, "http", self.health) if self._health_address and self.health else None


class Ports:
    """The ports. Until `open` only health is answered, on its own port."""

    def __init__(self, listening: Listening, access: Access, certificates: Certificates | None) -> None:
        self._listening = listening
        self._access = access
        self._certificates = certificates
        from tickwheel.delivery.serve.application import Application

        self._application = Application(access)
        self._server = _http_server(self._application)
        self._bodies: Bodies | None = None
        self._live: Live | None = None
        self._over = Event()
        self._failure: BaseException | None = None
        self._loop = asyncio.new_event_loop()
        self._is_opened = asyncio.Event()
        self._accepting: list[asyncio.Task[None]] = []
        self._thread = threading.Thread(target=self._serve, name="http-serve", daemon=True)
        start(self._thread)

    def open(self, running: Running, max_payload: int, to: str = "") -> str:
        """Serve everything; returns the URL for clients. `to`: the destination, for the page. Errors: `WrongUsage` if a
        port can't be opened; `DeliveryFailed` if the system does not give the threads.
        """
        from tickwheel.delivery.serve.bodies import Bodies
        from tickwheel.delivery.serve.http import app
        from tickwheel.delivery.serve.live import Live

        self._bodies = Bodies(running.engine.take_bytes)
        self._live = Live(running, self._access, to)
        opened = app(running, max_payload, self._bodies, self._live)  # before a client can connect
        self._listening.open()
        self._application.open(opened)
        self._call(self._is_opened.set)
        return self._listening.url(is_tls=self._certificates is not None)

    def stand_by(self, owner: str) -> None:
        """Serve health, and to all other requests say which process owns the store."""
        self._application.stand_by(owner)
        if self._listening.open_if_free():
            self._call(self._is_opened.set)

    def are_open(self) -> bool:
        """Whether they are open. Raises the error that closed them."""
        if self._failure is not None:
            raise self._failure
        return not self._over.is_set()

    def close(self) -> None:
        """Requests in progress still get their answer, for some seconds."""
        self._call(self._stop_requests)
        self._over.wait(_REQUESTS_END_WITHIN_S + 1)

    def _call(self, function: Callable[[], object]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(function)

    def _stop_requests(self) -> None:
        for port in self._accepting:
            port.cancel()
        if self._bodies is not None:
            self._bodies.end()
        if self._live is not None:
            self._live.end()
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
        async with asyncio.TaskGroup() as group:
            if self._listening.health is not None:
                self._accept_http(group, self._listening.health, is_health_only=True)
            self._accepting.append(group.create_task(self._accept_requests(group)))
            await self._server.serve([])  # the connections are accepted here, so it opens no socket
            self._stop_requests()

    def _accept_http(self, group: asyncio.TaskGroup, port: socket.socket, *, is_health_only: bool = False) -> None:
        certificates = None if is_health_only else self._certificates
        acceptor = Acceptor(
            port,
            lambda: certificates.context if certificates else None,
            partial(_http_connection, self._server, is_health_only),
            _most_connections(),
        )
        self._accepting.append(group.create_task(acceptor.run()))

    async def _accept_requests(self, group: asyncio.TaskGroup) -> None:
        """Once the store is open."""
        await self._is_opened.wait()
        assert self._listening.http is not None
        self._accept_http(group, self._listening.http)


def why_few_connections() -> str | None:
    """Why fewer connections than usual may wait for their clients; `None` if it is not so."""
    if (most := _most_connections()) == _CONNECTIONS:
        return None
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return (
        f"this process may open {files:,} files (ulimit -n), so only {most} connections may wait for their clients, "
        f"and not {_CONNECTIONS}"
    )


def _most_connections() -> int:
    """That may wait for their clients, of each kind. Where few files may be open, connections must leave some over."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return _CONNECTIONS
    return min(_CONNECTIONS, max(1, files // _SHARE_OF_FILES))


def _http_server(app: "ASGIApp") -> "uvicorn.Server":
    import uvicorn

    logging.getLogger("uvicorn").setLevel(logging.ERROR)
    logger_of("uvicorn.error")  # its messages have escapes from now on
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


def _http_connection(server: "uvicorn.Server", is_health_only: bool, place: Place) -> asyncio.Protocol:
    from tickwheel.delivery.serve.application import HEALTH_ONLY
    from tickwheel.delivery.serve.http_connection import HttpConnection

    state = {HEALTH_ONLY: is_health_only}
    return HttpConnection(place, config=server.config, server_state=server.server_state, app_state=state)


def _check(address: Address) -> None:
    """Errors: `WrongUsage` if it can't be opened. It may be in use: another process may have the store."""
    with contextlib.suppress(_Taken):
        _bound(address).close()


def _listening_soon(address: Address) -> socket.socket:
    """Tries for 1 s, because a killed process frees its store a moment before its ports. Errors: `WrongUsage`."""
    deadline_s = time.monotonic() + _FREE_WITHIN_S
    while True:
        try:
            return _listening(address)
        except _Taken:
            if time.monotonic() > deadline_s:
                raise
            time.sleep(_FREE_EVERY_S)


def _listening(address: Address) -> socket.socket:
    """Errors: `WrongUsage`."""
    bound = _bound(address)
    try:
        bound.listen(_CONNECTIONS)
    except OSError as error:  # two may be bound, as long as none listens
        bound.close()
        raise _why_not(address, error) from error
    return bound


def _bound(address: Address) -> socket.socket:
    """Errors: `WrongUsage`."""
    family = socket.AF_INET6 if ":" in address.ip else socket.AF_INET
    # The protocol is named: asyncio turns Nagle's algorithm off only for TCP. That algorithm delays an answer by 40 ms.
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # an earlier process may have just ended
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bound.bind((address.ip, address.port))
    except OSError as error:
        bound.close()
        raise _why_not(address, error) from error
    return bound


class _Taken(WrongUsage):
    """Another socket has the address."""


def _why_not(address: Address, error: OSError) -> WrongUsage:
    kind = _Taken if error.errno == errno.EADDRINUSE else WrongUsage
    return kind(
        f"{address.option} {address.host}:{address.port} can't be opened: {error.strerror}; "
        "name another address, or port 0 for any free port"
    )


def _url(address: Address, scheme: str, port: socket.socket) -> str:
    return address.url(scheme, port.getsockname()[1])
