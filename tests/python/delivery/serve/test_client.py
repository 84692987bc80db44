"""`Client` and `AsyncClient` beside what the conformance suite shows: retries, connections, errors, many messages."""

import asyncio
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from delivery.certificates import authority, signed
from tickwheel.delivery import Answer, AsyncClient, BadRecord, Client, DeliveryFailed, Message, WrongUsage
from tickwheel.delivery.serve.tls import Certificates, TlsFiles
from tickwheel.delivery.serve.tokens import Right, Tokens

from .conftest import Served

pytestmark = pytest.mark.timeout(60)
FAR_MS = 4_000_000_000_000
TOKEN = b"not-for-other-eyes"


class Between:
    """Passes bytes on, counts connections, and loses as many answers, or the ends of as many, as it is told to."""

    def __init__(self, to: int, port: int = 0) -> None:
        self.to, self.connections, self.to_lose, self.to_cut = to, 0, 0, 0
        self._socket = socket.create_server(("127.0.0.1", port))
        self.port = self._socket.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._socket.accept()
                self.connections += 1
                far = socket.create_connection(("127.0.0.1", self.to))
                for ends in ((near, far, False), (far, near, True)):
                    threading.Thread(target=self._pass_on, args=ends, daemon=True).start()

    def _pass_on(self, start: socket.socket, end: socket.socket, are_answers: bool) -> None:
        with suppress(OSError):
            while given := start.recv(1 << 16):
                if are_answers and self.to_lose:
                    self.to_lose -= 1
                    break
                if are_answers and self.to_cut:
                    self.to_cut -= 1
                    end.sendall(given[:-2])
                    break
                end.sendall(given)
        for each in (start, end):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        if are_answers:
            start.close()
            end.close()

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


@pytest.fixture
def between(served: Served) -> Iterator[Between]:
    made = Between(served.port)
    yield made
    made.close()


def url(port: int) -> str:
    return f"http://127.0.0.1:{port}"


def test_an_answer_that_is_lost_is_asked_for_again_and_the_message_counts_once__D5(between: Between) -> None:
    between.to_lose = 2
    with Client(url(between.port)) as client:
        assert client.put("lost", {"n": 1}, due=FAR_MS) is Answer.DUPLICATE
        assert between.to_lose == 0
        assert client.cancel("lost") is Answer.CANCELLED
    between.to_lose = 99
    with Client(url(between.port), retry_s=0.3) as client, pytest.raises(DeliveryFailed, match="can't be asked"):
        client.state("lost")


def test_an_answer_that_ends_too_early_is_asked_for_again__D5(between: Between) -> None:
    with Client(url(between.port)) as client:
        between.to_cut = 1
        assert client.put_many([{"id": name, "payload": 1, "due": FAR_MS} for name in "ab"]) == [
            Answer.DUPLICATE,
            Answer.DUPLICATE,
        ]
        assert between.to_cut == 0


def test_a_server_that_starts_anew_is_waited_for__D11(served: Served) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    answers: list[Answer] = []
    with Client(url(port)) as client:
        with pytest.raises(DeliveryFailed, match="refused"):
            Client(url(port), retry_s=0).state("a")
        asking = threading.Thread(target=lambda: answers.append(client.put("starts anew", due=FAR_MS)))
        asking.start()
        started = Between(served.port, port)
        asking.join(30)
        started.close()
    assert answers == [Answer.ACCEPTED]


def test_connections_are_used_again_and_a_closed_one_is_replaced__D12(between: Between, served: Served) -> None:
    with Client(url(between.port), retry_s=0) as client:
        for _ in range(5):
            assert client.state("none") is Answer.UNKNOWN
        assert between.connections == 1
        between.to_lose = 1
        assert client.state("none") is Answer.UNKNOWN, "the kept one was closed: it is asked by another"
        assert between.connections == 2


def test_wrong_calls_raise_as_of_a_queue_before_anything_is_sent__D1() -> None:
    client = Client(url(1), retry_s=0)
    for wrong in ({"id": ""}, {"id": "a", "due": 5}, {"id": "a", "due": FAR_MS, "expires": 1}):
        with pytest.raises(BadRecord):
            client.put(**{"due": FAR_MS, **wrong})  # type: ignore[arg-type]
    with pytest.raises(BadRecord):
        client.put_many([{"id": "a", "due": FAR_MS}, {"id": "b"}])
    with pytest.raises(WrongUsage, match="can't be"):
        client.put("a", float("nan"), due=FAR_MS)
    with pytest.raises(WrongUsage, match="either a key, or"):
        client.again()
    with pytest.raises(WrongUsage, match="say which messages"):
        client.cancel_many()
    with pytest.raises(WrongUsage, match="is no address of a tickwheel serve"):
        Client("127.0.0.1:7400")


def test_what_the_server_refuses_raises_as_of_a_queue__D16_D23(tmp_path: Path) -> None:
    served = Served(tmp_path, tokens=Tokens({TOKEN: Right.PRODUCE | Right.CONTROL | Right.READ}), order="global")
    with Client(url(served.port), TOKEN.decode()) as client:
        client.put("a", 1, due=FAR_MS)
        with pytest.raises(BadRecord, match="other content"):
            client.put("a", 2, due=FAR_MS)
        with pytest.raises(BadRecord, match="there is no destination 'x'"):
            client.put("b", due=FAR_MS, destination="x")
        assert client.put_many([("a", FAR_MS, 2), {"id": "b", "due": FAR_MS, "destination": "x"}]) == [
            Answer.CONFLICT,
            Answer.REFUSED,
        ]
        with pytest.raises(WrongUsage, match="one order of all messages no key can be paused: "):
            client.pause("k")
        with pytest.raises(WrongUsage, match="no destination"):
            client.resume(destination="x")
        with pytest.raises(WrongUsage, match="all tenants are one"):
            client.set_tenant("t", weight=2)
        with pytest.raises(WrongUsage, match="403"):
            client.set_destination("x", "https://x.example")
        assert client.action("none") is None
        action = client.cancel_many(all=True)
        assert client.cancel_many(all=True, action=action) == action
        with pytest.raises(BadRecord, match="this id is of another action"):
            client.cancel_many(key="k", action=action)
        assert client.view.show("a") is not None
    with Client(url(served.port), "another-token", retry_s=0) as client, pytest.raises(WrongUsage, match="401"):
        client.state("a")
    served.close()


def test_many_messages_go_in_parts_in_their_order_with_all_their_fields__D11(served: Served) -> None:
    with Client(url(served.port)) as client:
        many = [{"id": f"m{n}", "key": "many", "due": FAR_MS + n, "payload": "x" * 1_000} for n in range(6_000)]
        assert set(client.put_many(many)) == {Answer.ACCEPTED}
        assert client.put_many(many[:2]) == [Answer.DUPLICATE] * 2
        again = [{"id": "m0", "key": "many", "debounce_ms": timedelta(hours=1), "at_latest_ms": timedelta(hours=2)}]
        assert client.put_many(again) == [Answer.REPLACED]
        message = Message("bytes", "k", FAR_MS, b"\xff\x00", tenant="t", expires_ms=FAR_MS + 5)
        assert client.put_many([message, ("tuple", datetime(2096, 1, 1, tzinfo=UTC), None)]) == [Answer.ACCEPTED] * 2
        shown = client.view.show("bytes", "k")
        assert shown is not None
        assert (shown.payload_base64, shown.tenant) == ("/wA=", "t")
        assert client.put("waits", key="e", due=FAR_MS, until_event="paid") is Answer.ACCEPTED
        assert client.event("e", "paid", id="1", payload=b"\xff", remember_ms=timedelta(hours=1)) == 1
        assert client.forget_event("e", "1") is Answer.CANCELLED
        assert client.action(client.cancel_many(key="many")) is not None


FORKS = """
import os, sys
from tickwheel.delivery import Client
client = Client(sys.argv[1])
client.state("none")
child = os.fork()
print(client.state("none").value, flush=True)
if child:
    os.waitpid(child, 0)
    print(client.state("none").value)
"""


def test_a_client_made_before_a_fork_has_its_own_connections__D11(between: Between) -> None:
    forks = subprocess.run(
        [sys.executable, "-c", FORKS, url(between.port)], stdout=subprocess.PIPE, text=True, timeout=40
    )
    assert forks.stdout.split() == ["unknown"] * 3
    assert between.connections == 2


def test_tls_by_a_context_and_another_authority_is_no_reason_to_try_again__D12(tmp_path: Path) -> None:
    ca = authority(tmp_path)
    served = Served(tmp_path, certificates=Certificates(TlsFiles(*signed(ca))))
    address = f"https://127.0.0.1:{served.port}"
    with Client(address, context=ssl.create_default_context(cafile=str(ca.cert))) as client:
        assert client.put("a", due=FAR_MS) is Answer.ACCEPTED
    with Client(address) as client, pytest.raises(DeliveryFailed, match="by no trusted authority"):
        client.state("a")
    served.close()


def test_calls_of_an_async_client_run_side_by_side__D11(served: Served) -> None:
    async def main() -> list[Answer]:
        async with AsyncClient(url(served.port)) as client:
            answers = await asyncio.gather(*(client.put(f"side {n}", due=FAR_MS) for n in range(50)))
            status = await client.call(client.view.status)
            assert status.waiting >= 50
            with pytest.raises(BadRecord):
                await client.put("side 0", due=FAR_MS + 1)
            return answers

    assert asyncio.run(main()) == [Answer.ACCEPTED] * 50
