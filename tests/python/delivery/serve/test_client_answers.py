"""`Client` and the answers that it may meet: lost, cut, of another server, too late, too large."""

import asyncio
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tickwheel.delivery import Answer, AsyncClient, Client, DeliveryFailed, WrongUsage
from tickwheel.delivery.queue import connections, server_view

from .conftest import Served
from .scripted import Scripted, accepted, answer
from .test_client import Between, between, url

__all__ = ["between"]
pytestmark = pytest.mark.timeout(60)
FAR_MS = 4_000_000_000_000
REFUSED = b'{"reason":"not now","allowed":"later"}'


def put(client: Client) -> Any:
    return client.put("a", 1, due=FAR_MS)


def replace(client: Client) -> Any:
    return client.put("a", 1, due=FAR_MS, replace=True)


def debounce(client: Client) -> Any:
    return client.put("a", 1, debounce_ms=1_000)


def move(client: Client) -> Any:
    return client.reschedule("a", due=FAR_MS)


@pytest.mark.parametrize("ask", [replace, debounce, move])
def test_a_put_that_replaces_is_not_sent_again_if_its_answer_is_lost__D20(
    ask: Callable[[Client], Any], between: Between
) -> None:
    with Client(url(between.port)) as client:
        client.state("a")
        before = between.connections
        between.to_lose = 1
        with pytest.raises(DeliveryFailed, match="it may have been done, and is not sent again"):
            ask(client)
        assert (between.to_lose, between.connections - before) == (0, 1)
    empty = () if ask is move else (answer(200, b""),)  # which is no answer for one of many records
    for lost in (None, answer(500, REFUSED), answer(503, REFUSED), answer(502, b"<html>"), *empty):
        with Scripted(lambda _number, _body, lost=lost: lost) as server, Client(server.url) as client:
            with pytest.raises(DeliveryFailed, match="it may have been done"):
                ask(client)
            assert len(server.asked) == 1


@pytest.mark.parametrize("status", [408, 429])
def test_a_put_that_replaces_is_sent_again_if_it_was_refused_for_now__D20(status: int) -> None:
    def answers(number: int, body: bytes) -> bytes:
        return accepted(body) if number else answer(status, REFUSED)

    with Scripted(answers) as server, Client(server.url) as client:
        assert replace(client) is Answer.ACCEPTED
        assert len(server.asked) == 2
    many = [{"id": name, "due": FAR_MS, "replace": True} for name in "ab"]
    with Scripted(answers) as server, Client(server.url) as client:
        with pytest.raises(DeliveryFailed, match="it may have been done"):  # some of them
            client.put_many(many)
        assert len(server.asked) == 1


def test_a_put_that_replaces_waits_for_a_server_that_starts_anew__D20() -> None:
    with Scripted(lambda _number, body: accepted(body)) as server:
        port = int(server.url.rpartition(":")[2])
    answers: list[Answer] = []
    with Client(url(port)) as client:
        asking = threading.Thread(target=lambda: answers.append(replace(client)))
        asking.start()
        time.sleep(0.3)  # at least one try is refused; if none was, nothing is shown
        with Scripted(lambda _number, body: accepted(body), port):
            asking.join(30)
    assert answers == [Answer.ACCEPTED]


def test_fewer_answers_than_records_are_asked_for_again__D5() -> None:
    def answers(number: int, body: bytes) -> bytes:
        whole = accepted(body)
        if number:
            return whole
        two_of_three = b"".join(whole.partition(b"\r\n\r\n")[2].splitlines(keepends=True)[:2])
        return answer(200, two_of_three)

    with Scripted(answers) as server, Client(server.url) as client:
        assert client.put_many([{"id": name, "due": FAR_MS} for name in "abc"]) == [Answer.ACCEPTED] * 3
        assert len(server.asked) == 2


ASKS: list[Callable[[Client], Any]] = [
    put,
    replace,
    lambda client: client.put_many([{"id": name, "due": FAR_MS} for name in "ab"]),
    lambda client: client.cancel("a"),
    lambda client: client.state("a"),
    lambda client: client.event("k", "paid", id="1"),
    lambda client: client.cancel_many(key="k"),
    lambda client: client.action("a"),
    lambda client: client.view.status(),
    lambda client: client.view.show("a"),
    lambda client: client.view.destination("a"),
]


@pytest.mark.parametrize(
    "odd",
    [
        answer(200, b"<html>hello</html>"),
        answer(200, b"[]"),
        answer(200, b'{"a":1}'),
        answer(200, b'{"a":1}\n'),
        answer(200, b'{"state":"moved"}\n'),
        answer(200, b""),
        answer(200, b'{"state":"accept'),
        answer(200, b'{"state":"accept\n'),
        answer(200, b"\xff\xfe\n"),
        answer(302, b"", "location: http://127.0.0.1:1/"),
        answer(308, b"{}"),
        answer(404, b"nope"),
        answer(400, b"5"),
        answer(400, b'{"reason":"x"}'),
        b"SSH-2.0-x\r\n\r\n",
    ],
)
def test_an_answer_of_another_server_is_a_failure_and_says_so__D11(odd: bytes) -> None:
    with Scripted(lambda _number, _body: odd) as server, Client(server.url, retry_s=0) as client:
        for ask in ASKS[:7] if b"moved" in odd else ASKS:  # the others read no state
            with pytest.raises(DeliveryFailed) as raised:
                ask(client)
            assert server.url in str(raised.value)
            assert "_MayPass" not in "".join(traceback.format_exception(raised.value))


@pytest.mark.parametrize("is_date", [False, True])
def test_the_wait_that_an_answer_asks_for_is_kept__D11(is_date: bool) -> None:
    def slow() -> bytes:
        date = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(time.time() + 3))
        return answer(503, REFUSED, f"retry-after: {date if is_date else 2}")

    with Scripted(lambda number, body: accepted(body) if number else slow()) as server, Client(server.url) as client:
        began_s = time.monotonic()
        assert put(client) is Answer.ACCEPTED
        assert (len(server.asked), time.monotonic() - began_s > 1.5) == (2, True)
    with Scripted(lambda _number, _body: slow()) as server, Client(server.url, retry_s=1) as client:
        with pytest.raises(DeliveryFailed, match="not now"):
            put(client)
        assert len(server.asked) == 1


def test_a_payload_may_be_as_large_as_the_server_takes_it__D12(tmp_path: Path) -> None:
    served = Served(tmp_path, max_payload=16 << 20)
    with Client(served.url) as client:
        for name, payload in (("text", "x" * ((16 << 20) - 2)), ("bytes", b"\xff" * (16 << 20))):
            assert client.put(name, payload, due=FAR_MS) is Answer.ACCEPTED
            shown = client.view.show(name)
            assert shown is not None
            assert len(shown.payload or shown.payload_base64 or "") >= 16 << 20
        assert client.put_many([("many", FAR_MS, "y" * (2 << 20))]) == [Answer.ACCEPTED]
        assert client.event("k", "paid", id="1", payload="z" * (2 << 20)) == 0
    served.close()


def test_an_answer_that_is_too_long_names_its_bound__D8(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (connections, server_view):
        monkeypatch.setattr(module, "LONGEST_ANSWER", 1_000)
    for size, said in ((1_000, "not as a tickwheel serve"), (1_001, "answers more than 1,000 bytes")):
        long = answer(200, b" " * size)
        with Scripted(lambda _number, _body, long=long: long) as server, pytest.raises(DeliveryFailed, match=said):
            Client(server.url, retry_s=0).view.status()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"url": b"http://127.0.0.1:1"}, "is no address"),
        ({"url": None}, "is no address"),
        ({"token": ""}, "the token has"),
        ({"token": "two words"}, "the token has"),
        ({"token": "line\nend"}, "the token has"),
        ({"token": "\u00e4"}, "the token has"),
        ({"token": "\ud800"}, "the token has"),
        ({"token": 5}, "the token has"),
        ({"context": 5}, "context is 5: give an ssl.SSLContext"),
        ({"timeout_s": 0}, "timeout_s is 0: give 0.001 to 1,000,000 seconds"),
        ({"timeout_s": None}, "timeout_s is None"),
        ({"timeout_s": float("nan")}, "timeout_s is nan"),
        ({"timeout_s": 1e30}, "timeout_s is 1e[+]30"),
        ({"timeout_s": True}, "timeout_s is True"),
        ({"retry_s": -1}, "retry_s is -1"),
        ({"retry_s": "5"}, "retry_s is '5'"),
    ],
)
@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_what_a_client_is_made_of_is_checked_at_once__D1(kind: Any, given: dict[str, Any], said: str) -> None:
    with pytest.raises(WrongUsage, match=said):
        kind(**{"url": "http://127.0.0.1:1"} | given)


def test_many_messages_that_are_none_are_refused_as_of_a_queue__D1() -> None:
    with Client(url(1)) as client, pytest.raises(WrongUsage, match="messages"):
        client.put_many(None)  # type: ignore[arg-type]


FORKS = """
import asyncio, os, sys
from tickwheel.delivery import AsyncClient
client = AsyncClient(sys.argv[1])
print(asyncio.run(client.state("none")).value, flush=True)
if child := os.fork():
    os.waitpid(child, 0)
print(asyncio.run(client.state("none")).value, flush=True)
asyncio.run(client.close())
print("closed", flush=True)
"""


def test_an_async_client_made_before_a_fork_has_its_own_threads__D11(served: Served) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", FORKS, url(served.port)], stdout=subprocess.PIPE, text=True, timeout=40
    )
    assert ended.stdout.split() == ["unknown", "unknown", "closed", "unknown", "closed"]


def test_an_async_call_that_is_cancelled_or_a_close_ends_its_tries__D11() -> None:
    away = answer(503, REFUSED, "retry-after: 40")

    async def main() -> None:
        with Scripted(lambda _number, _body: away) as server:
            client = AsyncClient(server.url)
            calls = [asyncio.create_task(client.state("a")) for _ in range(8)]
            while len(server.asked) < 8:
                await asyncio.sleep(0.01)
            for call in calls[:7]:
                call.cancel()
            for _ in range(7):  # the threads are free
                assert await client.call(lambda: 1) == 1
            await client.close()
            ended = await asyncio.gather(*calls, return_exceptions=True)
            assert [type(it) for it in ended] == [asyncio.CancelledError] * 7 + [DeliveryFailed]
            assert len(server.asked) == 8

    began_s = time.monotonic()
    asyncio.run(main())
    assert time.monotonic() - began_s < 20


def test_the_wait_for_a_thread_counts_to_the_time_of_the_tries__D11() -> None:
    async def main() -> float:
        async with AsyncClient(url(1), retry_s=2) as client:
            began_s = time.monotonic()
            ended = await asyncio.gather(*(client.state("a") for _ in range(32)), return_exceptions=True)
            assert {type(it) for it in ended} == {DeliveryFailed}
            return time.monotonic() - began_s

    assert asyncio.run(main()) < 4, "one after the other they take eight"
