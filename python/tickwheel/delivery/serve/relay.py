"""Between the clients of the Flight port and its server: what gRPC has no settings for in pyarrow (rule D12).

    client ── TCP, TLS ──► relay ── a Unix socket that only this user can open ──► Flight server

It has the bound of `connections.py`, its deadline, by which a client must have begun a call, and TLS with certificates
that can be read again. A connection waits all the time, as only its client knows whether more will come; each byte of
either side puts it last in the line of those that are closed for others. A client whose stream was closed opens it
again, and sends again what was not answered.
"""

import asyncio
import os
import tempfile
from pathlib import Path
from typing import Final

from tickwheel.delivery.errors import WrongUsage
from tickwheel.delivery.serve.connections import Place

_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_FRAME_HEADER: Final = 9  # bytes: length (3), type, flags, stream (4)
_HEADERS: Final = 1
_MOST_BEFORE_CALL: Final = 4096  # a client sends its settings, some 100 bytes
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


class _Side(asyncio.Protocol):
    """One of the two connections. What it gets goes to `other`, no faster than that takes it."""

    def __init__(self, place: Place) -> None:
        self._place = place
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
        if self.other is not None and self.other.transport is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.resume_reading()


class _ServerSide(_Side):
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
        super().data_received(data)

    def connection_lost(self, _error: Exception | None) -> None:
        """By either side."""
        self._place.works()
        if self._connecting is not None:
            self._connecting.cancel()
        if self.other is not None and self.other.transport is not None:
            self.other.transport.abort()

    def _is_call(self) -> None:
        self._first = None
        self._place.waits()  # without a deadline

    async def _connect(self, first: bytes) -> None:
        loop = asyncio.get_running_loop()
        try:
            _, other = await loop.create_unix_connection(lambda: _ServerSide(self._place), str(self._server))
        except OSError:  # the server has ended
            self._place.close()
            return
        assert self.transport is not None
        assert other.transport is not None
        self.other, other.other = other, self
        other.transport.write(first)
        if begins_call(first):
            self._is_call()
        self.transport.resume_reading()
