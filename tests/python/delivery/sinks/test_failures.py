"""D6: what an exception of a function means, by its kind, its HTTP status, or its name in a library that need not be
installed."""

import builtins
import email.message
import errno
import http.client
import io
import socket
import sqlite3
import ssl
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http import HTTPStatus
from smtplib import SMTPDataError, SMTPRecipientsRefused, SMTPServerDisconnected
from types import SimpleNamespace
from typing import Any
from urllib.error import HTTPError, URLError

import pytest

from tickwheel.delivery.sinks.failures import judged

REFUSED, FAILED = ("refused", None), ("failed", None)
UNANSWERED, UNREACHABLE = ("unanswered", None), ("unreachable", None)


def of_urllib(status: int, retry_after: str | None = None) -> HTTPError:
    headers = email.message.Message()
    if retry_after is not None:
        headers["Retry-After"] = retry_after
    return HTTPError("http://example.org", status, "no", headers, io.BytesIO())


def class_of(path: str, *bases: type[BaseException]) -> type[BaseException]:
    """A class with the module and name of a library's: `httpx._exceptions.ConnectError`."""
    module, _, name = path.rpartition(".")
    return type(name, bases or (Exception,), {"__module__": module})


def of(path: str, *bases: type[BaseException], **attributes: object) -> BaseException:
    error = class_of(path, *bases)("no")
    for name, value in attributes.items():
        setattr(error, name, value)
    return error


def answer(status: int, **headers: str) -> SimpleNamespace:
    return SimpleNamespace(status_code=status, headers={name.replace("_", "-"): text for name, text in headers.items()})


def locked() -> sqlite3.Error:
    """What SQLite raises when another connection writes."""
    with sqlite3.connect("file:locked?mode=memory&cache=shared", uri=True, isolation_level=None) as first:
        first.execute("CREATE TABLE t (x)")
        first.execute("BEGIN IMMEDIATE")
        second = sqlite3.connect("file:locked?mode=memory&cache=shared", uri=True, isolation_level=None)
        try:
            second.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            return error
        finally:
            second.close()
            first.execute("ROLLBACK")
    raise AssertionError


def wrong_statement() -> sqlite3.Error:
    try:
        sqlite3.connect(":memory:").execute("SELECT * FROM no_such_table")
    except sqlite3.Error as error:
        return error
    raise AssertionError


def untrusted() -> ssl.SSLError:
    """What OpenSSL raises: its number is that of `EPERM`."""
    outgoing = ssl.create_default_context().wrap_bio(incoming := ssl.MemoryBIO(), ssl.MemoryBIO(), server_hostname="x")
    incoming.write(b"this is no TLS at all")
    with pytest.raises(ssl.SSLError) as raised:
        outgoing.do_handshake()
    assert raised.value.errno == errno.EPERM
    return raised.value


@pytest.mark.parametrize(
    ("error", "meaning"),
    [
        (ConnectionRefusedError(errno.ECONNREFUSED, "refused"), UNREACHABLE),
        (socket.gaierror(-2, "unknown"), UNREACHABLE),
        (OSError(errno.EHOSTUNREACH, "no route"), UNREACHABLE),
        (OSError(errno.ENETUNREACH, "no network"), UNREACHABLE),
        (ConnectionError("gone"), UNANSWERED),
        (ConnectionResetError(errno.ECONNRESET, "reset"), UNANSWERED),
        (ConnectionAbortedError(errno.ECONNABORTED, "aborted"), UNANSWERED),
        (BrokenPipeError(), UNANSWERED),
        (TimeoutError(), UNANSWERED),
        (OSError("something"), UNANSWERED),
        (OSError(errno.EMFILE, "too many open files"), UNANSWERED),
        (PermissionError(errno.EACCES, "a firewall says no to connect()"), UNANSWERED),
        (URLError(ConnectionRefusedError(111, "refused")), UNREACHABLE),
        (URLError(socket.gaierror(-2, "unknown")), UNREACHABLE),
        (URLError(TimeoutError()), UNANSWERED),
        (URLError(untrusted()), UNANSWERED),
        (URLError("no host given"), UNANSWERED),
        (http.client.RemoteDisconnected("without a response"), UNANSWERED),
        (http.client.IncompleteRead(b"half"), UNANSWERED),
        (SMTPServerDisconnected("it is gone"), UNANSWERED),
        (ssl.SSLEOFError(ssl.SSL_ERROR_EOF, "EOF"), UNANSWERED),
        (ssl.SSLCertVerificationError(1, "self-signed"), UNANSWERED),
    ],
    ids=lambda value: f"{value!r:.60}",
)
def test_an_error_of_the_system_that_is_not_about_a_file_is_no_answer__D6(error: BaseException, meaning: Any) -> None:
    assert judged(error) == meaning


def test_a_failure_of_tls_is_no_answer_though_its_number_is_that_of_a_file__D6() -> None:
    assert judged(untrusted()) == UNANSWERED


@pytest.mark.parametrize(
    "error",
    [
        FileNotFoundError(errno.ENOENT, "no file", "a.txt"),
        FileExistsError(errno.EEXIST, "it is there", "a.txt"),
        IsADirectoryError(errno.EISDIR, "a folder"),
        NotADirectoryError(errno.ENOTDIR, "no folder", "a.txt/b"),
        PermissionError(errno.EACCES, "no", "a.txt"),
        PermissionError(errno.EPERM, "no", "a.txt"),
        OSError(errno.EIO, "the disk", "a.txt"),
        OSError(errno.ENOSPC, "full"),
        OSError(errno.EROFS, "read only"),
        OSError(errno.EDQUOT, "quota"),
        OSError(errno.ENAMETOOLONG, "too long"),
        io.UnsupportedOperation("not readable"),
        ValueError("x"),
        KeyError("x"),
        ExceptionGroup("several", [ConnectionRefusedError(111, "refused")]),
    ],
    ids=lambda value: f"{value!r:.60}",
)
def test_an_error_about_a_file_or_of_the_program_is_a_refusal__D6(error: BaseException) -> None:
    assert judged(error) == REFUSED


@pytest.mark.parametrize(("code", "meaning"), [(421, UNANSWERED), (450, UNANSWERED), (550, REFUSED), (554, REFUSED)])
def test_an_answer_of_a_mail_server_is_no_status_of_http__D6(code: int, meaning: Any) -> None:
    alone = of("aiosmtplib.errors.SMTPResponseException", code=code, message="no")
    assert judged(alone) == meaning
    several = [of("aiosmtplib.errors.SMTPRecipientRefused", code=each, recipient="a") for each in (420, code)]
    assert judged(of("aiosmtplib.errors.SMTPRecipientsRefused", recipients=several)) == meaning
    assert judged(SMTPDataError(code, "no")) == meaning


@pytest.mark.parametrize("error", [SystemExit(503), of("shop.Wrong", code=503), of("shop.Wrong", code=429)])
def test_a_code_that_is_of_no_answer_is_no_status__D6(error: BaseException) -> None:
    assert judged(error) == REFUSED


def test_a_code_beside_headers_or_a_response_is_a_status__D6() -> None:
    assert judged(of("tornado.httpclient.HTTPClientError", code=599, response=None)) == UNANSWERED
    assert judged(of("shop.Answer", code=503, headers={"Retry-After": "7"})) == ("unanswered", 7)


@pytest.mark.parametrize(("sqlstate", "meaning"), [("25006", UNANSWERED), ("25P03", UNANSWERED), ("25P02", REFUSED)])
def test_a_database_that_is_read_only_is_away__D6(sqlstate: str, meaning: Any) -> None:
    """A demoted primary, or a standby. It writes nothing until it is promoted."""
    psycopg = of("psycopg.errors.ReadOnlySqlTransaction", class_of("psycopg.InternalError"), sqlstate=sqlstate)
    of_django = of("django.db.utils.InternalError")
    of_django.__cause__ = psycopg
    for error in (
        psycopg,
        of("psycopg2.errors.ReadOnlySqlTransaction", pgcode=sqlstate),
        of("asyncpg.exceptions.ReadOnlySQLTransactionError", sqlstate=sqlstate),
        of("sqlalchemy.exc.InternalError", orig=psycopg),
        of_django,
    ):
        assert judged(error) == meaning


@pytest.mark.parametrize("name", ["ReadOnlyError", "ClusterDownError"])
def test_a_redis_that_takes_no_writes_is_away__D6(name: str) -> None:
    assert judged(of(f"redis.exceptions.{name}", class_of("redis.exceptions.ResponseError"))) == UNANSWERED


def test_the_cause_of_an_error_says_nothing__D6() -> None:
    for outer in (ValueError("x"), ConnectionRefusedError(111, "refused")):
        alone = judged(outer)
        outer.__cause__ = TimeoutError()
        assert judged(outer) == alone


@pytest.mark.parametrize("status", [*range(400, 418), 422, 425, 429, 451, *range(500, 512), 599])
@pytest.mark.parametrize(
    "made",
    [
        of_urllib,
        lambda status: of("requests.exceptions.HTTPError", OSError, response=answer(status)),
        lambda status: of("httpx.HTTPStatusError", response=answer(status)),
        lambda status: of("aiohttp.ClientResponseError", status=status, headers=None),
        lambda status: of("shop.Refused", status_code=HTTPStatus(status)) if status < 499 else of_urllib(status),
    ],
    ids=["urllib", "requests", "httpx", "aiohttp", "own"],
)
def test_an_error_with_a_status_means_what_the_status_means__D6(made: Callable[[int], Exception], status: int) -> None:
    meaning, _ = judged(made(status))
    if status in (410, 500, 501):
        assert meaning == ("final" if status == 410 else "failed")
    else:
        assert meaning == ("unanswered" if status in (408, 425, 429) or status >= 502 else "refused")


@pytest.mark.parametrize(
    ("said", "after_s"),
    [
        ("7", 7.0),
        (" 7 ", 7.0),
        ("0", None),
        ("-7", None),
        ("99999999999999999999", 3_600.0),
        ("soon", None),
        ("", None),
    ],
)
def test_the_time_that_an_answer_asks_for_is_an_hour_at_most__D6(said: str, after_s: float | None) -> None:
    assert judged(of_urllib(503, said)) == ("unanswered", after_s)
    assert judged(of_urllib(500, said)) == ("failed", after_s)
    assert judged(of("httpx.HTTPStatusError", response=answer(429, Retry_After=said))) == ("unanswered", after_s)


def test_that_time_may_be_a_date__D6() -> None:
    now = datetime.now(UTC).replace(microsecond=0)
    meaning, after_s = judged(of_urllib(429, format_datetime(now + timedelta(seconds=60), usegmt=True)))
    assert meaning == "unanswered"
    assert 50 < (after_s or 0) <= 60
    assert judged(of_urllib(429, format_datetime(now + timedelta(days=9), usegmt=True))) == ("unanswered", 3_600.0)
    assert judged(of_urllib(429, format_datetime(now - timedelta(days=9), usegmt=True))) == ("unanswered", None)


@pytest.mark.parametrize(
    ("path", "bases", "meaning"),
    [
        ("httpx.ConnectError", ["httpx.TransportError"], UNREACHABLE),
        ("httpx.ConnectTimeout", [], UNREACHABLE),
        ("httpx.ReadTimeout", ["httpx.TransportError"], UNANSWERED),
        ("httpx.RemoteProtocolError", ["httpx.TransportError"], UNANSWERED),
        ("httpx.LocalProtocolError", ["httpx.TransportError"], REFUSED),
        ("httpx.UnsupportedProtocol", ["httpx.TransportError"], REFUSED),
        ("httpx.DecodingError", [], REFUSED),
        ("requests.exceptions.ConnectTimeout", [], UNREACHABLE),
        ("requests.exceptions.ReadTimeout", ["requests.exceptions.Timeout", OSError], UNANSWERED),
        ("requests.exceptions.ConnectionError", [], UNANSWERED),
        ("requests.exceptions.MissingSchema", ["requests.exceptions.RequestException", OSError, ValueError], REFUSED),
        ("urllib3.exceptions.NewConnectionError", ["urllib3.exceptions.HTTPError"], UNREACHABLE),
        ("urllib3.exceptions.MaxRetryError", ["urllib3.exceptions.HTTPError"], UNANSWERED),
        ("urllib3.exceptions.LocationParseError", ["urllib3.exceptions.HTTPError", ValueError], REFUSED),
        (
            "aiohttp.ClientConnectorError",
            ["aiohttp.ClientConnectionError", OSError],
            UNREACHABLE,
        ),
        (
            "aiohttp.ServerDisconnectedError",
            ["aiohttp.ClientConnectionError"],
            UNANSWERED,
        ),
        ("aiohttp.InvalidURL", ["aiohttp.ClientError", ValueError], REFUSED),
        ("psycopg.errors.AdminShutdown", ["psycopg.OperationalError"], UNANSWERED),
        ("psycopg.errors.UniqueViolation", ["psycopg.IntegrityError"], REFUSED),
        ("psycopg2.OperationalError", [], UNANSWERED),
        ("asyncpg.exceptions.ConnectionDoesNotExistError", ["asyncpg.exceptions.PostgresConnectionError"], UNANSWERED),
        ("asyncpg.exceptions.CannotConnectNowError", ["asyncpg.exceptions.OperatorInterventionError"], UNANSWERED),
        ("asyncpg.exceptions.UniqueViolationError", [], REFUSED),
        ("pymysql.err.OperationalError", [], UNANSWERED),
        ("pymysql.err.IntegrityError", [], REFUSED),
        ("mysql.connector.errors.InterfaceError", [], UNANSWERED),
        ("redis.exceptions.ConnectionError", [], UNANSWERED),
        ("redis.exceptions.ResponseError", [], REFUSED),
        ("botocore.exceptions.EndpointConnectionError", [], UNREACHABLE),
        ("botocore.exceptions.ReadTimeoutError", ["botocore.exceptions.HTTPClientError"], UNANSWERED),
        ("sqlalchemy.exc.OperationalError", [], UNANSWERED),
        ("django.db.utils.OperationalError", [], UNANSWERED),
        ("django.db.utils.IntegrityError", [], REFUSED),
        ("shop.errors.OperationalError", [], REFUSED),
        ("shop.httpx.ConnectError", [], REFUSED),
    ],
)
def test_an_error_of_a_library_is_known_by_its_name__D6(path: str, bases: list[Any], meaning: Any) -> None:
    made = [base if isinstance(base, type) else class_of(base) for base in bases]
    assert judged(of(path, *made)) == meaning


def test_a_locked_sqlite_is_no_answer_and_a_wrong_statement_is_a_refusal__D6() -> None:
    assert judged(locked()) == UNANSWERED
    assert judged(wrong_statement()) == REFUSED


def test_an_answer_of_a_mail_server_means_what_its_code_means__D6() -> None:
    assert judged(SMTPDataError(451, b"later")) == UNANSWERED
    assert judged(SMTPDataError(554, b"spam")) == REFUSED
    assert judged(SMTPRecipientsRefused({"a@x": (450, b"later")})) == UNANSWERED
    assert judged(SMTPRecipientsRefused({"a@x": (450, b"later"), "b@x": (550, b"no such user")})) == REFUSED


def test_no_library_is_imported_to_know_its_errors__D6(monkeypatch: pytest.MonkeyPatch) -> None:
    imported: list[str] = []
    monkeypatch.setattr(builtins, "__import__", lambda name, *_: imported.append(name))
    meanings = [judged(of(f"{package}.OperationalError")) for package in ("httpx", "redis", "psycopg2")]
    assert (imported, meanings) == ([], [REFUSED, REFUSED, UNANSWERED])
