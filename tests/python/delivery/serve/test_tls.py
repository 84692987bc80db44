"""TLS: certificates, clients with certificates, broken files, files that are read again (D12)."""

import contextlib
import http.client
import json
import logging
import shutil
import signal
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from delivery.batches import batch, stream
from delivery.certificates import Pair, authority, signed, with_passphrase
from tickwheel.commands import tickwheel
from tickwheel.delivery import DeliveryFailed, DeliveryQueue, WrongUsage
from tickwheel.delivery.base.tls_errors import sentence
from tickwheel.delivery.queue.server_view import ServerView
from tickwheel.delivery.serve import connections
from tickwheel.delivery.serve.credentials import Credentials
from tickwheel.delivery.serve.tls import Certificates, TlsFiles

from .conftest import ARROW, TOKEN, Served, Server

pytestmark = pytest.mark.timeout(60)
FAR_MS = 4_000_000_000_000


class Signed:
    """An authority, what it signed, and another authority."""

    def __init__(self, folder: Path) -> None:
        self.ca = authority(folder)
        self.server, self.client = signed(self.ca), signed(self.ca, "client")
        self.other = authority(folder, "other")
        self.stranger = signed(self.other, "stranger")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Signed:
    return Signed(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def encrypted(made: Signed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    served = Served(tmp_path_factory.mktemp("encrypted"), certificates=Certificates(TlsFiles(*made.server)))
    yield served
    served.close()


@pytest.fixture(scope="module")
def mutual(made: Signed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Only for clients with a certificate."""
    certificates = Certificates(TlsFiles(*made.server, made.ca.cert))
    served = Served(tmp_path_factory.mktemp("mutual"), certificates=certificates)
    yield served
    served.close()


def context(ca: Pair, own: Pair | None = None) -> ssl.SSLContext:
    made = ssl.create_default_context(cafile=ca.cert)
    if own:
        made.load_cert_chain(*own)
    return made


def status(port: int, context: ssl.SSLContext, path: str = "/healthz") -> int:
    connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=20, context=context)
    with contextlib.closing(connection):
        connection.request("GET", path)
        return connection.getresponse().status


def put(port: int, id_: str, ca: Pair, own: Pair | None = None) -> int:
    """A stream of one message; its status."""
    connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=20, context=context(ca, own))
    with contextlib.closing(connection):
        connection.request("POST", "/messages", stream(batch(id=[id_], due=[FAR_MS])), ARROW)
        [line] = connection.getresponse().read().splitlines()
        found: int = json.loads(line)["status"]
        return found


def test_requests_and_streams_are_encrypted__D12(encrypted: Served, made: Signed) -> None:
    assert encrypted.url == f"https://127.0.0.1:{encrypted.port}"
    assert status(encrypted.port, context(made.ca)) == 200
    assert put(encrypted.port, "by tls", made.ca) == 201
    assert status(encrypted.port, context(made.ca), "/messages/by%20tls") == 200


def test_it_speaks_http_1_1_whatever_its_clients_offer__D12(encrypted: Served, made: Signed) -> None:
    offers = context(made.ca)
    offers.set_alpn_protocols(["h2", "http/1.1"])
    with (
        socket.create_connection(("127.0.0.1", encrypted.port), timeout=20) as plain,
        offers.wrap_socket(plain, server_hostname="127.0.0.1") as connection,
    ):
        assert connection.selected_alpn_protocol() == "http/1.1"


def test_a_server_that_its_authority_did_not_sign_is_refused_by_its_clients__D12(
    encrypted: Served, made: Signed
) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        status(encrypted.port, context(made.other))


def test_a_client_without_tls_is_told_nothing__D12(encrypted: Served) -> None:
    with socket.create_connection(("127.0.0.1", encrypted.port), timeout=20) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
        with contextlib.suppress(ConnectionResetError):
            assert not connection.recv(4096).startswith(b"HTTP")


def test_others_are_served_beside_260_that_begin_no_handshake__D12(encrypted: Served, made: Signed) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(260):
            stack.enter_context(socket.create_connection(("127.0.0.1", encrypted.port), timeout=20))
        for n in range(3):
            assert status(encrypted.port, context(made.ca)) == 200
            assert put(encrypted.port, f"beside {n}", made.ca) == 201


def test_a_handshake_that_takes_too_long_is_closed__D12(encrypted: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEAD_WITHIN_S", 0.2)
    for first in (b"", b"\x16\x03\x01\x02\x00"):  # nothing, and the beginning of a hello
        with socket.create_connection(("127.0.0.1", encrypted.port), timeout=8) as connection:
            connection.sendall(first)
            with contextlib.suppress(ConnectionResetError):
                assert connection.recv(1) == b""


def test_old_versions_of_tls_are_refused__D12(encrypted: Served, made: Signed) -> None:
    old = context(made.ca)
    old.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    old.set_ciphers("DEFAULT@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises((ssl.SSLError, ConnectionResetError)):
        status(encrypted.port, old)


def test_with_an_authority_for_clients_each_needs_a_certificate__D12(mutual: Served, made: Signed) -> None:
    assert status(mutual.port, context(made.ca, made.client)) == 200
    assert put(mutual.port, "known", made.ca, made.client) == 201
    for own in (None, made.stranger):
        with pytest.raises((ssl.SSLError, ConnectionError)):
            status(mutual.port, context(made.ca, own))
        with pytest.raises((ssl.SSLError, ConnectionError)):
            put(mutual.port, "x", made.ca, own)
    assert status(mutual.port, context(made.ca, made.client), "/messages/x") == 404


def _told(server: str, made: Signed) -> str:
    with pytest.raises(DeliveryFailed) as failed:
        ServerView(server, context=context(made.ca)).status()
    return str(failed.value)


def test_errors_of_tls_are_sentences_on_both_sides__D12(
    encrypted: Served, mutual: Served, made: Signed, caplog: pytest.LogCaptureFixture
) -> None:
    url = f"https://127.0.0.1:{encrypted.port}"
    usual = ServerView(url)
    with pytest.raises(DeliveryFailed, match=r"by no trusted authority: name its authority's file by --tls-ca$"):
        usual.status()
    with socket.create_server(("127.0.0.1", 0)) as plain:
        answering = threading.Thread(target=_answer_without_tls, args=[plain])
        answering.start()
        assert "TLS failed: " in _told(f"https://127.0.0.1:{plain.getsockname()[1]}", made)
        answering.join()
    with (
        caplog.at_level("INFO", "tickwheel"),
        socket.create_connection(("127.0.0.1", encrypted.port), timeout=20) as connection,
    ):
        connection.sendall(b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
        with contextlib.suppress(ConnectionResetError):
            connection.recv(4096)
        _told(f"https://127.0.0.1:{mutual.port}", made)
        with contextlib.suppress(ssl.SSLError, ConnectionError):
            status(mutual.port, context(made.ca, made.stranger))
        while len(lines := _handshakes(caplog)) < 3:
            threading.Event().wait(0.005)
    assert set(lines) == {
        "the TLS handshake of a client failed: TLS failed: http request",
        "the TLS handshake of a client failed: TLS failed: peer did not return a certificate",
        "the TLS handshake of a client failed: the client's certificate is signed by no authority of --tls-client-ca: "
        "give the client another one, or add its authority",
    }


def _handshakes(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [text for record in caplog.records if "handshake" in (text := record.getMessage())]


def _answer_without_tls(listening: socket.socket) -> None:
    connection, _ = listening.accept()
    with connection:
        connection.recv(4096)
        connection.sendall(b"HTTP/1.1 400 no TLS here\r\n\r\n")


def _failed(code: int, message: str = "") -> ssl.SSLCertVerificationError:
    error = ssl.SSLCertVerificationError(1, "certificate verify failed")
    error.verify_code, error.verify_message = code, message
    return error


def test_a_certificate_of_no_authority_has_its_remedy_and_others_openssls_reason__D12() -> None:
    for code in (18, 19, 20, 21):
        assert sentence(_failed(code)).endswith("name its authority's file by --tls-ca")
    told = "Hostname mismatch, certificate is not valid for 'a'."
    assert sentence(_failed(62, told)) == f"TLS failed: {told}"
    assert sentence(ssl.SSLError(1, "odd")) == "TLS failed: odd"
    assert sentence(ConnectionResetError("reset")) == "reset"


@pytest.mark.parametrize("fault", ["missing", "empty", "damaged"])
def test_a_named_file_of_certificates_that_is_not_usable_is_an_error_at_the_start__D12(
    made: Signed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    named = tmp_path / "certificates.pem"
    if fault != "missing":
        named.write_text({"empty": "", "damaged": made.ca.cert.read_text().replace("M", "!", 3)}[fault])
    monkeypatch.setenv("SSL_CERT_FILE", str(named))
    with pytest.raises(WrongUsage, match=f"^SSL_CERT_FILE names '{named}', which (can't be read|has )"):
        ServerView("https://127.0.0.1:1")
    ServerView("http://127.0.0.1:1").close()
    with pytest.raises(WrongUsage, match=f"SSL_CERT_FILE names '{named}', which (can't be read|has )"):
        DeliveryQueue(tmp_path / "store.db", to="https://127.0.0.1:1/")
    assert not (tmp_path / "store.db").exists()
    DeliveryQueue(tmp_path / "store.db", to="http://127.0.0.1:1/").close()


def broken(folder: Path, made: Signed) -> dict[str, tuple[TlsFiles, str]]:
    none, empty = folder / "none.pem", folder / "empty.pem"
    empty.touch(0o600)
    protected = with_passphrase(made.server, "protected.key")
    cert, key = made.server
    return {
        "no certificate": (TlsFiles(none, key), f"--tls-cert {none} can't be read: No such file or directory"),
        "no key": (TlsFiles(cert, none), f"--tls-key {none} can't be read: No such file or directory"),
        "no authority": (TlsFiles(cert, key, none), f"--tls-client-ca {none} can't be read: No such file"),
        "a folder": (TlsFiles(cert, folder), f"--tls-key {folder} can't be read: Is a directory"),
        "mismatch": (TlsFiles(cert, made.client.key), "the key does not belong to the certificate"),
        "empty": (TlsFiles(empty, key), "no certificate and key in PEM"),
        "key is none": (TlsFiles(cert, cert), "has no key: name the file of its key with --tls-key"),
        "no key in it": (TlsFiles(cert), "has no key: name the file of its key with --tls-key"),
        "passphrase": (TlsFiles(cert, protected), "is protected by a passphrase"),
        "authority is none": (TlsFiles(cert, key, empty), f"--tls-client-ca {empty} has no certificate in PEM"),
    }


@pytest.mark.parametrize(
    "case",
    [
        *("no certificate", "no key", "no authority", "a folder", "mismatch", "empty", "key is none", "no key in it"),
        *("passphrase", "authority is none"),
    ],
)
def test_files_that_can_not_be_used_are_named_with_the_reason__D12(case: str, made: Signed, tmp_path: Path) -> None:
    files, reason = broken(tmp_path, made)[case]
    with pytest.raises(WrongUsage) as refused:
        Certificates(files)
    assert reason in str(refused.value)


def test_a_start_with_a_broken_certificate_leaves_nothing__D12_D13(made: Signed, tmp_path: Path) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    given = ["--store", f"{folder}/s.db", "--to", f"file:{folder}/out", "--tls-cert", str(made.server.cert)]
    wrong = [["--tls-key", str(made.client.key)], ["--tls-key", str(folder / "none")], []]
    for more in wrong:
        result = CliRunner().invoke(tickwheel, ["serve", *given, *more])
        assert (result.exit_code, [*folder.iterdir()]) == (2, []), result.output
    result = CliRunner().invoke(tickwheel, ["serve", "--store", f"{folder}/s.db", "--tls-key", str(made.server.key)])
    assert "--tls-key needs --tls-cert FILE" in " ".join(result.output.split())


def test_a_key_that_every_user_can_read_is_a_warning__D12(
    made: Signed, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    open_key = tmp_path / "open.key"
    shutil.copy(made.server.key, open_key)
    open_key.chmod(0o644)
    Certificates(TlsFiles(made.server.cert, open_key))
    assert {record.getMessage() for record in caplog.records} == {
        f"--tls-key {open_key} can be read by every user of this machine: run chmod 600 {open_key}"
    }


def test_read_again_a_new_certificate_is_for_the_next_connection__D12(made: Signed, tmp_path: Path) -> None:
    own = Pair(tmp_path / "cert.pem", tmp_path / "key.pem")
    for source, target in zip(made.server, own, strict=True):
        shutil.copy(source, target)
    credentials, said = Credentials(None, TlsFiles(*own)), list[object]()
    served = Served(tmp_path, certificates=credentials.certificates)
    try:
        before = http.client.HTTPSConnection("127.0.0.1", served.port, timeout=20, context=context(made.ca))
        before.connect()
        for source, target in zip(made.stranger, own, strict=True):
            shutil.copy(source, target)
        credentials.read_again(served.access, said.append)
        assert said == ["the certificates were read again"]
        assert status(served.port, context(made.other)) == 200
        with pytest.raises(ssl.SSLCertVerificationError):
            status(served.port, context(made.ca))
        before.request("GET", "/healthz")
        assert before.getresponse().status == 200
        before.close()
    finally:
        served.close()


def test_a_file_that_is_broken_when_it_is_read_again_changes_nothing__D12(
    made: Signed, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    own, tokens = Pair(tmp_path / "cert.pem", tmp_path / "key.pem"), tmp_path / "tokens"
    for source, target in zip(made.server, own, strict=True):
        shutil.copy(source, target)
    tokens.touch(0o600)
    tokens.write_bytes(TOKEN)
    credentials, said = Credentials(tokens, TlsFiles(*own)), list[object]()
    served = Served(tmp_path, tokens=credentials.tokens, certificates=credentials.certificates)
    try:
        shutil.copy(made.client.key, own.key)
        tokens.write_text("short")
        credentials.read_again(served.access, said.append)
        assert said == []
        messages = [(record.levelno, record.getMessage()) for record in caplog.records]
        assert [level for level, _ in messages] == [logging.ERROR] * 2
        assert messages[0][1].endswith("the tokens that were read before are still in use")
        assert messages[1][1].endswith("the certificates that were read before are still in use")
        assert status(served.port, context(made.ca)) == 200
        assert served.access.tokens is credentials.tokens
        assert credentials.tokens is not None
        assert credentials.tokens.grant_of(TOKEN)
    finally:
        served.close()


def test_the_process_reads_again_at_sighup__D12(made: Signed, tmp_path: Path, start: Callable[..., Server]) -> None:
    tokens = tmp_path / "tokens"
    tokens.touch(0o600)
    tokens.write_bytes(TOKEN)
    pair = ["--tls-cert", str(made.server.cert), "--tls-key", str(made.server.key)]
    server = start(tmp_path / "s.db", "--listen", "0.0.0.0:0", "--token-file", str(tokens), *pair)
    line = server.says()
    assert line.startswith("listening on https://0.0.0.0:"), line
    port = int(line.split(":")[2].split()[0])

    def ask(token: bytes) -> tuple[int, Any]:
        connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=20, context=context(made.ca))
        with contextlib.closing(connection):
            connection.request("DELETE", "/messages/a", headers={"authorization": "Bearer " + token.decode()})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())

    assert ask(TOKEN)[0] == 202
    tokens.write_bytes(b"another-token-now read\n")
    server.process.send_signal(signal.SIGHUP)
    assert server.says() == "the tokens and the certificates were read again\n"
    assert ask(TOKEN)[0] == 401
    found, body = ask(b"another-token-now")
    assert (found, body["reason"]) == (403, "this token may read, and the request needs control")
    tokens.write_bytes(b"short")
    server.process.send_signal(signal.SIGHUP)
    text = ""
    while "still in use" not in text:
        text += server.says()
    assert ask(b"another-token-now")[0] == 403
    assert server.kill(signal.SIGTERM) == 0
