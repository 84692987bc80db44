"""The sink `http://` and `https://` (rule D10): each message is a POST to one address, a webhook.

- The body is the JSON line of the file sink. `Idempotency-Key` is the same each time the message is sent, so that the
  receiver can recognize a repeat: 128 bits of BLAKE2b, in hex, of the JSON array `[key,id]`.
- A status of 200 to 299 means that the message has arrived. A time-out, 408, 425, 429 and 5xx are no answer about the
  message; where no connection can be made, the destination is down (D6). `Retry-After` is heeded. Any other status is a
  refusal. So is a redirect: it is not followed, because the destination is a setting of the operator (D12). Proxies in
  the environment are ignored.
- The whole answer must arrive within `timeout_s` from the start, however slowly it comes. If resolving the host name
  hangs, the deliverer cuts the sink off (D6).
- Each sink keeps one connection open, and opens a new one if the receiver has closed it. Certificates are checked.
"""

import io
import math
import socket
import time
from collections.abc import Sequence
from email.utils import parsedate_to_datetime
from hashlib import blake2b
from http.client import HTTPException, HTTPResponse
from typing import Any, ClassVar

import msgspec
from urllib3 import BaseHTTPResponse, HTTPConnectionPool, HTTPSConnectionPool
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import ConnectTimeoutError, HTTPError, LocationParseError, NewConnectionError, SSLError
from urllib3.util import Timeout, Url, parse_url

from tickwheel import __version__
from tickwheel.delivery.errors import Unanswered, Unavailable, WrongUsage
from tickwheel.delivery.sinks.addresses import shown
from tickwheel.delivery.sinks.lines import line_of
from tickwheel.delivery.sinks.sink import NONE_REFUSED, Delivery, Refusals, Sink, SinkOpener

FORM = "http://HOST/PATH or https://HOST/PATH"

_NO_ANSWER = (408, 425, 429)
_LONGEST_PAUSE_S = 86_400.0
_SHOWN = 200  # characters of an answer
_READ = 1 << 16  # bytes of an answer; after a longer one the connection is closed


class HttpSink(Sink):
    """POSTs to `url`, one message at a time."""

    max_batch: ClassVar[int] = 1
    threads: ClassVar[int] = 32

    def __init__(self, url: Url, timeout_s: float) -> None:
        pool = _HttpsPool if url.scheme == "https" else _HttpPool
        self._pool = pool(url.host or "", url.port, maxsize=1)
        self._target = url.request_uri
        self._timeout_s = timeout_s

    def send(self, deliveries: Sequence[Delivery]) -> Refusals:
        """One request for each delivery."""
        refused: dict[int, str | Unanswered | Unavailable | None] = {}
        for place, delivery in enumerate(deliveries):
            reason = self._post(delivery)
            if reason is not None:
                refused[place] = reason
        return refused or NONE_REFUSED

    def close(self) -> None:
        """Close the connection."""
        self._pool.close()

    def _post(self, delivery: Delivery) -> str | Unanswered | Unavailable | None:
        headers = {
            "Content-Type": "application/json",
            "Idempotency-Key": idempotency_key(delivery.message.key, delivery.message.id),
            "User-Agent": f"tickwheel/{__version__}",
        }
        try:
            response = self._pool.urlopen(
                "POST",
                self._target,
                line_of(delivery),
                headers,
                retries=False,
                redirect=False,
                timeout=Timeout(total=self._timeout_s),
                preload_content=False,
            )
        except (NewConnectionError, ConnectTimeoutError, SSLError) as error:
            return Unavailable(f"{type(error).__name__}: {error}")
        except (HTTPError, HTTPException, OSError) as error:
            return Unanswered(f"{type(error).__name__}: {error}")
        answer = _read(response)
        if 200 <= response.status < 300:
            return None
        what = ", a redirect, which is not followed" if 300 <= response.status < 400 else ""
        reason = f"status {response.status}{what}: {_line(answer)[:_SHOWN]}"
        if response.status in _NO_ANSWER or response.status >= 500:
            return Unanswered(reason, _seconds(response.headers.get("retry-after")))
        return reason


def idempotency_key(key: str | None, id_: str) -> str:
    """The value of the header: equal for messages with the same `(key, id)`, which are the same message (D1).

    >>> idempotency_key(None, "a1")
    'a40b598f5dc65bb1e6e91c016214cfa1'
    """
    return blake2b(msgspec.json.encode([key, id_]), digest_size=16).hexdigest()


def opener_of(spec: str) -> SinkOpener:
    """Reads the address; nothing is connected yet. Errors: `WrongUsage`."""
    authority = spec.partition("//")[2].partition("/")[0]
    if "@" in authority:
        raise WrongUsage(f"{shown(spec)} contains a user, which is not sent: put a secret into the path or query")
    if any(char.isspace() or not char.isprintable() for char in spec) or "#" in spec:
        raise WrongUsage(f"{shown(spec)} contains a space, a # or a control character: write it as %20, %23 and so on")
    try:
        url = parse_url(spec)
    except LocationParseError:
        raise WrongUsage(f"{shown(spec)} is no address: write {FORM}, with a number if there is a port") from None
    if url.scheme not in ("http", "https") or not url.host or url.port == 0:
        raise WrongUsage(f"{shown(spec)} names no host, or port 0: write {FORM}")
    return lambda settings: HttpSink(url, settings.timeout_s)


def _read(response: BaseHTTPResponse) -> bytes:
    """The answer's first bytes. The status already says whether the message has arrived, so errors here are ignored."""
    try:
        answer = response.read(_READ, decode_content=False)
        is_all = len(answer) < _READ
    except (HTTPError, HTTPException, OSError):
        answer, is_all = b"", False
    if not is_all:
        response.close()
    response.release_conn()
    return answer


def _seconds(retry_after: str | None) -> float | None:
    """The value of `Retry-After`: seconds, or a date."""
    if retry_after is None:
        return None
    try:
        after_s = float(retry_after)
    except ValueError:
        try:
            after_s = parsedate_to_datetime(retry_after).timestamp() - time.time()
        except (ValueError, TypeError, OverflowError):
            return None
    return min(max(after_s, 0.0), _LONGEST_PAUSE_S) if math.isfinite(after_s) else None


def _line(answer: bytes) -> str:
    """The answer on one line, without control characters for a terminal."""
    return "".join(char if char.isprintable() else " " for char in answer.decode(errors="replace"))


class _Deadline(io.RawIOBase):
    """Reads a socket's file with its timeout for all reads together; a socket restarts the timeout with each read."""

    def __init__(self, sock: socket.socket, file: io.RawIOBase) -> None:
        self._sock = sock
        self._file = file
        timeout_s = sock.gettimeout()
        assert timeout_s is not None
        self._deadline_s = time.monotonic() + timeout_s

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left_s = self._deadline_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("timed out")
        if self._sock.fileno() >= 0:
            self._sock.settimeout(left_s)
        return self._file.readinto(buffer)

    def close(self) -> None:
        self._file.close()
        super().close()


class _Answer(HTTPResponse):
    """A response. When it is made, the socket's timeout is the remaining time."""

    def __init__(self, sock: socket.socket, *args: Any, **options: Any) -> None:
        super().__init__(sock, *args, **options)
        self.fp = io.BufferedReader(_Deadline(sock, self.fp.detach()))


class _HttpConnection(HTTPConnection):
    response_class = _Answer


class _HttpsConnection(HTTPSConnection):
    response_class = _Answer


class _HttpPool(HTTPConnectionPool):
    ConnectionCls = _HttpConnection


class _HttpsPool(HTTPSConnectionPool):
    ConnectionCls = _HttpsConnection
