"""Accepts the connections of a port, so that silent clients do not take the places of others (rule D12).

- A connection *waits* while its client owes something: the TLS handshake, the head of a request, or its body. At most
  `most` connections wait. If another connection comes, the connection with the longest wait is closed. Clients that
  connect and say nothing therefore close each other's connections, however many they are. A connection whose request is
  being answered is never closed.
- Connections whose clients do not read their answers as fast as they come are counted apart, in the same way. The
  longest wait is that of the client that has taken nothing for longest.
- Connections that have shown a valid token are counted apart too, so others take no place of theirs.
- The handshake and the first head must be there within `HEAD_WITHIN_S` of the connection.

With `most` 256: 260 clients connect and say nothing. The first four are closed when the last four come, and the others
after 10 s. If another client comes meanwhile and sends a request, one more is closed, and the new client is answered.

Everything runs in the event loop. A connection with TLS takes 256 KiB (asyncio's buffer), another one some KiB.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import Final

from tickwheel._printable import logger_of
from tickwheel.delivery.base.tls_errors import sentence

HEAD_WITHIN_S: Final = 10

_log = logger_of("tickwheel.delivery")
_NO_FILES_PAUSE_S = 0.1
_END_OF_TLS_S = 3600  # never: each protocol has a deadline of its own, which knows whether the client still reads


class Places:
    """The waiting connections, at most `most` of each kind: with a token or without, to be read or not. The connection
    with the longest wait is first.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._waiting: dict[tuple[bool, bool], dict[Place, None]] = {
            (has_token, is_read): {} for has_token in (False, True) for is_read in (False, True)
        }

    def add(self, place: "Place") -> None:
        """The connection waits from now on."""
        self.remove(place)
        waiting = self._waiting[place.has_token, place.is_read]
        if len(waiting) >= self._most:
            next(iter(waiting)).close()
        waiting[place] = None

    def has_token(self, place: "Place") -> None:
        """The connection has shown a token."""
        if any(place in waiting for waiting in self._waiting.values()):
            self.add(place)

    def remove(self, place: "Place") -> None:
        """The connection does not wait any more."""
        for waiting in self._waiting.values():
            waiting.pop(place, None)


class Place:
    """A connection as its port sees it. It waits at first, and has a deadline."""

    def __init__(self, places: Places, abort: Callable[[], object]) -> None:
        self.abort = abort
        """Closes the connection at once."""
        self.has_token = False
        """Whether its client has shown a valid token."""
        self.is_read = False
        """Whether it waits until its client reads an answer."""
        self._places = places
        self._deadline: asyncio.TimerHandle | None = None
        self.waits(HEAD_WITHIN_S)

    def waits(self, within_s: float | None = None) -> None:
        """The connection waits for its client from now on; if `within_s` is given, at most for this time."""
        self.works()
        self.is_read = False
        self._places.add(self)
        if within_s is not None:
            self._deadline = asyncio.get_running_loop().call_later(within_s, self.close)

    def waits_for_reader(self) -> None:
        """The connection waits from now on until its client reads an answer: again, if the client has taken a part."""
        self.works()
        self.is_read = True
        self._places.add(self)

    def shows_token(self) -> None:
        """Its client has shown a valid token."""
        self.has_token = True
        self._places.has_token(self)

    def works(self) -> None:
        """From now on the client waits for the server, or the connection has ended."""
        self._places.remove(self)
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def close(self) -> None:
        """Close the connection at once."""
        self.works()
        self.abort()


class Acceptor:
    """Accepts the connections on a socket. `context` gives the certificates for the next connection. `protocol` makes
    the protocol for a client, and gets its place. From `connection_made` on, the protocol must set `Place.abort`, and
    call `Place.works`, `Place.waits` and `Place.waits_for_reader`.
    """

    def __init__(
        self,
        listening: socket.socket,
        context: Callable[[], ssl.SSLContext | None],
        protocol: Callable[[Place], asyncio.Protocol],
        most: int,
    ) -> None:
        self._socket = listening
        self._context = context
        self._protocol = protocol
        self._places = Places(most)
        self._opening: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Accept until it is cancelled. Then the socket, and all connections without a protocol, are closed."""
        loop = asyncio.get_running_loop()
        self._socket.setblocking(False)
        try:
            while True:
                try:
                    client = await self._accept()
                except OSError as error:  # it was closed again already, or the process may open no more files
                    _log.error("a connection can't be accepted: %s", error.strerror)
                    await asyncio.sleep(_NO_FILES_PAUSE_S)
                    continue
                opening = loop.create_task(self._open(client))
                self._opening.add(opening)
                opening.add_done_callback(self._opening.discard)
                await asyncio.sleep(0)  # bytes that have come are read before the next connection is accepted
        finally:
            self._socket.close()
            for opening in self._opening:
                opening.cancel()

    async def _accept(self) -> socket.socket:
        """Like `loop.sock_accept`, which logs a traceback and loses the connection if it comes during a cancel."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                client, _ = self._socket.accept()
            except BlockingIOError:
                has_come = asyncio.Event()
                loop.add_reader(self._socket, has_come.set)
                try:
                    await has_come.wait()
                finally:
                    loop.remove_reader(self._socket)
            else:
                client.setblocking(False)
                return client

    async def _open(self, client: socket.socket) -> None:
        opening = asyncio.current_task()
        assert opening is not None
        place = Place(self._places, opening.cancel)
        context = self._context()
        times = {"ssl_handshake_timeout": HEAD_WITHIN_S, "ssl_shutdown_timeout": _END_OF_TLS_S} if context else {}
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: self._protocol(place), client, ssl=context, **times
            )
        except OSError as error:  # no TLS, or no trusted certificate
            _log.info("the TLS handshake of a client failed: %s", sentence(error, "client"))
            place.works()
            client.close()
        except asyncio.CancelledError:  # the place was needed, or the time is over
            place.works()
            client.close()
