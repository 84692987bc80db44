"""A connection of HTTP: uvicorn's, with deadlines for what its client owes (rule D12).

| the client owes | the connection waits | it is closed |
|---|---|---|
| the head of a request | yes | after 10 s, even if bytes trickle in; after 5 s without any byte of a further request |
| a body | yes | by the answer 408, see `bodies.py` |
| nothing: the request is being answered, or a part of its body is taken | no | |
| to read the answer | yes, apart from the others | after 30 s in which it took nothing |
| the end of TLS, once it has read everything | yes | after 1 s |

The client has taken the bytes that its system has acknowledged. The server looks at this once a second, while a part of
the answers does not fit into the socket.
"""

import asyncio
import re
import select
import socket
import sys
from http import HTTPStatus
from typing import Any, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from tickwheel.delivery.serve.connections import HEAD_WITHIN_S, Place
from tickwheel.delivery.serve.problems import CLOSE, fault, json_response

HELD_UP: Final = "held_up"
"""In the state of a connection: a function to call when the server, not the client, holds a body up."""
IS_KNOWN: Final = "is_known"
"""In the state of a connection: a function to call when its client has shown a valid token."""
IS_TAKEN: Final = "is_taken"
"""In the state of a connection: a coroutine that ends when its client has taken nearly all that was sent to it."""
GIVE_UP: Final = "give_up"
"""In the state of a connection: a function that closes it at once."""
MAX_HEAD_BYTES: Final = 16 << 10
"""Of a request line with its headers. h11 refuses more only if it comes in several pieces."""
ALLOWED_HEAD: Final = "HTTP/1.1, with a head of at most 16 KiB"
TOO_LARGE_HEAD: Final = "the request line and the headers are too large"
_READ_WITHIN_S: Final = 30
_LOOK_EVERY_S: Final = 1
_END_WITHIN_S: Final = 1
_SHOWN_BYTES: Final = re.compile(r":? (?:bytearray\(|b['\"]).*", re.DOTALL)  # of a header: it may be a token
_UNREAD_BYTES: Final = 1 << 16  # more than these are an answer that waits for its reader
_BYTES_ACKED: Final = slice(120, 128)  # tcpi_bytes_acked in Linux's struct tcp_info


class HttpConnection(H11Protocol):
    """`place`: its own. The rest is what uvicorn's servers give."""

    def __init__(self, place: Place, **given: Any) -> None:
        super().__init__(**given)
        self._place = place
        self._owes: str | None = "a head"
        self._looking: asyncio.TimerHandle | None = None
        self._is_half_closed = False
        self._is_held_up = False
        self.app_state[HELD_UP] = self._hold_up
        self.app_state[IS_KNOWN] = place.shows_token
        self.app_state[IS_TAKEN] = self._is_taken
        self.app_state[GIVE_UP] = place.close
        self._taken, self._taken_s = 0, 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """The handshake is done; the deadline of the head goes on."""
        self._place.abort = transport.abort
        transport.set_write_buffer_limits(high=_UNREAD_BYTES)  # with TLS, asyncio has eight times as many
        super().connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """It has ended, by either side."""
        for each in (HELD_UP, IS_KNOWN, IS_TAKEN, GIVE_UP):
            self.app_state.pop(each, None)  # else a circle, and the collector alone would free it
        self._place.works()
        self._stop_looking()
        super().connection_lost(exc)

    def eof_received(self) -> bool | None:  # type: ignore[override]  # uvicorn's always closes
        """The client sends nothing more. A request that has come is still answered; with TLS asyncio can't do this."""
        self._is_half_closed = True
        return self._is_answering() and self.scheme == "http"

    def handle_events(self) -> None:
        """Take what has come."""
        super().handle_events()
        self._look()

    def on_response_complete(self) -> None:
        """A request is answered; the next one may have come already."""
        super().on_response_complete()
        if self._is_half_closed and not self._is_answering():
            self.transport.close()
        self._look()

    def timeout_keep_alive_handler(self) -> None:
        """No byte of a further request has come."""
        super().timeout_keep_alive_handler()
        self._look()

    def shutdown(self) -> None:
        """The server ends."""
        super().shutdown()
        self._look()

    def pause_writing(self) -> None:
        """The client does not read as fast as it is sent."""
        super().pause_writing()
        self._look()

    def send_400_response(self, msg: str) -> None:
        """The client has sent bytes that are not HTTP. This ends a request whose body is still being received."""
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        found = sys.exception()  # uvicorn calls this where it handles what h11 has found
        status, reason = 400, f"this is no request of HTTP: {_SHOWN_BYTES.sub('', str(found or msg))}"
        if getattr(found, "error_status_hint", None) == 431:
            status, reason = 431, TOO_LARGE_HEAD
        answer = json_response(status, fault(reason, ALLOWED_HEAD), CLOSE)
        events = (
            h11.Response(status_code=status, headers=answer.raw_headers, reason=HTTPStatus(status).phrase.encode()),
            h11.Data(bytes(answer.body)),
            h11.EndOfMessage(),
        )
        try:
            self.transport.write(b"".join(self.conn.send(event) or b"" for event in events))
        except h11.LocalProtocolError:  # an answer has begun
            self.transport.abort()
        else:
            self.transport.close()

    def _hold_up(self, is_held_up: bool) -> None:
        """`True`: the server takes a part of the body, and reads no further meanwhile. `False`: it reads on."""
        self._is_held_up = is_held_up
        if not self.transport.is_closing():
            self._look()

    async def _is_taken(self) -> None:
        await self.flow.drain()

    def _is_answering(self) -> bool:
        """Whether a request has come as a whole, and has no whole answer yet."""
        return self.cycle is not None and not self.cycle.response_complete and not self.cycle.more_body

    def _look(self) -> None:
        """Find out what the client owes now, and set its deadline."""
        owes = self._owed()
        if owes == self._owes:
            return
        self._owes = owes
        self._stop_looking()
        match owes:
            case "to read":
                self._place.waits_for_reader()
                self._taken, self._taken_s = self._taken_bytes(), self.loop.time()
                self._looking = self.loop.call_later(_LOOK_EVERY_S, self._look_at_reader)
            case "a head":
                self._place.waits(HEAD_WITHIN_S)
            case "an end":
                self._place.waits(_END_WITHIN_S)
            case "a body":
                self._place.waits()
            case None:
                self._place.works()

    def _owed(self) -> str | None:
        if not self._is_all_sent():
            return "to read"
        if self.transport.is_closing():
            return "an end"
        if self.cycle is None or self.cycle.response_complete:
            return "a head"
        return "a body" if self.cycle.more_body and not self._is_held_up else None

    def _look_at_reader(self) -> None:
        self._look()
        if self._owes != "to read":
            return
        taken, now_s = self._taken_bytes(), self.loop.time()
        if taken != self._taken:
            self._taken, self._taken_s = taken, now_s
            self._place.waits_for_reader()
        elif now_s - self._taken_s >= _READ_WITHIN_S:
            self.transport.abort()
            return
        self._looking = self.loop.call_later(_LOOK_EVERY_S, self._look_at_reader)

    def _stop_looking(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            self._looking = None

    def _is_all_sent(self) -> bool:
        """Whether the system has taken everything. With TLS the transport has a second buffer, and does not tell its
        size: while it holds bytes, the socket is not writable.
        """
        if self.transport.get_write_buffer_size():
            return False
        connection = self.transport.get_extra_info("socket")
        if connection is None or connection.fileno() < 0:
            return True  # it has ended, and `connection_lost` is about to be called
        looked = select.poll()
        looked.register(connection, select.POLLOUT)
        return bool(looked.poll(0))

    def _taken_bytes(self) -> int:
        """A number that changes when the client takes something."""
        if not hasattr(socket, "TCP_INFO"):  # only Linux has it
            return self.transport.get_write_buffer_size()
        connection = self.transport.get_extra_info("socket")
        told = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _BYTES_ACKED.stop)
        return int.from_bytes(told[_BYTES_ACKED], sys.byteorder)
