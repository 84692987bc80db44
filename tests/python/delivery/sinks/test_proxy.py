"""Webhooks through the operator's proxy: `--proxy`, the environment, TLS within a tunnel (rules D6, D10, D12)."""

import base64
import logging
import select
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from delivery.sinks.test_http import LONG_S, Outcome, QueueTo, Receiver, Told, closed_port, message
from delivery.sinks.test_http import outcome as outcome
from delivery.sinks.test_http import queue_to as queue_to
from delivery.sinks.test_http import receiver as receiver
from delivery.sinks.test_http import told as told
from tickwheel.commands import tickwheel
from tickwheel.delivery import DeliveryQueue, WrongUsage

pytestmark = pytest.mark.timeout(60)

NAMES = ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "NO_PROXY", "REQUEST_METHOD")


class Proxy(ThreadingHTTPServer):
    """Each tunnel leads to the receiver, whatever it is asked for."""

    daemon_threads = True

    def __init__(self, leads_to: int) -> None:
        super().__init__(("127.0.0.1", 0), Tunnel)
        self.leads_to = leads_to
        self.asked: list[tuple[str, str | None]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Tunnel(BaseHTTPRequestHandler):
    server: Proxy

    def do_CONNECT(self) -> None:
        self.server.asked.append((self.path, self.headers["Proxy-Authorization"]))
        with socket.create_connection(("127.0.0.1", self.server.leads_to)) as receiver:
            self.send_response(200)
            self.end_headers()
            ends = {self.connection: receiver, receiver: self.connection}
            while True:
                for end in select.select([*ends], [], [])[0]:
                    data = end.recv(65536)
                    if not data:
                        return
                    ends[end].sendall(data)

    def log_message(self, *args: Any) -> None: ...


@pytest.fixture
def proxy(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    with Proxy(receiver.server_port) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@contextmanager
def tls(receiver: Receiver, folder: Path, name: str) -> Iterator[str]:
    """The receiver by TLS, with a certificate for that name. Gives the file of it."""
    certificate, key = str(folder / "cert.pem"), str(folder / "key.pem")
    kind = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=receiver"
    details = ["-addext", f"subjectAltName=DNS:{name}", "-out", certificate, "-keyout", key]
    subprocess.run(["openssl", *kind.split(), *details], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    receiver.socket = context.wrap_socket(receiver.socket, server_side=True)
    yield certificate


def test_tls_is_with_the_receiver_and_checks_its_name__D10(
    receiver: Receiver, proxy: Proxy, outcome: Outcome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tls(receiver, tmp_path, "receiver.test") as certificate:
        monkeypatch.setenv("SSL_CERT_FILE", certificate)
        user = proxy.url.replace("//", "//me:s3cret@")
        assert outcome("https://receiver.test/a?b=c", proxy=user) == []
        assert [path for _, path, *_ in receiver.requests] == ["/a?b=c"]
        expected = f"Basic {base64.b64encode(b'me:s3cret').decode()}"
        assert proxy.asked == [("receiver.test:443", expected)]
        [reason] = outcome("https://other.test:8443/", proxy=user, unanswered_for_s=0.001)
        assert "the receiver's certificate is for receiver.test, not for other.test" in reason
        assert proxy.asked[-1] == ("other.test:8443", expected)


@pytest.mark.parametrize("name", ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"])
def test_env_is_what_the_environment_says__D10(
    name: str, receiver: Receiver, proxy: Proxy, outcome: Outcome, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, proxy.url.removeprefix("http://"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.0/8,.inside.test")
    assert outcome("http://receiver.test/", proxy="env") == []
    assert outcome("http://notinside.test/", proxy="env") == []
    assert [asked for asked, _ in proxy.asked] == ["receiver.test:80", "notinside.test:80"]
    assert outcome(receiver.url, proxy="env") == []
    assert len(outcome("http://a.inside.test/", proxy="env", unanswered_for_s=0.001)) == 1  # there is no such name
    assert (len(proxy.asked), len(receiver.requests)) == (2, 3)
    assert outcome(receiver.url, proxy=proxy.url) == []
    assert proxy.asked[-1] == (f"127.0.0.1:{receiver.server_port}", None)  # NO_PROXY is part of env


def test_one_for_https_is_not_for_http_and_an_empty_variable_is_none__D10(
    receiver: Receiver, proxy: Proxy, outcome: Outcome, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", proxy.url)
    monkeypatch.setenv("HTTP_PROXY", "")
    monkeypatch.setenv("http_proxy", proxy.url)
    assert outcome(receiver.url, proxy="env") == []
    assert (proxy.asked, len(receiver.requests)) == ([], 1)


def test_a_proxy_that_is_away_is_a_destination_that_is_down_and_is_named__D6(
    proxy: Proxy, queue_to: QueueTo, told: Told
) -> None:
    away = f"127.0.0.1:{closed_port()}"
    queue = queue_to("http://receiver.test/", proxy=f"http://me:s3cret@{away}")
    queue.put_many([message(str(number), key=None) for number in range(5)])
    assert told.is_down.wait(LONG_S)
    assert told.outages[0] == f"the proxy {away} can't be reached: tcp connect error: Connection refused"


def test_a_proxy_that_is_set_and_not_used_is_told_once__D15(
    receiver: Receiver, proxy: Proxy, outcome: Outcome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    caplog.set_level(logging.INFO, "tickwheel.delivery")
    monkeypatch.setenv("http_proxy", "http://me:s3cret@127.0.0.1:1")
    assert outcome(receiver.url, *(message(str(number)) for number in range(3))) == []
    said = [record.getMessage() for record in caplog.records if "_proxy" in record.getMessage()]
    assert said == ["http_proxy is set and not used: to send webhooks through it, give --proxy env"]
    caplog.clear()
    assert outcome("http://receiver.test/", proxy=proxy.url) == []
    with DeliveryQueue(tmp_path / "function.db", to=lambda _: None):
        pass  # it sends no webhooks
    assert "_proxy" not in caplog.text


@pytest.mark.parametrize("how", ["env", "env:WHERE", "file:where", "URL"])
def test_the_command_takes_it_from_where_no_password_is_shown__D12(
    how: str, receiver: Receiver, proxy: Proxy, tmp_path: Path
) -> None:
    (tmp_path / "where").write_text(f"{proxy.url}\n")
    (tmp_path / "where").chmod(0o600)
    given = proxy.url if how == "URL" else how
    done = subprocess.run(
        [sys.executable, "-m", "tickwheel", "deliver", "-", "--to", "http://receiver.test/", "--proxy", given],
        input='{"id": "a", "due": 1700000000005}\n',
        env={"HTTP_PROXY" if how == "env" else "WHERE": proxy.url},
        cwd=tmp_path,
        text=True,
        capture_output=True,
        timeout=50,
    )
    assert (done.returncode, len(receiver.requests)) == (0, 1), done.stderr
    assert proxy.asked == [("receiver.test:80", None)]


@pytest.mark.parametrize("given", ["socks5://me:s3cret@host", "http://me:s3/cret@host", "me:s3cret@host:port"])
def test_what_is_no_proxy_is_refused_at_the_start_and_not_shown__D12(
    given: str, proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    to = ["--to", "http://receiver.test/", "--store", str(tmp_path / "s.db")]
    for name, option in (("TICKWHEEL_SERVE_PROXY", []), ("HTTPS_PROXY", ["--proxy", "env"])):
        monkeypatch.setenv(name, given)
        refused = CliRunner().invoke(tickwheel, ["serve", *to, *option])
        assert refused.exit_code == 2
        assert "no address of a proxy by HTTP: write http://HOST:PORT" in " ".join(refused.output.split())
        assert "s3" not in refused.output
        monkeypatch.delenv(name)
    with pytest.raises(WrongUsage, match="proxy is for webhooks, and this sends to none"):
        DeliveryQueue(tmp_path / "f.db", to=lambda _: None, proxy="http://host:1")
    assert [*tmp_path.iterdir()] == []
