"""Connections to one `tickwheel serve`, which are kept and used again. Any thread may ask."""

import http.client
import os
import ssl
from contextlib import suppress
from typing import Final
from urllib.parse import SplitResult

_MOST_IDLE: Final = 8
_LONGEST_ANSWER: Final = 1 << 24


class Connections:
    """`timeout_s`: how long the server may say nothing. A process that was forked makes its own."""

    def __init__(self, url: SplitResult, timeout_s: float, context: ssl.SSLContext | None) -> None:
        self._url = url
        self._timeout_s = timeout_s
        self._context = context
        self._idle: list[http.client.HTTPConnection] = []
        self._process = os.getpid()

    def ask(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> tuple[int, bytes]:
        """The status, and the first 16 MiB of the answer. Errors: `OSError`, `HTTPException`."""
        while True:
            connection, is_used = self._next()
            try:
                connection.request(method, path, body, headers)
                response = connection.getresponse()
                text = response.read(_LONGEST_ANSWER)
                if response.length and len(text) < _LONGEST_ANSWER:
                    raise http.client.IncompleteRead(text, response.length)
            except (ConnectionError, ssl.SSLEOFError, ssl.SSLZeroReturnError):
                connection.close()
                if not is_used:  # the server closes one that is idle for long
                    raise
                continue
            except BaseException:
                connection.close()
                raise
            if response.will_close or not response.isclosed() or len(self._idle) >= _MOST_IDLE:
                connection.close()
            else:
                self._idle.append(connection)
            return response.status, text

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Close those that no call uses."""
        with suppress(IndexError):
            while True:
                self._idle.pop().close()

    def _next(self) -> tuple[http.client.HTTPConnection, bool]:
        if self._process != os.getpid():
            self._process = os.getpid()
            self.close()  # the parent goes on with its own
        with suppress(IndexError):
            return self._idle.pop(), True
        host, port = self._url.hostname or "", self._url.port
        if self._url.scheme == "https":
            return http.client.HTTPSConnection(host, port, timeout=self._timeout_s, context=self._context), False
        return http.client.HTTPConnection(host, port, timeout=self._timeout_s), False
