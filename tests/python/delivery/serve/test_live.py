"""What an open page is told, and what that costs (D14)."""

import asyncio
import http.client
import json
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from tickwheel.delivery.base.errors import StoreFailed
from tickwheel.delivery.serve import live
from tickwheel.delivery.serve.live import Frames
from tickwheel.delivery.sight.status import InDoubt, KeyInDoubt

from .conftest import Served, ask

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    opened = Served(tmp_path)
    yield opened
    opened.close()


def opened_page(served: Served, stack: ExitStack) -> http.client.HTTPResponse:
    connection = stack.enter_context(closing(http.client.HTTPConnection("127.0.0.1", served.port, timeout=20)))
    connection.request("GET", "/events")
    return connection.getresponse()


def event(page: http.client.HTTPResponse) -> tuple[str, Any]:
    name, data, end = (page.readline().decode() for _ in range(3))
    assert end == "\n"
    return name.removeprefix("event: ").strip(), json.loads(data.removeprefix("data: "))


def test_a_page_is_greeted_and_gets_the_wheel_and_the_figures__D14(served: Served) -> None:
    before_ms = time.time_ns() // 1_000_000
    served.ask("POST", "/messages", {"id": "a", "delay_ms": 5_000})
    with ExitStack() as stack:
        page = opened_page(served, stack)
        assert page.headers["x-accel-buffering"] == "no"
        rights = ["produce", "control", "read", "hand-off", "destinations"]
        told = {"version": live.__version__, "store": "store.db", "to": "", "rights": rights}
        assert event(page) == ("hello", told)
        told = dict(event(page) for _ in range(3))
    assert {"wheel", "figures"} <= {*told}, "the load comes when it is counted"
    wheel, figures = told["wheel"], told["figures"]
    assert sum(sum(level["tasks"]) for level in wheel["wheel"]["levels"]) >= 1
    assert 0 < figures["since_ms"] <= before_ms
    assert (figures["due"]["now"], figures["due"]["1m"], figures["states"]["near"]) == (0, 1, 1)


def test_the_dead_letters_of_a_page_are_those_that_the_store_keeps__D14(tmp_path: Path) -> None:
    works: list[bool] = []

    def send(_: object) -> None:
        if not works:
            raise ValueError("not today")

    def letters(served: Served) -> tuple[int, int]:
        found = live.figures(served.running, time.time_ns() // 1_000_000)
        assert found["dead_letters"] == served.running.view.status().dead_letters
        return found["dead_letters"], found["counts"]["dead_letters"]

    with closing(Served(tmp_path, to=send, max_attempts=1)) as served:
        for n in range(3):
            served.ask("POST", "/messages", {"id": f"m{n}", "delay_ms": 0})
        assert served.running.wait(10)
        assert letters(served) == (3, 3)
    with closing(Served(tmp_path, to=send, max_attempts=1)) as served:
        assert letters(served) == (3, 0), "after a restart"
        works.append(True)
        for n in range(2):
            assert served.ask("POST", "/requeue", {"id": f"m{n}"}).body["state"] == "requeued"
        assert served.running.wait(10)
        assert letters(served) == (1, 0), "two were tried again"


def test_the_load_is_counted_by_the_minute_and_by_the_hour__D14(served: Served) -> None:
    now_ms = time.time_ns() // 1_000_000
    hour_ms = now_ms // 3_600_000 * 3_600_000 + 3_600_000
    ends = {
        "next minute": now_ms // 60_000 * 60_000 + 119_999,
        "next hour": hour_ms,
        "day": hour_ms + 23 * 3_600_000 - 1,
    }
    for id_, due in {**ends, "after the day": hour_ms + 23 * 3_600_000}.items():
        assert served.ask("POST", "/messages", {"id": id_, "due": due}).status == 201
    waits = {"id": "waits", "key": "k", "due": hour_ms + 99 * 3_600_000, "until_event": ["paid"]}
    assert served.ask("POST", "/messages", waits).status == 201
    found = live.load(served.running, now_ms)
    assert found["minutes"][1] == 1
    assert sum(found["hours"]) == 3
    assert (found["hours"][1] >= 1, found["hours"][23]) == (True, 1)
    assert (found["waiting_for_events"], found["remembered_events"]) == (1, 0)


def test_keys_in_doubt_are_grouped_by_their_error__D14() -> None:
    def key(number: int, error: str | None) -> KeyInDoubt:
        return KeyInDoubt(f"k{number}", "id", "2026-01-01T00:00:00Z", 1, error, "2026-01-01T00:00:00Z", is_paused=False)

    keys = [key(0, None), *(key(number, "503") for number in range(1, 41)), key(41, None)]
    found = live.grouped(InDoubt(keys, is_complete=True, keys=50, spare_places=64, spare_places_taken=0))
    assert [(it["error"], it["keys"], len(it["first"])) for it in found["groups"]] == [("503", 40, 10), (None, 2, 2)]
    assert (found["errors"], found["keys"], found["longest"]) == (2, 50, None)
    many = live.grouped(InDoubt([key(number, f"error {number}") for number in range(12)], is_complete=True))
    assert (len(many["groups"]), many["errors"]) == (10, 12)


@pytest.mark.parametrize(
    ("to", "told"),
    [
        ("https://me:secret@hooks.example:8443/T000/secret?key=secret", "hooks.example:8443"),
        ("kafka://me:secret@one,two/orders", "one,two"),
        ("file:/var/lib/out.ndjson", "file:out.ndjson"),
        ("named", "named destinations"),
        ("python:shop:send", "python:shop:send"),
    ],
)
def test_a_destination_is_shown_without_secrets_and_folders__D14(to: str, told: str) -> None:
    assert live.shown_destination(to) == told


def test_there_are_at_most_so_many_pages__D12(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "MOST", 3)
    with ExitStack() as stack:
        for page in [opened_page(served, stack) for _ in range(3)]:
            assert event(page)[0] == "hello"
        refused = ask(served.port, "GET", "/events")
        assert (refused.status, refused.headers["retry-after"]) == (503, "1")
        assert served.ask("POST", "/messages", {"id": "a", "delay_ms": 0}).status == 201


class Counting:
    """As much of a running store as `Frames` asks, with a count."""

    def __init__(self) -> None:
        self.engine = self
        self.asked = 0
        self.failure: Exception | None = None

    @property
    def store(self) -> Path:
        raise StoreFailed("the load is not asked for")

    def occupancy(self) -> dict[str, Any]:
        self.asked += 1
        if self.failure:
            raise self.failure
        return {"levels": [], "front": 0, "size": self.asked}


@pytest.fixture
def counting(monkeypatch: pytest.MonkeyPatch) -> Counting:
    monkeypatch.setattr(live, "FRAME_S", 0)
    monkeypatch.setattr(live, "REST", 0)
    monkeypatch.setattr(live, "figures", lambda running, now_ms: {})
    return Counting()


def test_all_pages_get_the_same_frames_and_nothing_is_asked_without_one__D14(counting: Counting) -> None:
    async def main() -> None:
        frames = Frames(counting)  # type: ignore[arg-type]
        pages = [frames.events(b"hello") for _ in range(2)]
        assert [await anext(page) for page in pages] == [b"hello", b"hello"]
        told = [[await anext(page) for _ in range(8)] for page in pages]
        assert told[0] == told[1]
        assert b'"size":1' in told[0][0]
        for page in pages:
            await page.aclose()
        assert frames.pages == 0
        asked = counting.asked
        for _ in range(100):
            await asyncio.sleep(0)
        assert counting.asked <= asked + 1, "the look that had begun"

    asyncio.run(main())


def test_a_load_that_takes_long_holds_up_no_other_frame__D14(
    counting: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_over = threading.Event()
    monkeypatch.setattr(live, "load", lambda running, now_ms: {"over": is_over.wait(20)})

    async def main() -> None:
        frames = Frames(counting)  # type: ignore[arg-type]
        page = frames.events(b"hello")
        told = [await anext(page) for _ in range(20)]
        assert not any(b"event: load" in frame for frame in told)
        is_over.set()
        while b'{"load":{"over":true}}' not in await anext(page):
            pass
        await page.aclose()

    asyncio.run(main())


def test_a_page_that_does_not_read_costs_a_bounded_memory_and_the_others_nothing__D12(counting: Counting) -> None:
    async def main() -> None:
        frames = Frames(counting)  # type: ignore[arg-type]
        slow, fast = frames.events(b"hello"), frames.events(b"hello")
        await anext(slow)
        for _ in range(200):
            await anext(fast)
        assert counting.asked > 150
        told = [await anext(slow) for _ in range(10)]
        assert b'"size":1' in told[0]
        assert b'"size":%d' % counting.asked not in told[-1], "it gets the first ones, and then the newest"
        frames.end()
        assert [frame async for frame in slow] == []
        await fast.aclose()

    asyncio.run(main())


def test_a_store_that_can_not_be_read_is_said_and_tried_again__D14(counting: Counting) -> None:
    async def main() -> None:
        frames = Frames(counting)  # type: ignore[arg-type]
        counting.failure = StoreFailed("the disk is gone")
        page = frames.events(b"hello")
        told = [await anext(page) for _ in range(2)]
        assert told[1] == b'event: failed\ndata: {"reason":"the disk is gone"}\n\n'
        counting.failure = None
        while b"event: wheel" not in await anext(page):
            pass
        await page.aclose()

    asyncio.run(main())
