"""Between the clients of the Flight port and its server: what gRPC has no settings for in pyarrow (rule D12).

    client ── TCP, TLS ──► relay ── a Unix socket that only this user can open ──► Flight server

It has the bound of `connections.py`, its deadline, by which a client must have begun a call, and TLS with certificates
that can be read again. A connection waits all the time, as only its client knows whether more will come; each byte of
either side puts it last in the line of those that are closed for others. A client whose stream was closed opens it
again, and sends again what was not answered.

gRPC reads the whole of a message before its call may be refused, and pyarrow sets no bound for it. So a client is read
no further than 64 KiB before the server has answered it for the first time, which it does only for a known token; and
than 128 MiB since the last answer. One that can't go on by that for 10 s is closed.
"""

import asyncio
import os
import tempfile
from pathlib import Path
from typing import Final

from tickwheel.delivery.base.errors import WrongUsage
from tickwheel.delivery.serve.connections import Place

_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_FRAME_HEADER: Final = 9  # bytes: length (3), type, flags, stream (4)
_DATA: Final = 0
_HEADERS: Final = 1
_MOST_BEFORE_CALL: Final = 4096  # a client sends its settings, some 100 bytes
_BEFORE_ANSWER: Final = 1 << 16  # bytes: enough for the schema of a stream, which is answered
_UNANSWERED: Final = 128 << 20  # bytes: two batches of the largest size
_END_WITHIN_S: Final = 10
_LONGEST_PATH: Final = 100  # bytes; the system takes 103 or 107


class FlightSocket:
    """The Unix socket between both, in a folder that only this user can open. Errors: `WrongUsage`."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="tickwheel-")
        self.path = Path(self._folder.name) / "flight"
        self.location = f"grpc+unix://{self.path}"
        self._file: int | None = None
        if len(os.fsencode(self.path)) > _LONGEST_PATH:
            self.close()
            raise WrongUsage(f"the path {self.path} is too long for a socket: name a shorter folder in TMPDIR")

    def hide(self) -> None:
        """Once the server listens: take it out of the folder, so that nothing is left when the process is killed."""
        if hasattr(os, "O_PATH"):  # on Linux
            self._file = os.open(self.path, os.O_PATH | os.O_CLOEXEC)
            self.path = Path(f"/proc/self/fd/{self._file}")
            self._folder.cleanup()

    def close(self) -> None:
        """Remove what is left."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
        self._folder.cleanup()


def begins_call(data: bytes) -> bool | None:
    r"""Whether these first bytes of a connection begin a call; `None` if it takes more to know.

    >>> settings, headers = b"\0\0\0\4" + bytes(5), b"\0\0\x01\1" + bytes(5)
    >>> [begins_call(_PREFACE + rest) for rest in (b"", settings, settings + headers)], begins_call(b"GET / HTTP")
    ([None, None, True], False)
    """
    if not data.startswith(_PREFACE):
        return None if _PREFACE.startswith(data) else False
    place = len(_PREFACE)
    while place + _FRAME_HEADER <= len(data):
        if data[place + 3] == _HEADERS:
            return True
        place += _FRAME_HEADER + int.from_bytes(data[place : place + 3])
    return False if len(data) > _MOST_BEFORE_CALL or place > _MOST_BEFORE_CALL else None


class AnswerFrames:
    """Finds the frames of HTTP/2 with data in what a server sends."""

    def __init__(self) -> None:
        self._left = 0  # bytes of a frame that has begun
        self._header = b""

    def are_in(self, data: bytes) -> bool:
        r"""Whether one begins in these bytes, which come after the ones before.

        >>> frames, settings, answer = AnswerFrames(), b"\0\0\x02\4" + bytes(7), b"\0\0\x01\0" + bytes(6)
        >>> [frames.are_in(part) for part in (settings, settings[:3], settings[3:] + answer[:4], answer[4:], settings)]
        [False, False, False, True, False]
        """
        place, found = 0, False
        while self._left < len(data) - place:
            place += self._left
            self._left, taken = 0, data[place : place + _FRAME_HEADER - len(self._header)]
            self._header += taken
            place += len(taken)
            if len(self._header) == _FRAME_HEADER:
                found = found or self._header[3] == _DATA
                self._left, self._header = int.from_bytes(self._header[:3]), b""
        self._left -= len(data) - place
        return found


class _Side(asyncio.Protocol):
    """One of the two connections. What it gets goes to `other`, no faster than that takes it."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._other_is_full = False
        self.transport: asyncio.Transport | None = None
        self.other: _Side | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._place.goes_on()
        assert self.other is not None
        assert self.other.transport is not None
        self.other.transport.write(data)

    def pause_writing(self) -> None:
        if self.other is not None:
            self.other._other_is_full = True
            self.other.read_if_it_may()

    def resume_writing(self) -> None:
        if self.other is not None:
            self.other._other_is_full = False
            self.other.read_if_it_may()

    def may_read(self) -> bool:
        return not self._other_is_full

    def read_if_it_may(self) -> None:
        if self.transport is None or self.transport.is_closing():
            return
        if self.may_read():
            self.transport.resume_reading()
        else:
            self.transport.pause_reading()


class _ServerSide(_Side):
    def __init__(self, place: Place, client: "RelayConnection") -> None:
        super().__init__(place)
        self._frames = AnswerFrames()
        self._client = client

    def data_received(self, data: bytes) -> None:
        if self._frames.are_in(data):
            self._client.is_answered()
        super().data_received(data)

    def connection_lost(self, _error: Exception | None) -> None:
        if self.other is not None and self.other.transport is not None and not self.other.transport.is_closing():
            self._place.waits(_END_WITHIN_S)  # for the client to read the rest
            self.other.transport.close()


class RelayConnection(_Side):
    """The side of a client. `server`: the Unix socket behind."""

    def __init__(self, place: Place, server: Path) -> None:
        super().__init__(place)
        self._server = server
        self._first: bytes | None = b""
        self._connecting: asyncio.Task[None] | None = None
        self._unanswered, self._most_unanswered = 0, _BEFORE_ANSWER

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The handshake is done; the deadline goes on."""
        super().connection_made(transport)
        assert self.transport is not None
        self._place.abort = self.transport.abort

    def data_received(self, data: bytes) -> None:
        """The first bytes are looked at, until they begin a call."""
        if self._first is not None:
            self._first += data
            begins = begins_call(self._first)
            if begins is False:
                self._place.close()
                return
            if self.other is None:
                if self._connecting is None and len(self._first) >= len(_PREFACE):
                    assert self.transport is not None
                    self.transport.pause_reading()
                    self._connecting = asyncio.get_running_loop().create_task(self._connect(self._first))
                return
            if begins:
                self._is_call()
        self._unanswered += len(data)
        super().data_received(data)
        if self._is_too_far_ahead():
            self._place.waits(_END_WITHIN_S)
            self.read_if_it_may()

    def connection_lost(self, _error: Exception | None) -> None:
        """By either side."""
        self._place.works()
        if self._connecting is not None:
            self._connecting.cancel()
        if self.other is not None and self.other.transport is not None:
            self.other.transport.abort()

    def may_read(self) -> bool:
        """Whether the server can take more."""
        return super().may_read() and not self._is_too_far_ahead()

    def is_answered(self) -> None:
        """The server has answered a message."""
        was_ahead = self._is_too_far_ahead()
        self._unanswered, self._most_unanswered = 0, _UNANSWERED
        if was_ahead:
            self._place.waits()
            self.read_if_it_may()

    def _is_too_far_ahead(self) -> bool:
        return self._unanswered > self._most_unanswered

    def _is_call(self) -> None:
        self._first = None
        self._place.waits()  # without a deadline

    async def _connect(self, first: bytes) -> None:
        loop = asyncio.get_running_loop()
        try:
            _, other = await loop.create_unix_connection(lambda: _ServerSide(self._place, self), str(self._server))
        except OSError:  # the server has ended
            self._place.close()
            return
        assert other.transport is not None
        self.other, other.other = other, self
        other.transport.write(first)
        if begins_call(first):
            self._is_call()
        self.read_if_it_may()
