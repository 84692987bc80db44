"""A connection of HTTP: uvicorn's, with deadlines for what its client owes (rule D12).

| the client owes | the connection waits | it is closed |
|---|---|---|
| the head of a request | yes | after 10 s, however its bytes trickle; without any byte of a further one after 5 s |
| a body | yes | by the answer 408, see `bodies.py` |
| nothing, as the request is being answered | no | |
| to read the answer | no | after 30 s in which it took nothing |
"""

import asyncio
from typing import Any, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from tickwheel.delivery.serve.connections import HEAD_WITHIN_S, Place

_READ_WITHIN_S: Final = 30


class HttpConnection(H11Protocol):
    """`place`: its own. The rest is what uvicorn's servers give."""

    def __init__(self, place: Place, **given: Any) -> None:
        super().__init__(**given)
        self._place = place
        self._owes: str | None = "a head"
        self._reading: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """The handshake is done; the deadline of the head goes on."""
        self._place.abort = transport.abort
        super().connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """It has ended, by either side."""
        self._place.works()
        self._is_read()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        """Take what has come."""
        super().handle_events()
        self._look()

    def on_response_complete(self) -> None:
        """A request is answered; the next one may have come already."""
        super().on_response_complete()
        self._look()

    def send_400_response(self, msg: str) -> None:
        """What has come is not HTTP. A request that is being received ends by that."""
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        try:
            super().send_400_response(msg)
        except h11.LocalProtocolError:  # an answer has begun
            self.transport.abort()

    def pause_writing(self) -> None:
        """The client does not read what it is sent."""
        super().pause_writing()
        self._reading = self.loop.call_later(_READ_WITHIN_S, self.transport.abort)

    def resume_writing(self) -> None:
        """It has read."""
        self._is_read()
        super().resume_writing()

    def _is_read(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None

    def _look(self) -> None:
        """What the client owes now."""
        if self.transport.is_closing():
            return
        is_answered = self.cycle is None or self.cycle.response_complete
        owes = "a head" if is_answered else "a body" if self.cycle.more_body else None
        if owes == self._owes:
            return
        self._owes = owes
        if owes is None:
            self._place.works()
        else:
            self._place.waits(HEAD_WITHIN_S if owes == "a head" else None)
