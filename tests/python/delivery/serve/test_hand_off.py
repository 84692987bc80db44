"""What is handed off comes in fast, in pieces, and is answered as a whole (rules S3, D11)."""

import http.client
import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from delivery.batches import batch, stream
from delivery.receipts import Told
from tickwheel._native import NdjsonLines, Records
from tickwheel.delivery import StoreFailed
from tickwheel.delivery.model.message import MAX_PAYLOAD, Columns
from tickwheel.delivery.read.hand_off_rows import HANDED, batch_of
from tickwheel.delivery.serve.tokens import Right, Tokens

from .conftest import ARROW, TOKEN, Reply, Served

pytestmark = pytest.mark.timeout(30)
FAR_MS = 4_000_000_000_000
PIECE = 1024  # rows at most


def rows(count: int, name: str = "m", size: int = 1) -> Any:
    line = b'{"id": "%s%d", "due": %d, "payload": "%s"}'
    lines = b"\n".join(line % (name.encode(), n, FAR_MS, b"x" * size) for n in range(count))
    return batch_of(NdjsonLines("in", Columns(), 2 * MAX_PAYLOAD).read(lines)).select(HANDED.names)


def hand_off(served: Served, *batches: Any, query: str = "", headers: dict[str, str] = ARROW) -> Reply:
    return served.ask("POST", f"/hand-off{query}", stream(*batches), headers=headers)


class Disk:
    """Takes what is handed off in the place of the engine; its commits are made by the test."""

    def __init__(self) -> None:
        self.pieces: list[int] = []
        self.tickets: list[Callable[[Any], object]] = []
        self._has_changed = threading.Condition()

    def submit(self, given: Records, told: Callable[[Any], object]) -> None:
        with self._has_changed:
            self.pieces.append(len(given))
            self.tickets.append(told)
            self._has_changed.notify_all()

    def wait_for(self, count: int) -> None:
        with self._has_changed:
            assert self._has_changed.wait_for(lambda: sum(self.pieces) >= count, 20)


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Served]:
    served = Served(tmp_path)
    yield served
    served.close()


@pytest.fixture
def disk(fresh: Served, monkeypatch: pytest.MonkeyPatch) -> Disk:
    made = Disk()
    monkeypatch.setattr(fresh.running, "try_submit", made.submit)
    return made


def test_no_piece_waits_for_the_commit_of_another_and_the_answer_for_all__S3(disk: Disk, fresh: Served) -> None:
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(hand_off, fresh, rows(4_000), rows(1_000, "n"))
        disk.wait_for(5_000)
        assert len(disk.pieces) > 2
        *most, last = disk.tickets
        for ticket in most:
            ticket(Told())
        assert fresh.ask("GET", "/healthz").status == 200
        assert not asked.done(), "the last piece is not on disk"
        last(Told())
        assert asked.result(20)[:2] == (200, {"rows": 5_000})


def test_a_piece_that_could_not_be_written_is_told__S3(disk: Disk, fresh: Served) -> None:
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(hand_off, fresh, rows(2_000))
        disk.wait_for(2_000)
        *others, last = disk.tickets
        last(StoreFailed("the disk is full"))
        for ticket in others:
            ticket(Told())
        reply = asked.result(20)
    assert reply.status == 503
    assert reply.body["reason"] == "the disk is full; some of its messages may have been accepted"
    assert reply.body["allowed"] == "the same request again, later: what was accepted answers duplicate"


def test_a_piece_is_bounded_in_rows_and_bytes__S3_D8(disk: Disk, fresh: Served) -> None:
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(hand_off, fresh, rows(30, size=600_000), rows(5_000, "n"))
        disk.wait_for(5_030)
        for ticket in disk.tickets:
            ticket(Told())
        assert asked.result(20).status == 200
    large = disk.pieces[: next(place for place, size in enumerate(disk.pieces) if size > 30)]
    assert sum(large) == 30
    assert max(large) * 600_000 < 8 << 20, "some megabytes"
    assert max(disk.pieces) == PIECE


def test_one_that_is_silent_or_waits_for_its_answer_holds_up_no_other__S3(disk: Disk, fresh: Served) -> None:
    with closing(http.client.HTTPConnection("127.0.0.1", fresh.port, timeout=20)) as silent:
        silent.request("POST", "/hand-off", stream(rows(1))[:100], ARROW | {"content-length": "100000"})
        with ThreadPoolExecutor(2) as pool:
            waiting = pool.submit(hand_off, fresh, rows(2_000, "w"))
            disk.wait_for(2_000)
            before = len(disk.tickets)
            other = pool.submit(hand_off, fresh, rows(10))
            disk.wait_for(2_010)
            for ticket in disk.tickets[before:]:
                ticket(Told())
            assert other.result(20)[:2] == (200, {"rows": 10})
            assert not waiting.done()
            for ticket in disk.tickets[:before]:
                ticket(Told())
            assert waiting.result(20)[:2] == (200, {"rows": 2_000})


def test_what_is_answered_is_on_disk_whatever_its_size__S3(served: Served) -> None:
    before = served.running.engine.waiting
    for count in (1, PIECE, PIECE + 1, 4_000):
        assert hand_off(served, rows(count, f"n{count}."))[:2] == (200, {"rows": count})
        before += count
        assert served.running.engine.waiting == before
    assert hand_off(served, rows(4_000, "n4000."))[:2] == (200, {"rows": 4_000}), "all are duplicates"
    assert hand_off(served, rows(1).slice(0, 0))[:2] == (200, {"rows": 0}), "as of a task with nothing to send"
    assert served.running.engine.waiting == before


def test_a_hand_off_is_for_one_store_and_another_takes_nothing__S4(served: Served) -> None:
    before = served.running.engine.waiting
    other = "0" * 32
    reply = hand_off(served, rows(3, "other"), query=f"?store={other}")
    assert reply[:2] == (
        409,
        {
            "reason": f"the store here is {served.running.engine.history_id}, not {other}",
            "allowed": "GET /hand-off/marks, which tells the store's id",
        },
    )
    assert served.running.engine.waiting == before
    assert hand_off(served, rows(3, "other"), query=f"?store={served.running.engine.history_id}").status == 200
    assert served.running.engine.waiting == before + 3
    for query in ("?stores=1", "?store=a&store=b", "?replace=true", "?&"):
        reply = hand_off(served, rows(1), query=query)
        assert (reply.status, reply.body["allowed"]) == (400, "/hand-off, or ?store=ID")


def test_what_is_no_hand_off_is_refused__S3(served: Served) -> None:
    columns = hand_off(served, batch(id=["a"], due=[FAR_MS]))
    assert columns.status == 400
    assert columns.body["reason"].startswith("the columns are id, due")
    assert columns.body["allowed"].startswith("those of a hand-off: ['id', 'key', 'due_ms'")
    cut = served.ask("POST", "/hand-off", stream(rows(5, "cut"))[:-20], headers=ARROW)
    assert (cut.status, cut.body["allowed"]) == (400, "an Arrow IPC stream, not compressed")
    of_json = served.ask("POST", "/hand-off", {"id": "a", "due": FAR_MS})
    assert (of_json.status, of_json.body["allowed"]) == (415, f"content-type: {ARROW['content-type']}")
    assert served.ask("GET", "/hand-off").status == 405
    assert served.ask("GET", "/messages/a").status == 404


def test_a_hand_off_needs_its_right_alone__S3_D12(tmp_path: Path) -> None:
    others = {right: f"a token with {right.name}".replace(" ", "-").encode() for right in Right}
    served = Served(tmp_path, tokens=Tokens({token: right for right, token in others.items()} | {TOKEN: ~Right(0)}))
    try:
        for right, token in others.items():
            reply = hand_off(served, rows(2), headers=ARROW | {"authorization": f"Bearer {token.decode()}"})
            assert (reply.status == 200) == (right is Right.HAND_OFF), reply
            if reply.status != 200:
                assert (reply.status, reply.body["reason"].partition(", and ")[2]) == (
                    403,
                    "the request needs hand-off",
                )
        assert hand_off(served, rows(2)).status == 401
        authorization = {"authorization": f"Bearer {others[Right.HAND_OFF].decode()}"}
        reply = served.ask("POST", "/messages", {"id": "a", "due": FAR_MS}, headers=authorization)
        assert (reply.status, reply.body["reason"]) == (403, "this token may hand-off, and the request needs produce")
        assert hand_off(served, rows(2), headers=ARROW | {"authorization": f"Bearer {TOKEN.decode()}"}).status == 200
        assert served.running.engine.waiting == 2
    finally:
        served.close()


def test_a_row_that_no_deliverer_can_take_is_a_dead_letter_and_the_others_are_taken__D2(fresh: Served) -> None:
    [good] = rows(1).to_pylist()
    wrong = good | {"id": "wrong", "payload": b"no json"}
    given = type(rows(1)).from_pylist([wrong, good], schema=HANDED)
    assert hand_off(fresh, given)[:2] == (200, {"rows": 2})
    counts = fresh.running.summary
    assert (counts.accepted, counts.dead_letters) == (1, 1)


def test_once_delivery_has_failed_nothing_is_taken__S3(tmp_path: Path) -> None:
    served = Served(tmp_path)
    try:
        served.running.fail(StoreFailed("the disk is full"))
        reply = hand_off(served, rows(1))
        assert (reply.status, json.dumps(reply.body).count("the disk is full")) == (503, 1)
    finally:
        with pytest.raises(StoreFailed):
            served.close()
