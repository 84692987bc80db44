"""The port of a deliverer as Spark's processes use it: HTTP, by one connection that is kept open (rules S3, S4).

`Refused` says that a deliverer refuses what it gets, whenever it is sent. Every other error of a call is an `OSError`
or an `HTTPException`, and may pass.
"""

import http.client
import json
import ssl
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote

import pyarrow as pa

from tickwheel.delivery.base.tls_errors import sentence
from tickwheel.delivery.read.hand_off_rows import HANDED
from tickwheel.delivery.serve.client_tls import ClientTls

PASSING: Final = (OSError, http.client.HTTPException)
"""Errors that may pass."""
_REFUSALS: Final = {400, 401, 403, 404, 405, 413, 415}
_LONGEST_ANSWER: Final = 4 << 20
_CONNECT_WITHIN_S: Final = 5.0  # and the handshake of TLS as long: a thread that closes can't end either
_ARROW: Final = "application/vnd.apache.arrow.stream"


class Refused(Exception):
    """A deliverer does not take this, whenever it is sent."""


class NotTaken(OSError):
    """A deliverer does not take this now."""


@dataclass(frozen=True, slots=True)
class Access:
    """What a deliverer requires: a token with the right `hand-off`, and how TLS knows it."""

    token: bytes | None = field(default=None, repr=False)
    tls: ClientTls | None = None

    def connect(self, address: str, timeout_s: float) -> "Client":
        """A client for `HOST:PORT`. Nothing is sent yet. `timeout_s`: how long the peer may say nothing."""
        return Client(address, self, timeout_s)


class Client:
    """Used by one thread. Any thread may close it, which ends a call in progress."""

    def __init__(self, address: str, access: Access, timeout_s: float) -> None:
        host, _, port = address.rpartition(":")
        self._peer = host.removeprefix("[").removesuffix("]"), int(port)
        self._timeout_s = timeout_s
        self._headers = {"authorization": f"Bearer {access.token.decode()}"} if access.token else {}
        self._context = access.tls.context() if access.tls else None
        self._connection: http.client.HTTPConnection | None = None
        self._is_closed = False

    def marks(self) -> dict[str, Any]:
        """The deliverer's store, clock and marks."""
        return self._ask("GET", "/hand-off/marks")

    def hand_off(self, batches: Iterable[Any], store_id: str) -> None:
        """Send batches of `HANDED`, and wait until they are on disk. Another store than this one does not take them."""
        out, rows = pa.BufferOutputStream(), 0
        with pa.ipc.new_stream(out, HANDED) as writer:
            for batch in batches:
                writer.write_batch(batch)
                rows += batch.num_rows
        answer = self._ask("POST", f"/hand-off?store={quote(store_id, safe='')}", memoryview(out.getvalue()))
        if answer.get("rows") != rows:
            raise NotTaken(f"{rows} rows were sent, and the answer is {str(answer)[:200]}")

    def close(self) -> None:
        """End a call in progress, and the connection. It is not used again."""
        self._is_closed = True
        if (connection := self._connection) is not None:
            if (opened := connection.sock) is not None:
                with suppress(OSError):
                    opened.shutdown(2)  # wakes the thread that waits for an answer
            connection.close()

    def _ask(self, method: str, path: str, body: memoryview | None = None) -> dict[str, Any]:
        is_used = self._connection is not None
        try:
            return self._answer(method, path, body)
        except (ConnectionError, ssl.SSLEOFError, ssl.SSLZeroReturnError):  # the peer closes what is idle for seconds
            if not is_used:
                raise
        return self._answer(method, path, body)

    def _answer(self, method: str, path: str, body: memoryview | None) -> dict[str, Any]:
        connection = self._connection = self._connection or self._connected()
        headers = self._headers | ({"content-type": _ARROW} if body is not None else {})
        try:
            if connection.sock is None:
                connection.connect()
            if (opened := connection.sock) is None or self._is_closed:  # from now on `close` sees the socket
                raise NotTaken("closed")
            opened.settimeout(self._timeout_s)
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            text = response.read(_LONGEST_ANSWER)
        except BaseException as error:
            self._connection = None
            connection.close()
            if self._is_closed and isinstance(error, Exception):  # of any kind, as its socket was taken away
                raise NotTaken("the connection was closed here") from error
            raise
        if response.will_close:
            self._connection = None
        if response.status == http.client.OK:
            with suppress(ValueError):
                if isinstance(found := json.loads(text), dict):
                    return found
            raise NotTaken("an answer by something that is no tickwheel serve")
        raise (Refused if response.status in _REFUSALS else NotTaken)(_told(response.status, text))

    def _connected(self) -> http.client.HTTPConnection:
        (host, port), timeout_s = self._peer, min(self._timeout_s, _CONNECT_WITHIN_S)
        if self._context is None:
            made = http.client.HTTPConnection(host, port, timeout=timeout_s)
        else:
            made = http.client.HTTPSConnection(host, port, timeout=timeout_s, context=self._context)
        made.auto_open = 0  # what was closed is not opened again
        return made


def reason_of(error: BaseException) -> str:
    """An error of a call in one line."""
    return " ".join((sentence(error) or type(error).__name__).split())


def _told(status: int, text: bytes) -> str:
    try:
        problem = json.loads(text)
        return f"{status}: {problem['reason']}; allowed: {problem['allowed']}"
    except (ValueError, KeyError, TypeError):
        return f"{status}, by something that is no tickwheel serve"
