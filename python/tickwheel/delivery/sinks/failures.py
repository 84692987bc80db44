"""The meaning of an exception that a function or a sink raised (rule D6).

| exception | meaning |
|---|---|
| it carries an HTTP status: 408, 425, 429, 502 and above | unanswered, `Retry-After` counts |
| 500, 501 | failed |
| 410 | refused for good |
| another 4xx | refused |
| a refused connection, an unknown name or host, what `_BY_NAME` has there | unreachable: it has not arrived |
| an answer of SMTP: 500 and above, below | refused, unanswered |
| a database that is read-only, or ended the session while it was idle | unanswered |
| another `OSError`, what `_BY_NAME` has there, a locked SQLite | unanswered |
| an `OSError` about a file or a wrong value, any other | refused |

Only the exception itself is judged, not its cause, and not the members of a group. Some libraries wrap an error of
another one as it is: there the inner one is judged.
"""

import errno
import socket
import ssl
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from smtplib import SMTPRecipientsRefused
from typing import Any, Final, Literal, TypeAlias
from urllib.error import URLError

Meaning: TypeAlias = Literal["refused", "final", "failed", "unanswered", "unreachable"]

_OF_FILES: Final = (FileExistsError, FileNotFoundError, IsADirectoryError, NotADirectoryError)
_ERRNOS_OF_FILES: Final = frozenset((errno.EDQUOT, errno.EFBIG, errno.ENAMETOOLONG, errno.ENOSPC, errno.EROFS))
_UNREACHABLE_ERRNOS: Final = frozenset((errno.ECONNREFUSED, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENETUNREACH))
_SQLSTATES_AWAY: Final = frozenset(("25006", "25P03"))  # a demoted primary or a standby; a session that was idle
_SQLITE_LOCKED: Final = frozenset((5, 6))  # SQLITE_BUSY, SQLITE_LOCKED

_BY_NAME: Final[Mapping[Meaning, Mapping[str, set[str]]]] = {
    "refused": {
        "httpcore": {"LocalProtocolError", "UnsupportedProtocol"},
        "httpx": {"LocalProtocolError", "UnsupportedProtocol"},
    },
    "unreachable": {
        "aiohttp": {"ClientConnectorError", "ConnectionTimeoutError"},
        "botocore": {"ConnectTimeoutError", "EndpointConnectionError"},
        "httpcore": {"ConnectError", "ConnectTimeout", "PoolTimeout"},
        "httpx": {"ConnectError", "ConnectTimeout", "PoolTimeout"},
        "requests": {"ConnectTimeout"},
        "urllib3": {"ConnectTimeoutError", "NameResolutionError", "NewConnectionError"},
    },
    "unanswered": {
        "aiohttp": {"ClientConnectionError", "ClientPayloadError", "ServerTimeoutError"},
        "asyncpg": {"InterfaceError", "OperatorInterventionError", "PostgresConnectionError"},
        "botocore": {"ConnectionError", "HTTPClientError"},
        "django": {"InterfaceError", "OperationalError"},
        "grpc": {"RpcError"},
        "http": {"BadStatusLine", "IncompleteRead"},
        "httpcore": {"NetworkError", "ProtocolError", "TimeoutException"},
        "httpx": {"TransportError"},
        "mysql": {"InterfaceError", "OperationalError"},
        "MySQLdb": {"InterfaceError", "OperationalError"},
        "oracledb": {"InterfaceError", "OperationalError"},
        "psycopg": {"InterfaceError", "OperationalError"},
        "psycopg2": {"InterfaceError", "OperationalError"},
        "pymongo": {"AutoReconnect", "NetworkTimeout"},
        "pymysql": {"InterfaceError", "OperationalError"},
        "redis": {"ClusterDownError", "ConnectionError", "ReadOnlyError", "TimeoutError"},
        "requests": {"ConnectionError", "Timeout"},
        "sqlalchemy": {"InterfaceError", "OperationalError", "TimeoutError"},
        "urllib3": {"HTTPError"},
    },
}
"""By the package and the name of a class of the exception. The first meaning that fits counts."""

_LONGEST_S: Final = 3_600.0


def judged(error: BaseException) -> tuple[Meaning, float | None]:
    """The meaning of the exception, and the wait in seconds that the receiver asks for, or `None`."""
    if type(error) is URLError and isinstance(error.reason, OSError):
        return judged(error.reason)
    names = {(str(kind.__module__).partition(".")[0], kind.__name__) for kind in type(error).__mro__}
    packages = {package for package, _ in names}
    status, headers = _answer_of(error)
    if status is not None:
        return _of_status(status), retry_after_s(headers)
    if (smtp_code := _smtp_code_of(error, packages)) is not None:
        return "refused" if smtp_code >= 500 else "unanswered", None
    if isinstance(error, ssl.SSLError):  # its `errno` is a number of OpenSSL's, and some are a `ValueError`
        return "unanswered", None
    if isinstance(error, ValueError):  # also a bad URL for `requests`, which is an `OSError` too
        return "refused", None
    for meaning, classes in _BY_NAME.items():
        if any(name in classes.get(package, ()) for package, name in names):
            return meaning, None
    if _sqlstate_of(error, packages) in _SQLSTATES_AWAY:
        return "unanswered", None
    if ("sqlite3", "OperationalError") in names:  # also a wrong statement
        is_locked = (getattr(error, "sqlite_errorcode", 0) & 0xFF) in _SQLITE_LOCKED
        return "unanswered" if is_locked else "refused", None
    return _of_os_error(error) if isinstance(error, OSError) else "refused", None


def _of_status(status: int) -> Meaning:
    if status in (410, 500, 501):
        return "final" if status == 410 else "failed"
    return "unanswered" if status in (408, 425, 429) or status > 501 else "refused"


def _of_os_error(error: OSError) -> Meaning:
    if isinstance(error, ConnectionRefusedError | socket.gaierror) or error.errno in _UNREACHABLE_ERRNOS:
        return "unreachable"
    if isinstance(error, ConnectionError | TimeoutError):
        return "unanswered"
    is_of_file = isinstance(error, _OF_FILES) or error.errno in _ERRNOS_OF_FILES or error.filename is not None
    return "refused" if is_of_file else "unanswered"


def _answer_of(error: BaseException) -> tuple[int | None, object]:
    """The HTTP status that it carries, as the errors of urllib, requests, httpx and aiohttp do, and the headers. A
    `code` may be anything, as an exit code or a mail server's answer: it counts on a response, or beside its headers.
    """
    response = getattr(error, "response", None)
    is_of_http = any(hasattr(error, name) for name in ("headers", "response"))
    for holder in (response, error):
        for name in ("status_code", "status", *(["code"] if is_of_http else [])):
            status = getattr(holder, name, None)
            if isinstance(status, int) and 400 <= status < 600:
                return int(status), getattr(holder, "headers", None)
    return None, None


def _smtp_code_of(error: BaseException, packages: set[str]) -> int | None:
    """The code of a mail server's answer, or the highest of its answers for several recipients."""
    code = getattr(error, "smtp_code", None)
    if isinstance(error, SMTPRecipientsRefused):
        code = max((code for code, _ in error.recipients.values()), default=None)
    elif "aiosmtplib" in packages:
        several: Any = getattr(error, "recipients", [])
        code = max((each.code for each in several), default=getattr(error, "code", None))
    return code if isinstance(code, int) and code > 0 else None


def _sqlstate_of(error: BaseException, packages: set[str]) -> object:
    """PostgreSQL's code of an error of psycopg or asyncpg, also as SQLAlchemy and Django wrap it."""
    inner = error.__cause__ if "django" in packages else getattr(error, "orig", error)
    return getattr(inner, "sqlstate", None) or getattr(inner, "pgcode", None)


def retry_after_s(headers: object) -> float | None:
    """What they ask to wait; `None`: nothing that can be read."""
    try:
        text = str(headers.get("Retry-After", "")).strip()  # type: ignore[attr-defined]
        if text.isascii() and text.isdigit():
            after_s = float(text[:9])
        else:
            after_s = (parsedate_to_datetime(text) - datetime.now(UTC)).total_seconds()
    except Exception:  # there are none, or it is no time
        return None
    return min(after_s, _LONGEST_S) if after_s > 0 else None
