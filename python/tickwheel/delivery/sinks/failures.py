"""The meaning of an exception that a function or a sink raised (rule D6).

| exception | meaning |
|---|---|
| it carries an HTTP status: 408, 425, 429, 502 and above | unanswered, `Retry-After` counts |
| 500, 501 | failed |
| another 4xx | refused |
| a refused connection, an unknown name or host | unreachable: the message has not arrived |
| an answer of SMTP of 500 and above, other answers of SMTP | refused, unanswered |
| another `OSError` that is not about a file; a connection error or time-out of a library below | unanswered |
| any other | refused |
"""

import errno
import socket
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final, Literal, TypeAlias

Meaning: TypeAlias = Literal["refused", "failed", "unanswered", "unreachable"]

_OF_FILES: Final = (FileExistsError, FileNotFoundError, IsADirectoryError, NotADirectoryError)
_ERRNOS_OF_FILES: Final = frozenset(
    (errno.EACCES, errno.EDQUOT, errno.EFBIG, errno.EISDIR, errno.ENAMETOOLONG, errno.ENOSPC, errno.EPERM, errno.EROFS)
)
_UNREACHABLE_ERRNOS: Final = frozenset((errno.ECONNREFUSED, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENETUNREACH))

_UNREACHABLE: Final = {
    "aiohttp": {"ClientConnectorError"},
    "botocore": {"EndpointConnectionError"},
    "httpcore": {"ConnectError", "ConnectTimeout", "PoolTimeout"},
    "httpx": {"ConnectError", "ConnectTimeout", "PoolTimeout"},
    "requests": {"ConnectTimeout"},
    "urllib3": {"ConnectTimeoutError", "NameResolutionError", "NewConnectionError"},
}
"""By the package of the class: nothing was told to the receiver."""

_UNANSWERED: Final = {
    "aiohttp": {"ClientConnectionError", "ClientPayloadError", "ServerTimeoutError"},
    "asyncpg": {"ConnectionDoesNotExistError", "InterfaceError", "PostgresConnectionError"},
    "botocore": {"ConnectionClosedError", "ConnectTimeoutError", "ReadTimeoutError"},
    "grpc": {"RpcError"},
    "httpcore": {"NetworkError", "ProtocolError", "TimeoutException"},
    "httpx": {"TransportError"},
    "mysql": {"InterfaceError", "OperationalError"},
    "oracledb": {"InterfaceError", "OperationalError"},
    "psycopg": {"InterfaceError", "OperationalError"},
    "psycopg2": {"InterfaceError", "OperationalError"},
    "pymongo": {"AutoReconnect", "NetworkTimeout"},
    "pymysql": {"InterfaceError", "OperationalError"},
    "redis": {"ConnectionError", "TimeoutError"},
    "requests": {"ConnectionError", "Timeout"},
    "sqlite3": {"OperationalError"},
    "urllib3": {"HTTPError"},
}
"""The same: nothing is known."""

_LONGEST_S: Final = 3_600.0


def judged(error: BaseException) -> tuple[Meaning, float | None]:
    """What it means, and after how many seconds the receiver wants to be asked again, if it says so."""
    status, headers = _answer_of(error)
    if status is not None:
        return _of_status(status), _retry_after_s(headers)
    smtp_code = getattr(error, "smtp_code", None)
    if type(smtp_code) is int and smtp_code > 0:
        return "refused" if smtp_code >= 500 else "unanswered", None
    if isinstance(error, ConnectionRefusedError | socket.gaierror) or type(error) is ConnectionError:
        return "unreachable", None
    if _is_of(error, _UNREACHABLE):
        return "unreachable", None
    if _is_of(error, _UNANSWERED):
        return "unanswered", None
    if isinstance(error, OSError):
        return _of_os_error(error), None
    return "refused", None


def _of_status(status: int) -> Meaning:
    if status in (500, 501):
        return "failed"
    return "unanswered" if status in (408, 425, 429) or status > 501 else "refused"


def _of_os_error(error: OSError) -> Meaning:
    if error.errno in _UNREACHABLE_ERRNOS:
        return "unreachable"
    is_of_file = isinstance(error, _OF_FILES) or error.errno in _ERRNOS_OF_FILES or error.filename is not None
    return "refused" if is_of_file and not isinstance(error, ConnectionError | TimeoutError) else "unanswered"


def _is_of(error: BaseException, names: Mapping[str, set[str]]) -> bool:
    """Whether one of its classes has such a name. No package is imported for it."""
    classes = ((str(kind.__module__).partition(".")[0], kind.__name__) for kind in type(error).__mro__)
    return any(name in names.get(package, ()) for package, name in classes)


def _answer_of(error: BaseException) -> tuple[int | None, object]:
    """The HTTP status that it carries, as the errors of urllib, requests, httpx and aiohttp do, and the headers."""
    response = getattr(error, "response", None)
    for holder in (response, error):
        for name in ("status_code", "status", "code"):
            status = getattr(holder, name, None)
            if type(status) is int and 400 <= status < 600:
                return status, getattr(holder, "headers", None)
    return None, None


def _retry_after_s(headers: object) -> float | None:
    try:
        text = str(headers.get("Retry-After", "")).strip()  # type: ignore[attr-defined]
        if text.isascii() and text.isdigit():
            after_s = float(text[:9])
        else:
            after_s = (parsedate_to_datetime(text) - datetime.now(UTC)).total_seconds()
    except Exception:  # there are none, or it is no time
        return None
    return min(after_s, _LONGEST_S) if after_s > 0 else None
