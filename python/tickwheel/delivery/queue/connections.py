"""Connections to one `tickwheel serve`, which are kept and used again. Any thread may ask."""

import http.client
import os
import ssl
from contextlib import suppress
from typing import Final
from urllib.parse import SplitResult

from tickwheel.delivery.sinks.failures import retry_after_s

_MOST_IDLE: Final = 8
LONGEST_ANSWER: Final = 1 << 26
"""Bytes: a payload and an event of 16 MiB each, and what JSON adds to them."""


class Connections:
    """`timeout_s`: how long the server may say nothing. A process that was forked makes its own."""

    def __init__(self, url: SplitResult, timeout_s: float, context: ssl.SSLContext | None) -> None:
        self._url = url
        self._timeout_s = timeout_s
        self._context = context
        self._idle: list[http.client.HTTPConnection] = []
        self._process = os.getpid()

    def ask(
        self, method: str, path: str, body: bytes | None, headers: dict[str, str], *, is_new: bool
    ) -> tuple[int, float, bytes]:
        """The status of the answer, its `Retry-After` in seconds, and its text, cut one byte after `LONGEST_ANSWER`.

        `is_new`: not on a kept connection, by which it may be sent twice. Errors: `OSError`, `HTTPException`.
        """
        while True:
            connection, is_used = self._next(is_new=is_new)
            try:
                connection.request(method, path, body, headers)
                response = connection.getresponse()
                text = response.read(LONGEST_ANSWER + 1)
                if response.length and len(text) <= LONGEST_ANSWER:
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
            return response.status, retry_after_s(response.headers) or 0, text

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Close those that no call uses."""
        with suppress(IndexError):
            while True:
                self._idle.pop().close()

    def _next(self, *, is_new: bool) -> tuple[http.client.HTTPConnection, bool]:
        if self._process != os.getpid():
            self._process = os.getpid()
            self.close()  # the parent goes on with its own
        with suppress(IndexError):
            if not is_new:
                return self._idle.pop(), True
        host, port = self._url.hostname or "", self._url.port
        if self._url.scheme == "https":
            return http.client.HTTPSConnection(host, port, timeout=self._timeout_s, context=self._context), False
        return http.client.HTTPConnection(host, port, timeout=self._timeout_s), False
