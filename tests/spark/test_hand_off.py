"""The hand-off to real servers, without a JVM: answers, time limits, who is waited for (rules S3 to S5, D5)."""

import http.server
import itertools
import json
import logging
import pickle
import random
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from delivery.certificates import authority, signed
from tickwheel.delivery import DeliveryFailed, DeliveryQueue, backup_store, restore_store
from tickwheel.delivery.base.errors import BadRecord, WrongUsage
from tickwheel.delivery.model.message import Cancel
from tickwheel.delivery.read.hand_off_rows import HANDED, PARTITIONS
from tickwheel.delivery.serve.access import Access as ServerAccess
from tickwheel.delivery.serve.access import Address
from tickwheel.delivery.serve.client_tls import ClientTls
from tickwheel.delivery.serve.ports import Listening, Ports
from tickwheel.delivery.serve.tls import Certificates, TlsFiles
from tickwheel.delivery.serve.tokens import Right, Tokens
from tickwheel.spark.client import Access, NotTaken, Refused
from tickwheel.spark.deliverers import Deliverers
from tickwheel.spark.hand_off import HandOff, assign
from tickwheel.spark.orders import Orders
from tickwheel.spark.packing import pack
from tickwheel.spark.schemas import NEAR
from tickwheel.spark.sending import Send

from .ports import port_of
from .rows import batch_of, message, row

pytestmark = pytest.mark.timeout(60)
FAR_MS = 2_000_000_000_000
TOKEN = b"a token of this test"
READER = b"one that only reads"
ACCESS = Access(TOKEN)
STORES: dict[str, str] = {}
"""The ids of the stores at addresses."""


@contextmanager
def deliverer(store: Path, port: int = 0, token: bytes | None = TOKEN) -> Iterator[tuple[DeliveryQueue, str]]:
    """A queue with a port; closed at the end."""
    tokens = Tokens({token: Right.HAND_OFF}) if token else None
    with DeliveryQueue(store, to=lambda _: None) as queue, port_of(queue, tokens, port) as at:
        STORES[at] = queue._running.engine.history_id
        yield queue, at


@contextmanager
def encrypted(store: Path, certificates: Certificates) -> Iterator[tuple[DeliveryQueue, str]]:
    """A queue with the ports of `serve`; closed at the end."""
    with DeliveryQueue(store, to=lambda _: None) as queue:
        address = Address.of("--listen", "127.0.0.1:0")
        access = ServerAccess(Tokens({TOKEN: Right.HAND_OFF, READER: Right.READ}), address)
        ports = Ports(Listening(address), access, certificates)
        at = ports.open(queue._running, 1 << 20).rpartition("/")[2]
        STORES[at] = queue._running.engine.history_id
        try:
            yield queue, at
        finally:
            ports.close()


@contextmanager
def answering(
    answer: Callable[[int, threading.Event], bool], says: bytes | None = None, bodies: list[bytes] | None = None
) -> Iterator[str]:
    """A port that reads each hand-off, into `bodies`. `answer` is asked before it is answered, with its number, from 0,
    and an event that is set at the end. `False`: it never is answered.
    """
    over, count = threading.Event(), itertools.count()

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if bodies is not None:
                bodies.append(body)
            if not answer(next(count), over):
                over.wait(20)
                self.close_connection = True
                return
            rows = sum(batch.num_rows for batch in pa.ipc.open_stream(body))
            text = json.dumps({"rows": rows}).encode() if says is None else says
            self.send_response(200)
            self.send_header("content-length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: object) -> None: ...

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    serving = threading.Thread(target=server.serve_forever, daemon=True)
    serving.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        over.set()
        server.shutdown()
        serving.join()
        server.server_close()


@contextmanager
def silent() -> Iterator[str]:
    """A port that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


COUNTS = {"waiting": 7, "given": 8, "due_ms": None, "due_within": [1, 2, 3], "went_back": False}


def near(*visits: tuple[int, str, Sequence[tuple[Any, ...]]]) -> Any:
    """A batch of `NEAR`: for each visit a shard, its deliverer, and the rows to send, in pieces of at most 2,000."""
    rows: list[dict[str, Any]] = []
    for shard, to, given in visits:
        pieces = [pack(batch_of(given[at : at + 2_000])) for at in range(0, len(given), 2_000)]
        told = {"shard": shard, "taker": to, "store_id": STORES.get(to, ""), **COUNTS}
        rows += [told | {"rows": piece} for piece in pieces] + [told | {"rows": None}]
    return pa.RecordBatch.from_pylist(rows)


def send(how: Send, *visits: tuple[int, str, Sequence[tuple[Any, ...]]]) -> list[Any]:
    """Like a task: what is told of each shard."""
    [told] = how(iter([near(*visits)]))
    found: list[Any] = told.to_pylist()
    return found


def quick(access: Access = ACCESS) -> Send:
    """Gives a silent deliverer up after a second."""
    return Send(access, silence_s=1.0, within_s=2.0)


def far(*ids: str) -> list[tuple[Any, ...]]:
    return [row(message(id_, FAR_MS, key="k"), n) for n, id_ in enumerate(ids)]


def test_messages_cancels_and_dead_letters_arrive_and_copies_are_counted__S3_D5(tmp_path: Path) -> None:
    with deliverer(tmp_path / "s.db") as (queue, at):
        rows = [
            *far("a", "b"),
            row(message("b", FAR_MS, key="k")),
            row(Cancel("a", "k")),
            row(BadRecord("why", "what"), 9),
        ]
        [told] = send(quick(), (3, at, rows))
        assert told == {
            "shard": 3, "taker": at, **COUNTS, "sent": 5, "error": None,
        }  # fmt: skip
        assert [it["sent"] for it in send(quick(), (3, at, far("a")), (4, at, []))] == [1, 0]
        found = queue.summary
        assert (found.accepted, found.duplicates, found.cancelled, found.dead_letters) == (2, 2, 1, 1)
        assert queue.state("b", "k") == "waiting"
        assert queue.state("a", "k") == "cancelled"


def test_what_may_have_been_delivered_elsewhere_is_marked__S4_D5(tmp_path: Path) -> None:
    came: list[tuple[str, bool]] = []
    rows = [row(message(id_, -5), again=id_ == "again") for id_ in ("first", "again")]
    with (
        DeliveryQueue(tmp_path / "s.db", to=lambda it: came.append((it.message.id, it.redelivered))) as queue,
        port_of(queue) as at,
    ):
        STORES[at] = queue._running.engine.history_id
        send(quick(Access()), (0, at, rows))
        assert queue.wait_until_empty(30)
    assert sorted(came) == [("again", True), ("first", False)]


def test_one_that_was_moved_while_it_was_held_is_due_then_and_known_as_it_was__S4_D16_D5(tmp_path: Path) -> None:
    overdue = row(message("a", -5))
    with deliverer(tmp_path / "s.db") as (queue, at):
        moved = dict(zip(HANDED.names, overdue, strict=True)) | {"moved_to_ms": FAR_MS}
        send(quick(), (0, at, [tuple(moved.values())]))
        assert queue.state("a") == "waiting", "it is not due by its first time"
        send(quick(), (0, at, [overdue]))
        counts = queue.summary
        assert (counts.accepted, counts.rescheduled, counts.duplicates, counts.conflicts) == (1, 1, 1, 0)
        assert queue.state("a") == "waiting"
        assert queue.cancel("a")


def test_pieces_of_any_size_are_sent_in_batches_that_a_deliverer_takes__S3_D12(tmp_path: Path) -> None:
    large = [row(message(str(n), FAR_MS, payload=b'"%s"' % (b"x" * 900_000)), n) for n in range(40)]
    with deliverer(tmp_path / "s.db") as (queue, at):
        visits = [(n, at, [one]) for n, one in enumerate(large)]
        small = far(*map(str, range(100, 5_100)))
        told = send(Send(ACCESS, 30, 30), *visits, (50, at, small))
        assert sum(it["sent"] for it in told) == 5_040
        assert len(queue) == 5_040


def test_one_that_is_down_or_silent_holds_up_its_own_shards_alone_and_not_for_long__S3(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        down = f"127.0.0.1:{probe.getsockname()[1]}"
    with silent() as mute, deliverer(tmp_path / "s.db") as (queue, at):
        many = far(*map(str, range(300)))
        began_s = time.monotonic()
        told = send(quick(), *((n, (down, mute, at)[n % 3], many[n * 10 : n * 10 + 10]) for n in range(30)))
        took_s = time.monotonic() - began_s
        assert [it["sent"] for it in told] == [0, 0, 10] * 10
        assert [it["error"] is None for it in told] == [False, False, True] * 10
        assert "no answer for 1." in told[1]["error"]
        assert "Detail" not in told[0]["error"]
        assert len(queue) == 100
    assert took_s < 20, "a limit, not a measurement: without one it would take minutes"


def test_one_that_was_silent_is_not_waited_for_again_by_the_next_task_of_a_micro_batch__S3(tmp_path: Path) -> None:
    with silent() as mute:
        first, again, next_one = (replace(quick(), batch_id=number) for number in (7, 7, 8))
        for how, said in ((first, "no answer"), (again, "did not answer another task"), (next_one, "no answer")):
            [told] = send(how, (3, mute, far("a")))
            assert (told["sent"], said in told["error"]) == (0, True), told["error"]


def test_what_was_taken_before_a_deliverer_fell_silent_is_not_sent_again__S3(tmp_path: Path) -> None:
    with answering(lambda number, _over: number == 0) as at:
        ids = [f"m{n}" for n in range(9_000)]
        told = send(quick(), (1, at, far(*ids[:5_000])), (2, at, far(*ids[5_000:])))
    assert [it["error"] is None for it in told] == [False, False]
    assert 0 < sum(it["sent"] for it in told) < 9_000


def test_what_is_sent_together_is_one_batch_so_that_a_cancel_is_beside_its_message__S3_D7() -> None:
    """A deliverer commits each batch, and a message that is overdue goes out after that."""
    bodies: list[bytes] = []
    with answering(lambda number, over: number > 0 or not over.wait(0.3), bodies=bodies) as at:
        told = send(quick(), *((n, at, far(f"m{n}")) for n in range(30)))
    assert sum(it["sent"] for it in told) == 30
    assert len(bodies) < 30, "while the first waited for its answer the others gathered"
    assert [len([*pa.ipc.open_stream(body)]) for body in bodies] == [1] * len(bodies)


def test_a_store_that_took_the_place_of_another_takes_nothing_that_was_for_that_one__S4_D4(tmp_path: Path) -> None:
    with deliverer(tmp_path / "s.db") as (_, at):
        before = STORES[at]
    with deliverer(tmp_path / "other.db", int(at.rpartition(":")[2])) as (queue, _):
        STORES[at] = before
        [told] = send(quick(), (0, at, far("a")))
        assert (told["sent"], len(queue)) == (0, 0)
        assert f"not {before}" in told["error"]


def test_what_waiting_will_not_mend_ends_the_task__S3(tmp_path: Path) -> None:
    wrong = pytest.raises(Refused, match="401: the token is wrong")
    with deliverer(tmp_path / "s.db") as (_, at), wrong:
        send(quick(Access(b"another token here")), (0, at, far("a")))


def test_it_speaks_tls_and_shows_its_certificate__D12_S3(tmp_path: Path) -> None:
    ca = authority(tmp_path)
    server, client = signed(ca), signed(ca, "client")
    tls = ClientTls.read(ca.cert, *client)
    with encrypted(tmp_path / "s.db", Certificates(TlsFiles(*server, ca.cert))) as (queue, at):
        how = pickle.loads(pickle.dumps(quick(Access(TOKEN, tls))))
        assert send(how, (0, at, far("a")))[0]["sent"] == 1
        with closing(Deliverers([at], Access(TOKEN, tls))) as asked:
            assert [taker.address for taker in asked.ask()] == [at]
        assert queue.state("a", "k") == "waiting"
        with pytest.raises(Refused, match="403: this token may read, and the request needs hand-off"):
            send(quick(Access(READER, tls)), (0, at, far("b")))
        assert queue.state("b", "k") == "unknown"


def test_no_secret_of_it_can_be_seen__D12(tmp_path: Path) -> None:
    tls = ClientTls.read(authority(tmp_path).cert, *authority(tmp_path, "own"))
    for shown in (repr(Access(TOKEN, tls)), repr(quick(Access(TOKEN, tls))), repr(HandOff(["a:1"], TOKEN, tls))):
        assert "PRIVATE KEY" not in shown
        assert TOKEN.decode() not in shown


def test_a_port_that_is_none_of_a_tickwheel_is_told_as_that__S3() -> None:
    with answering(lambda _number, _over: True) as at:
        client = ACCESS.connect(at, 5)
        with pytest.raises(NotTaken, match="501, by something that is no tickwheel serve"):
            client.marks()
        asked = Deliverers([at], ACCESS)
        assert not asked.ask()
        asked.close()


def test_a_connection_is_kept_and_made_anew_where_the_peer_has_closed_it__S3(tmp_path: Path) -> None:
    with deliverer(tmp_path / "s.db") as (_, at):
        client = ACCESS.connect(at, 5)
        assert client.marks()["store_id"] == STORES[at]
        opened = client._connection
        assert opened is not None
        assert client.marks()["store_id"] == STORES[at]
        assert client._connection is opened
        assert opened.sock is not None
        opened.sock.shutdown(socket.SHUT_RDWR)  # as after some idle seconds
        assert client.marks()["store_id"] == STORES[at]
        assert client._connection is not opened
        client.close()


def test_a_row_that_no_deliverer_can_take_is_a_dead_letter__D2(tmp_path: Path) -> None:
    with deliverer(tmp_path / "s.db") as (queue, at):
        broken = row(message("a", FAR_MS, payload=b"no json"))
        assert send(quick(), (0, at, [broken]))[0]["sent"] == 1
        assert (queue.summary.accepted, queue.summary.dead_letters) == (0, 1)


def test_a_deliverer_that_was_restored_from_a_backup_is_another_store__S4_D20(tmp_path: Path) -> None:
    """What came since is not in it: with the id of before that would be lost."""
    store, backup = tmp_path / "s.db", tmp_path / "b.db"
    with deliverer(store) as (queue, at):
        backup_store(store, backup)
        assert send(quick(), (0, at, [row(message("since", FAR_MS))]))[0]["sent"] == 1
        before = queue._running.engine.history_id
    restore_store(backup, store, force=True)
    with deliverer(store) as (queue, at):
        assert queue._running.engine.history_id not in (before, "")
        assert queue.state("since") == "unknown"
        with closing(Deliverers([at], ACCESS)) as asked:
            [taker] = asked.ask()
        assert taker.store_id == queue._running.engine.history_id


# --- The driver's side ---------------------------------------------------------


def test_all_are_asked_and_one_that_does_not_answer_is_named_with_what_waits_for_it__S3(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with silent() as mute, deliverer(tmp_path / "s.db") as (queue, at):
        known = Deliverers([mute, at], ACCESS)
        [taker] = known.ask()
        assert (taker.address, taker.store_id, len(taker.marks)) == (at, queue._running.engine.history_id, PARTITIONS)
        began_s = time.monotonic()
        for _ in range(50):
            assert len(known.ask()) == 1
        assert time.monotonic() - began_s < 50 * 0.9, "one that is known to be down is not waited for each time"
        with caplog.at_level(logging.WARNING):
            known.say_who_is_waited_for({mute: 42, at: 3})
            known.say_who_is_waited_for({mute: 42, at: 3})
        [said] = caplog.messages
        assert f"the deliverer {mute} does not answer for" in said
        assert "messages of its keys that wait for it, and no others: 42" in said
        known.close()


def test_one_that_no_shard_belongs_to_any_more_is_not_asked__S5(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with silent() as mute, deliverer(tmp_path / "s.db") as (_, at):
        known = Deliverers([at, mute], ACCESS)
        known.ask()
        known.know({at})
        with caplog.at_level(logging.WARNING):
            assert [taker.address for taker in known.ask()] == [at]
            known.say_who_is_waited_for({})
        assert (known.up, caplog.messages) == ({at: True}, [])
        known.close()


def test_one_that_comes_back_is_taken_up_again__S3(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with deliverer(tmp_path / "s.db") as (_, at):
        known = Deliverers([at], ACCESS)
        before = known.ask()
    assert not known.ask()
    with deliverer(tmp_path / "s.db", int(at.rpartition(":")[2])), caplog.at_level(logging.WARNING):
        while not (after := known.ask()):
            time.sleep(0.05)
        assert [it.store_id for it in after] == [it.store_id for it in before]
    assert "answers again after" in caplog.text
    known.close()


def test_a_clock_that_is_off_is_told_once_and_counted_with__S4(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_ns = time.time_ns
    with deliverer(tmp_path / "s.db") as (_, at):
        known = Deliverers([at], ACCESS)
        assert abs(known.ask()[0].ahead_ms) < 900
        monkeypatch.setattr(time, "time_ns", lambda: now_ns() - 30_000_000_000)
        with caplog.at_level(logging.WARNING):
            assert 29_000 < known.ask()[0].ahead_ms < 31_000
            known.ask()
        [said] = caplog.messages
        assert "s ahead of this machine's: set both" in said
        known.close()


def test_a_wrong_token_is_an_error_at_the_start_and_later_a_deliverer_that_is_down__S3_D12(tmp_path: Path) -> None:
    with deliverer(tmp_path / "s.db") as (_, at):
        refused = pytest.raises(DeliveryFailed, match=f"the deliverer {at} refuses: 401: the token is wrong")
        with closing(Deliverers([at], Access(b"another token here"))) as wrong, refused:
            wrong.ask()
        known = Deliverers([at], ACCESS)
        assert known.ask()
    with deliverer(tmp_path / "s.db", int(at.rpartition(":")[2]), b"it was changed") as (_, at):
        assert not known.ask()
        time.sleep(0.1)
        assert not known.ask()
    known.close()


def test_slow_deliverers_do_not_add_up__S3() -> None:
    are_all_asked = threading.Barrier(3)

    def slowly(number: int, _over: threading.Event) -> bool:
        if number == 0:
            are_all_asked.wait(30)  # each answers once all were asked
        return True

    with answering(slowly) as a, answering(slowly) as b, answering(slowly) as c:
        told = send(Send(ACCESS, silence_s=60.0, within_s=90.0), *((n, at, far("m")) for n, at in enumerate((a, b, c))))
    assert [(it["error"], it["sent"]) for it in told] == [(None, 1)] * 3


def test_a_slow_deliverer_is_given_up_when_its_time_is_over__S3() -> None:
    def slowly(_number: int, over: threading.Event) -> bool:
        return not over.wait(0.8)

    with answering(slowly) as at:
        [told] = send(quick(), (0, at, far(*(f"m{n}" for n in range(30_000)))))
    assert told["error"]
    assert told["sent"] < 30_000


class Aborted:
    """In the place of a data frame: its second job is aborted after tasks have sent."""

    def __init__(self) -> None:
        self.jobs = 0
        self.failed: list[frozenset[int]] = []
        self.sparkSession = self.sparkContext = self
        self.schema = NEAR

    def setLocalProperty(self, _name: str, text: str) -> None:
        self.failed.append(Orders.decode(text).failed)

    def mapInArrow(self, *_: Any) -> "Aborted":
        return self

    def collect(self) -> list[Any]:
        self.jobs += 1
        if self.jobs == 2:
            raise RuntimeError("the job was aborted")
        return []


def test_one_that_is_used_again_knows_that_its_last_micro_batch_failed__S3(tmp_path: Path) -> None:
    with deliverer(tmp_path / "s.db") as (_, at):
        hand_off, near = HandOff([at], TOKEN), Aborted()
        hand_off(near, 0)
        hand_off._failed = frozenset()  # all have told that they were taken
        with pytest.raises(RuntimeError, match="aborted"):
            hand_off(near, 1)
        hand_off(near, 1)
        hand_off.close()
    assert near.failed[1:] == [frozenset(), frozenset(range(PARTITIONS))]


@pytest.mark.parametrize(
    ("deliverers", "lost", "why"),
    [
        (["nohost"], [], "'nohost' is no deliverer: write HOST:PORT"),
        (["a:0"], [], "no deliverer"),
        (["a:99999"], [], "no deliverer"),
        (["http://a:1"], [], "no deliverer"),
        (["a:1"], ["b"], "'b' is no deliverer"),
        (["a:1", "b:2"], ["b:2"], "b:2 is a deliverer and lost"),
        ([], [], "there is no deliverer"),
    ],
)
def test_addresses_that_can_not_be_are_refused__D2(deliverers: list[str], lost: list[str], why: str) -> None:
    with pytest.raises(WrongUsage, match=why):
        HandOff(deliverers, lost=lost)


def test_one_that_is_named_twice_counts_once_and_addresses_may_be_of_any_kind__S5() -> None:
    given = ["a:1", "a:1", "127.0.0.1:7400", "[::1]:7400", "tickwheel-0.tickwheel:65535"]
    assert set(HandOff(given)._assigned) == set(given)


def test_another_store_at_an_address_is_told__S4(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with deliverer(tmp_path / "s.db") as (_, at):
        known = Deliverers([at], ACCESS)
        assert known.ask()
    assert not known.ask()
    with deliverer(tmp_path / "other.db", int(at.rpartition(":")[2])), caplog.at_level(logging.WARNING):
        while not known.ask():
            time.sleep(0.05)
    assert f"{at} has another store than before" in caplog.text
    known.close()


@pytest.mark.parametrize("count", [1, 2, 3, 7, 64, 100])
def test_shards_are_spread_evenly_and_a_changed_list_moves_few__S5(count: int) -> None:
    some = [f"host{n}:7400" for n in range(count)]
    counts = Counter(assign(some))
    assert max(counts.values()) <= -(-PARTITIONS // count)
    assert assign(some) == assign(random.Random(1).sample(some, count)), "the order of the list does not matter"
    longer = assign([*some, "another:7400"])
    moved = sum(a != b for a, b in zip(assign(some), longer, strict=True))
    assert moved <= PARTITIONS // 2 + 8


def test_the_thread_of_a_deliverer_that_was_given_up_ends__S3() -> None:
    before = {*threading.enumerate()}
    with silent() as mute:
        for number in (7, 7):  # the second is given up before it has sent anything
            send(replace(quick(), batch_id=number), (3, mute, far("a")))
    for left in {*threading.enumerate()} - before:
        left.join(20)
    assert not [left.name for left in {*threading.enumerate()} - before if left.name.startswith("send-to-")]


@pytest.mark.parametrize("body", [b"null", b"[1]", b"<html>", b'{"rows": 2}'])
def test_an_answer_that_is_none_of_a_tickwheel_is_not_taken_for_one__S3(body: bytes) -> None:
    with answering(lambda _number, _over: True, body) as at:
        client = ACCESS.connect(at, 5)
        with pytest.raises(NotTaken), closing(client):
            client.hand_off([batch_of([row(message("a"))])], "store")
