"""Arrow IPC streams as bodies of `POST /messages`: an answer for each row, bad rows and streams, bounds (D11, D12)."""

import http.client
import json
import re
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from delivery.batches import batch, invalid_utf8, stream, to_arrow
from delivery.receipts import Told
from tickwheel._native import Records
from tickwheel.delivery import DeliveryFailed, StoreFailed
from tickwheel.delivery.model.entries import Answer
from tickwheel.delivery.model.message import Cancel, Message
from tickwheel.delivery.serve import arrow_bodies, bodies
from tickwheel.delivery.serve.application import REQUESTS
from tickwheel.delivery.serve.arrow_bodies import MOST_BYTES, MOST_ROWS, SOME
from tickwheel.delivery.serve.threads import Threads
from tickwheel.delivery.serve.tokens import Right, Tokens

from .conftest import ARROW, TOKEN, Reply, Room, Served

pytestmark = pytest.mark.timeout(60)
FAR_MS = 4_000_000_000_000
AUTHORIZED = ARROW | {"authorization": "Bearer " + TOKEN.decode()}
A_STREAM = "an Arrow IPC stream, not compressed"


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Served]:
    served = Served(tmp_path)
    yield served
    served.close()


def post(served: Served, body: object, query: str = "", headers: dict[str, str] = ARROW) -> Reply:
    return served.ask("POST", f"/messages{query}", body, headers=headers)


def answers(reply: Reply) -> list[dict[str, Any]]:
    """Of each row, in order."""
    assert (reply.status, reply.headers["content-type"]) == (200, "application/x-ndjson"), reply
    found = [json.loads(line) for line in reply.body.splitlines()]
    assert [each["line"] for each in found] == [*range(1, len(found) + 1)]
    return found


def words(reply: Reply) -> list[object]:
    """What each answer says: a state, or the status of an error."""
    return [each.get("state", each["status"]) for each in answers(reply)]


def short(*rows: tuple[Any, Any], **more: Any) -> Any:
    ids, due = pa.array([row[0] for row in rows], pa.string()), pa.array([row[1] for row in rows], pa.int64())
    return batch(id=ids, due=due, **more)


def far(*ids: str, **more: Any) -> Any:
    return short(*((id_, FAR_MS) for id_ in ids), **more)


def message(id_: str, payload: Any = b"\x00", due_ms: int = FAR_MS) -> Message:
    return Message(id_, None, due_ms, payload)


def parts(data: bytes, size: int) -> Iterator[bytes]:
    """As chunks of a body whose length is not told."""
    return (data[place : place + size] for place in range(0, len(data), size))


def bodies_of(served: Served) -> bodies.Bodies:
    assert served.ports._bodies is not None
    return served.ports._bodies


def state(served: Served, id_: str) -> str:
    found: str = served.ask("GET", f"/messages/{id_}").body["state"]
    return found


# --- Answers ------------------------------------------------------------------------


def test_every_row_is_answered_in_order__D11(served: Served) -> None:
    given = [message("f1"), message("f2"), message("f1"), message("f1", b"\x01"), Cancel("f2", None)]
    found = answers(post(served, stream(to_arrow(given))))
    assert [each["status"] for each in found] == [201, 201, 200, 409, 200]
    assert [each.get("state") for each in found] == ["accepted", "accepted", "duplicate", None, "cancelled"]
    assert found[3]["reason"] == "this key and id were accepted before with other content"
    assert found[3]["allowed"] == "the same content again, or another id"
    later = to_arrow([Cancel("f2", None), Cancel("f3", None), message("f3"), message("f2")])
    assert words(post(served, stream(later))) == ["cancelled", "unknown", "cancelled", "cancelled"]


def test_what_came_in_a_stream_is_delivered_as_it_was_sent__D11(served: Served) -> None:
    sent = Message("flown", "k", 86_400_000, b"\xff\x00")
    assert words(post(served, stream(to_arrow([sent])))) == ["accepted"]
    assert served.arrived.get(timeout=10).message == sent


@pytest.mark.parametrize("size", [1, 7, 64, 1000, 1 << 20])
def test_a_stream_may_have_many_batches_and_come_in_parts_of_any_size__D11(size: int, served: Served) -> None:
    first = far(*(f"{size}.{n}" for n in range(20)))
    bad = short((f"{size}.20", FAR_MS), (None, FAR_MS), ("x", 5), (f"{size}.20", FAR_MS))
    given = stream(first, first.slice(0, 0), bad, first.slice(0, 3))
    found = post(served, parts(given, size), headers={**ARROW, "content-type": f" {ARROW['content-type'].upper()}; x"})
    assert words(found) == ["accepted"] * 21 + [400, 400, "duplicate"] + ["duplicate"] * 3


def test_the_answer_comes_after_the_last_commit__D11(fresh: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    tickets: list[Callable[[Any], object]] = []
    is_there = threading.Semaphore(0)

    def submit(_: object, told: Callable[[Any], object]) -> None:
        tickets.append(told)
        is_there.release()

    monkeypatch.setattr(fresh.running, "try_submit", submit)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(post, fresh, stream(far("a", "b"), far("c")))
        for _ in range(2):
            assert is_there.acquire(timeout=20)
        tickets[1](Told(Answer.ACCEPTED))
        assert fresh.ask("GET", "/healthz").status == 200
        assert not asked.done(), "the first batch is not on disk"
        tickets[0](Told(Answer.ACCEPTED, Answer.DUPLICATE))
        assert words(asked.result(20)) == ["accepted", "duplicate", "accepted"]


def test_a_batch_is_taken_while_the_next_one_is_on_its_way__D8(fresh: Served) -> None:
    given = stream(far("ahead 0"), far("ahead 1"))

    def body() -> Iterator[bytes]:
        yield given[:-30]
        while state(fresh, "ahead%200") == "unknown":
            pass
        yield given[-30:]

    assert words(post(fresh, body())) == ["accepted", "accepted"]
    assert state(fresh, "ahead%201") == "waiting"


def test_bad_rows_are_answered_with_the_reason_and_end_nothing__D2(served: Served) -> None:
    given = short(("b1", FAR_MS), (None, FAR_MS), ("b2", None), ("", 1), ("b3", FAR_MS), ("b4", 5))
    found = answers(post(served, stream(given, short((None, None)), far("b1"))))
    assert [each["status"] for each in found] == [201, 400, 400, 400, 201, 400, 400, 200]
    assert (found[1]["reason"], found[1]["allowed"]) == ("id is missing", "id: text, not empty")
    assert (found[2]["reason"], found[2]["allowed"]) == ("due is missing", "either due or delay_ms")
    assert "due is 5, which looks like seconds" in found[5]["reason"]
    assert found[7]["state"] == "duplicate"


def test_types_that_can_not_be_read_are_faults_of_their_rows__D2(served: Served) -> None:
    far_ms = [FAR_MS]
    rows = {
        "id is not text": batch(id=[7], due=far_ms),
        "due has no zone: '2096-10-02T07:06:40.000'": batch(id=["t1"], due=pa.array(far_ms, pa.timestamp("ms"))),
        "delay_ms is not a number in range": batch(id=["t2"], delay_ms=["5"]),
        "payload can't be JSON: nan is no number of JSON": batch(id=["t3"], due=far_ms, payload=[float("nan")]),
    }
    for reason, given in rows.items():
        [found] = answers(post(served, stream(given)))
        assert (found["status"], found["reason"][:20]) == (400, reason[:20]), found


@pytest.mark.parametrize(
    "schema",
    [
        pa.schema([("due", pa.timestamp("us", tz="UTC")), ("id", pa.large_string()), ("payload", pa.binary())]),
        pa.schema([("id", pa.dictionary(pa.int32(), pa.string())), ("due", pa.string()), ("key", pa.null())]),
        pa.schema([("id", pa.string_view()), ("delay_ms", pa.int32()), ("payload", pa.string())]),
        pa.schema([("id", pa.string()), ("due", pa.int64()), ("payload", pa.struct([("a", pa.list_(pa.int8()))]))]),
    ],
    ids=["times", "dictionaries", "views", "structs"],
)
def test_types_that_say_the_same_are_taken__D11(schema: Any, served: Served) -> None:
    values = {"id": f"kind {schema.names}", "payload": None, "key": None, "delay_ms": 1_000_000, "due": FAR_MS}
    if pa.types.is_string(schema.field(1).type):
        values["due"] = str(FAR_MS)
    elif pa.types.is_timestamp(schema.field(0).type):
        values["due"] = FAR_MS * 1000
    given = pa.RecordBatch.from_pylist([{name: values[name] for name in schema.names}], schema=schema)
    assert words(post(served, stream(given))) == ["accepted"]


def test_columns_that_the_schema_does_not_know_are_the_payload__D1(served: Served) -> None:
    assert words(post(served, stream(far("odd", priority=[3], tags=[["a", "b"]])))) == ["accepted"]
    assert served.ask("GET", "/messages/odd").body["payload"] == {"priority": 3, "tags": ["a", "b"]}


def test_messages_that_come_again_and_other_due_times_are_rows_too__D19(served: Served) -> None:
    rows = [
        {"id": "beat", "every": 60_000, "op": None, "due": None},
        {"id": "once", "every": None, "op": None, "due": FAR_MS},
        {"id": "once", "every": None, "op": "reschedule", "due": FAR_MS + 1},
    ]
    assert words(post(served, stream(pa.RecordBatch.from_pylist(rows)))) == ["accepted", "accepted", "rescheduled"]
    assert state(served, "beat") == "recurring"


def test_the_query_says_that_messages_take_the_place_of_others__D16(served: Served) -> None:
    assert words(post(served, stream(far("r1", "r2")), "?replace=true")) == ["accepted", "accepted"]
    later = stream(short(("r1", FAR_MS + 5)))
    assert words(post(served, later)) == [409]
    assert words(post(served, later, "?replace=true")) == ["replaced"]
    assert served.ask("GET", "/messages/r1").body["due"] == "2096-10-02T07:06:40.005Z"
    put_off = stream(batch(id=["r3"], delay_ms=[900_000.0]))
    assert words(post(served, put_off, "?replace=true&at_latest_ms=1000000")) == ["accepted"]
    first = served.ask("GET", "/messages/r3").body["due"]
    sooner = stream(short(("r3", FAR_MS)))
    assert words(post(served, sooner, "?replace=true&at_latest_ms=1000000")) == ["replaced"]
    assert first < served.ask("GET", "/messages/r3").body["due"] < "2096", "at the latest so long after the first"
    recurring = answers(post(served, stream(batch(id=["r4"], every=[60_000])), "?replace=true&at_latest_ms=5"))
    assert recurring[0]["reason"] == "a message that recurs can't be debounced"
    refused = post(served, stream(far("r5")), "?replace=yes")
    assert (refused.status, refused.body["reason"]) == (400, "the address asks for 'replace=yes'")
    assert state(served, "r5") == "unknown"


def test_the_traceparent_of_the_request_is_that_of_rows_without_one__D15(served: Served) -> None:
    of_request, of_row = (f"00-{digit * 32}-{digit * 16}-01" for digit in "ab")
    given = stream(far("t1", "t2", traceparent=[None, of_row]))
    assert words(post(served, given, headers=ARROW | {"traceparent": of_request})) == ["accepted"] * 2
    found = [served.ask("GET", f"/messages/{id_}").body["traceparent"] for id_ in ("t1", "t2")]
    assert found == [of_request, of_row]
    assert words(post(served, stream(far("t3")), headers=ARROW | {"traceparent": "none"})) == ["accepted"]
    assert served.ask("GET", "/messages/t3").body["traceparent"] is None


# --- What is refused ----------------------------------------------------------------


def twice(name: str) -> Any:
    return pa.RecordBatch.from_arrays([pa.array(["a"]), pa.array(["b"]), pa.array([FAR_MS])], [name, name, "due"])


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (batch(due=[FAR_MS]), "the schema has no column id"),
        (batch(id=["s"], payload=[b"x"]), "the schema has no column due"),
        (twice("id"), "the schema names a column twice"),
        (twice("other"), "the schema names a column twice"),
    ],
)
def test_another_schema_is_refused_with_the_right_one__D2(given: Any, reason: str, served: Served) -> None:
    reply = post(served, stream(given))
    assert (reply.status, reply.body["reason"]) == (400, reason)
    assert reply.body["allowed"].startswith("the columns id; due, delay_ms, every, cron or op")


def test_a_stream_that_can_not_be_read_is_refused_as_a_whole__D2(served: Served) -> None:
    given = stream(far("w1"))
    out = pa.BufferOutputStream()
    with pa.ipc.new_file(out, far("w1").schema) as writer:
        writer.write_batch(far("w1"))
    wrong = {
        "it has no schema": b"",
        "it ends in the middle": given[:-20],
        "Unexpected EOS": given + given,
        "the Arrow stream can't be read: it ends": b"nonsense" * 100,
        "the Arrow stream can't be read": out.getvalue().to_pybytes(),
        "the stream has no rows": stream(far("w1").slice(0, 0)),
    }
    for reason, body in wrong.items():
        reply = post(served, body)
        assert reply.status == 400, reply
        assert reason in reply.body["reason"]
        assert reply.body["allowed"] in (A_STREAM, "1 to 10,000 rows")
    assert post(served, given[: len(given) - 8]).status == 200, "the mark of the end may be left out"


def test_text_that_is_not_utf_8_ends_the_stream__D2(served: Served) -> None:
    """As arrays that are not valid do. In a payload such bytes are allowed as `payload_base64`."""
    reply = post(served, stream(batch(id=invalid_utf8(b"\xff\xfe"), due=[FAR_MS])))
    assert (reply.status, reply.body["allowed"]) == (400, A_STREAM)
    assert "Invalid UTF8 sequence" in reply.body["reason"]


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_a_stream_that_is_compressed_is_refused__D8_D12(codec: str, served: Served) -> None:
    """What is in memory is what has come, whatever is in it."""
    given = batch(id=["z"], due=[FAR_MS], payload=[b"x" * 10_000])
    reply = post(served, stream(given, compression=codec))
    assert (reply.status, reply.body["allowed"]) == (400, A_STREAM)
    assert codec in reply.body["reason"]
    assert state(served, "z") == "unknown"


def test_a_stream_that_is_cut_says_that_some_may_have_been_accepted__D11(served: Served) -> None:
    given = stream(far("c1"), far("c2"))
    reply = post(served, given[:-30])
    assert (reply.status, reply.body["allowed"]) == (400, A_STREAM)
    assert reply.body["reason"].endswith(f"; {SOME}")
    assert (state(served, "c1"), state(served, "c2")) == ("waiting", "unknown")
    assert words(post(served, given)) == ["duplicate", "accepted"], "to send it again does no harm"


def test_a_payload_is_bounded_by_the_option__D12(guarded: Served) -> None:
    given = stream(to_arrow([message("p1", b"\xff" * 1000), message("p2", b"\xff" * 1001)]))
    first, second = answers(post(guarded, given, headers=AUTHORIZED))
    assert first["state"] == "accepted"
    assert second == {
        "line": 2,
        "status": 413,
        "reason": "the payload has 1,001 bytes",
        "allowed": "at most 1,000 bytes",
    }


def test_a_request_has_so_many_rows_at_most__D12(fresh: Served) -> None:
    ids = pa.array([f"many {n}" if n % 7 else None for n in range(MOST_ROWS)])
    given = batch(id=ids, due=pa.array([FAR_MS] * MOST_ROWS))
    found = words(post(fresh, stream(given)))
    assert found == ["accepted" if n % 7 else 400 for n in range(MOST_ROWS)]
    refused = {"reason": "the stream has too many rows", "allowed": "at most 10,000 in a request"}
    assert post(fresh, stream(far("x", *["y"] * MOST_ROWS)))[:2] == (413, refused)
    assert state(fresh, "x") == "unknown", "nothing of a batch that is too large is taken"
    assert post(fresh, stream(given.slice(0, MOST_ROWS - 1), far("x", "y")))[:2] == (413, refused), "in all of them"


@pytest.mark.parametrize("lengths", [[1 << 40], [(1 << 63) - 1], [(1 << 63) - 1, (1 << 63) - 1, 10]])
def test_rows_that_take_no_room_are_counted_too__D8_D12(lengths: list[int], served: Served) -> None:
    """A column of nulls has no bytes, however long it is; and the sum of lengths may be more than a number holds."""
    given = [pa.Array.from_buffers(pa.null(), length, [None]) for length in lengths]
    reply = post(served, stream(*(pa.RecordBatch.from_arrays([it, it], ["id", "due"]) for it in given)))
    assert (reply.status, reply.body["allowed"]) == (413, "at most 10,000 in a request")


@pytest.mark.parametrize("told", [True, False])
def test_a_body_has_so_many_bytes_at_most__D8_D12(told: bool, fresh: Served) -> None:
    given = stream(far("large", payload=[b" " * MOST_BYTES]))
    reply = post(fresh, given if told else parts(given, 1 << 20))
    assert reply[:2] == (413, {"reason": "the body is too large", "allowed": "at most 67,108,864 bytes"})
    assert reply.headers["connection"] == "close"
    assert state(fresh, "large") == "unknown"
    [found] = answers(post(fresh, stream(far("large", payload=[b"x" * (40 << 20)]))))
    assert found["status"] == 413, "a payload that is too large is the fault of its row"


@pytest.mark.parametrize("token", [None, b"not-for-other-eyeS", b"", b"x" * 5000])
def test_without_the_token_no_stream_is_read__D12(token: bytes | None, guarded: Served) -> None:
    header = {} if token is None else {"authorization": "Bearer " + token.decode()}
    reply = post(guarded, stream(far("flew in")), headers=ARROW | header)
    assert (reply.status, reply.headers["www-authenticate"]) == (401, "Bearer")
    assert TOKEN.decode() not in str(reply.body)
    assert guarded.ask("GET", "/messages/flew%20in", headers=AUTHORIZED).status == 404


def test_a_token_without_the_right_to_produce_sends_no_stream__D12(tmp_path: Path) -> None:
    served = Served(tmp_path, tokens=Tokens({TOKEN: Right.READ | Right.CONTROL | Right.HAND_OFF}))
    try:
        reply = post(served, stream(far("x")), headers=AUTHORIZED)
        assert (reply.status, reply.body["reason"]) == (
            403,
            "this token may control,read,hand-off, and the request needs produce",
        )
        assert served.ask("GET", "/messages/x", headers=AUTHORIZED).status == 404
    finally:
        served.close()


@pytest.mark.parametrize("failure", [StoreFailed("the disk is full"), DeliveryFailed("the destination is gone")])
def test_once_delivery_has_failed_a_stream_is_answered_with_the_reason__D11(
    failure: DeliveryFailed, tmp_path: Path
) -> None:
    served = Served(tmp_path)
    try:
        assert words(post(served, stream(far("before")))) == ["accepted"]
        served.running.fail(failure)
        reply = post(served, stream(far("after")))
        assert reply[:2] == (
            503,
            {
                "reason": str(failure),
                "allowed": "the same request again, later: what was accepted answers duplicate",
            },
        )
    finally:
        with pytest.raises(type(failure)):
            served.close()


def test_a_commit_that_fails_is_answered_with_the_reason__D11(fresh: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    def submit(_: object, told: Callable[[Any], object]) -> None:
        told(StoreFailed("the disk is full"))

    monkeypatch.setattr(fresh.running, "try_submit", submit)
    reply = post(fresh, stream(far("a")))
    assert (reply.status, reply.body["reason"]) == (503, f"the disk is full; {SOME}")


def test_an_error_of_the_server_is_told_without_its_traceback__D12(
    fresh: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr(arrow_bodies, "_checked", fail)
    reply = post(fresh, stream(far("x")))
    assert (reply.status, reply.body["reason"]) == (500, "this server has an error, and its log says which")
    while "Traceback" not in caplog.text:
        pass  # it is logged after the answer
    assert fresh.ask("GET", "/healthz").status == 200


# --- Memory, slow ones, and many at a time ------------------------------------------


def peak_mib(function: Callable[[], object]) -> float:
    """By how much memory grows meanwhile, at most."""
    if not Path("/proc/self/clear_refs").exists():
        pytest.skip("only Linux tells the peak")

    def told(name: str) -> int:
        [found] = re.findall(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
        return int(found)

    Path("/proc/self/clear_refs").write_text("5")
    before = told("VmRSS")
    function()
    return (told("VmHWM") - before) / 1024


def shared(kind: str, rows: int, value: str) -> Any:
    """An array whose rows are all this value, which is there once."""
    if kind == "dictionary":
        return pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array([value]))
    if kind == "run":
        return pa.RunEndEncodedArray.from_arrays(pa.array([rows], pa.int32()), pa.array([value]))
    views = struct.pack("<i4sii", len(value), value[:4].encode(), 0, 0) * rows
    return pa.Array.from_buffers(pa.string_view(), rows, [None, pa.py_buffer(views), pa.py_buffer(value.encode())])


@pytest.mark.parametrize("kind", ["dictionary", "run", "view"])
def test_rows_that_share_a_large_value_are_accepted_in_bounded_memory__D8_D12(kind: str, fresh: Served) -> None:
    rows = 200
    given = stream(far(*(f"m{n}" for n in range(rows)), payload=shared(kind, rows, "x" * 1_000_000)))
    assert len(given) < 1 << 21
    replies: list[Reply] = []
    assert peak_mib(lambda: replies.append(post(fresh, given))) < 100, "they are 200 MB"
    assert words(replies[0]) == ["accepted"] * rows
    size = len(json.dumps(fresh.ask("GET", "/messages/m7").body["payload"]))
    assert size == 1_000_002


@pytest.mark.parametrize("kind", ["dictionary", "run", "view"])
def test_rows_that_share_a_value_that_is_too_large_are_refused_in_bounded_memory__D8_D12(
    kind: str, guarded: Served
) -> None:
    rows = 10_000
    given = stream(far(*(f"large {n}" for n in range(rows)), payload=shared(kind, rows, "x" * 100_000)))
    replies: list[Reply] = []
    assert peak_mib(lambda: replies.append(post(guarded, given, headers=AUTHORIZED))) < 150, "they are 1 GB"
    assert words(replies[0]) == [413] * rows


@pytest.mark.parametrize("kind", ["dictionaries", "views of lists"])
def test_a_row_that_is_small_in_arrow_and_endless_as_json_is_refused_in_bounded_memory__D8_D12(
    kind: str, served: Served
) -> None:
    if kind == "dictionaries":
        values = shared("dictionary", 1_000, "x" * 1_000_000)
        payload = pa.ListArray.from_arrays([0, len(values)], values)
    else:
        payload = pa.array([1] * 1_000, pa.int8())
        for rows in (1_000, 1_000, 1):
            places, sizes = pa.array([0] * rows, pa.int32()), pa.array([len(payload)] * rows, pa.int32())
            payload = pa.ListViewArray.from_arrays(places, sizes, payload)
    replies: list[Reply] = []
    assert peak_mib(lambda: replies.append(post(served, stream(far("endless", payload=payload))))) < 150
    [found] = answers(replies[0])
    assert found["status"] in (400, 413)


def test_a_dictionary_counts_as_a_body_until_its_stream_ends__D8(fresh: Served) -> None:
    """Its batches may be of any number and are each small, so only the dictionaries fill the room."""
    bodies_, room = bodies_of(fresh), Room(1 << 26)
    before = room.left
    bodies_._take_bytes = room.take
    seen: list[int] = []
    words_ = pa.DictionaryArray.from_arrays(pa.array([0], pa.int32()), pa.array(["x" * 900_000]))
    given = stream(far("a", payload=words_), far("b", payload=words_))

    def body() -> Iterator[bytes]:
        yield given[:-30]
        while state(fresh, "a") == "unknown":
            pass
        seen.append(before - room.left)
        yield given[-30:]

    found = words(post(fresh, body()))
    assert found == ["accepted"] * 2
    assert seen[0] > 900_000
    assert room.left == before


def test_a_stream_with_much_to_do_holds_up_no_other__D12(fresh: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []
    may_go_on, has_begun = threading.Event(), threading.Event()
    submit = fresh.running.try_submit

    def submit_later(given: Any, told: Any) -> Any:
        has_begun.set()
        if not may_go_on.is_set():
            return given
        taken.append(len(given))
        return submit(given, told)

    monkeypatch.setattr(fresh.running, "try_submit", submit_later)
    with ThreadPoolExecutor(2) as pool:
        long = pool.submit(post, fresh, stream(short(*[(None, None)] * 10_000)))
        assert has_begun.wait(20)
        other = pool.submit(post, fresh, stream(far("other")))
        while bodies_of(fresh)._on_their_way or fresh.ports._application._guarded._left > REQUESTS - 2:
            pass  # until what has come of the other one waits for its turn
        may_go_on.set()
        assert words(other.result(20)) == ["accepted"]
        assert words(long.result(20)) == [400] * 10_000
    assert taken.index(1) < len(taken) / 2, "each has its turn"


def test_of_all_streams_a_single_piece_waits_for_room_in_memory__D8(
    fresh: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    has_room, pieces = threading.Event(), []
    submit, call = fresh.running.try_submit, Threads.call

    async def counted(threads: Threads, function: Callable[[], object]) -> object:
        pieces.append(await call(threads, function))
        return pieces[-1]

    monkeypatch.setattr(fresh.running, "try_submit", lambda *given: submit(*given) if has_room.is_set() else given[0])
    monkeypatch.setattr(Threads, "call", counted)
    with ThreadPoolExecutor(3) as pool:
        asked = [pool.submit(post, fresh, stream(far(name))) for name in "abc"]
        while bodies_of(fresh)._on_their_way or fresh.ports._application._guarded._left > REQUESTS - 3 or not pieces:
            pass  # until all have come, and a piece of one is decoded
        assert fresh.ask("GET", "/livez").status == 200
        assert len(pieces) == 1
        has_room.set()
        assert [words(each.result(20)) for each in asked] == [["accepted"]] * 3


def test_a_stream_that_stalls_is_answered_408_and_holds_up_no_other__D12(
    fresh: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bodies, "_WITHIN_S", 0.3)
    given = stream(far("first"), far("second"))
    with closing(http.client.HTTPConnection("127.0.0.1", fresh.port, timeout=20)) as slow:
        slow.request("POST", "/messages", given[:-30], ARROW | {"content-length": str(len(given))})
        while state(fresh, "first") == "unknown":
            pass  # its first batch is taken as soon as it is there
        while bodies_of(fresh)._on_their_way:
            assert words(post(fresh, stream(far("beside")))) in (["accepted"], ["duplicate"])
        reply = slow.getresponse()
        assert (reply.status, reply.headers["connection"]) == (408, "close")
        assert json.loads(reply.read()) == {
            "reason": f"the body did not end in time; {SOME}",
            "allowed": "within 0.3 s",
        }
    assert (state(fresh, "first"), state(fresh, "second")) == ("waiting", "unknown")
    assert state(fresh, "beside") == "waiting"


def test_streams_at_the_same_time_get_each_their_own_answers__D11(served: Served) -> None:
    given = [stream(far(*(f"all {n % 10}.{k}" for k in range(30 + n % 10)))) for n in range(40)]
    with ThreadPoolExecutor(16) as pool:
        found = [words(reply) for reply in pool.map(lambda body: post(served, body), given)]
    assert [len(each) for each in found] == [30 + n % 10 for n in range(40)]
    assert sum(each.count("accepted") for each in found) == sum(30 + n for n in range(10))
    assert {word for each in found for word in each} == {"accepted", "duplicate"}


def test_a_body_that_the_server_holds_up_is_not_closed_for_those_that_say_nothing__D12(
    fresh: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    given, is_taken, has_room = stream(far("a"), far("b")), threading.Event(), threading.Event()
    submit = fresh.running.try_submit

    def later(*given: Any) -> Any:
        is_taken.set()
        return submit(*given) if has_room.is_set() else given[0]

    monkeypatch.setattr(fresh.running, "try_submit", later)
    with closing(http.client.HTTPConnection("127.0.0.1", fresh.port, timeout=20)) as connection:
        connection.putrequest("POST", "/messages")
        for name, value in (ARROW | {"content-length": str(len(given))}).items():
            connection.putheader(name, value)
        connection.endheaders()
        connection.send(given[:-100])
        assert is_taken.wait(20)
        with ExitStack() as mute:
            for _ in range(300):
                mute.enter_context(socket.create_connection(("127.0.0.1", fresh.port), timeout=20))
            assert fresh.ask("GET", "/livez").status == 200, "all of them were accepted before"
            has_room.set()
            connection.send(given[-100:])
            answer = connection.getresponse()
            assert (answer.status, answer.read().count(b'"accepted"')) == (200, 2)


def test_a_request_that_is_not_done_when_the_server_ends_is_told_and_leaves_no_traceback__D9_D13(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    served, is_taken, may_go_on = Served(tmp_path), threading.Event(), threading.Event()
    submit = served.running.try_submit

    def later(*given: Any) -> Any:
        is_taken.set()
        return submit(*given) if may_go_on.is_set() else given[0]

    monkeypatch.setattr(served.running, "try_submit", later)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(post, served, stream(far("a")))
        assert is_taken.wait(20)
        served.ports.close()
        reply = asked.result(20)
        may_go_on.set()
    served.running.close(5)
    assert (reply.status, reply.body["allowed"]) == (503, "the same request again, later")
    assert "Traceback" not in caplog.text
    assert "Exception in ASGI application" not in caplog.text


def test_rows_that_share_a_value_have_a_bound_for_all_their_messages__D8_D12(
    fresh: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrow_bodies, "MOST_DECODED_BYTES", 1 << 20)
    shared = pa.array([b"x" * 100_000]).dictionary_encode()
    rows = pa.DictionaryArray.from_arrays(pa.array([0] * 20, pa.int32()), shared.dictionary)
    given = pa.record_batch([[f"shared {n}" for n in range(20)], [FAR_MS] * 20, rows], names=["id", "due", "payload"])
    reply = post(fresh, stream(given))
    assert (reply.status, reply.body["allowed"]) == (413, "at most 1,048,576 bytes in a request")
    assert SOME not in reply.body["reason"], "it was the first piece"


def test_a_dictionary_that_is_extended_is_refused__D12(served: Served) -> None:
    out = pa.BufferOutputStream()
    words = [pa.array(names).dictionary_encode() for names in (["d1"], ["d1", "d2"])]
    options = pa.ipc.IpcWriteOptions(emit_dictionary_deltas=True)
    schema = pa.schema([("id", words[0].type), ("due", pa.int64())])
    with pa.ipc.new_stream(out, schema, options=options) as writer:
        for word in words:
            writer.write_batch(pa.record_batch([word, [FAR_MS] * len(word)], schema=schema))
    reply = post(served, out.getvalue().to_pybytes())
    assert reply.status == 400
    assert "it extends a dictionary" in reply.body["reason"]


def test_a_letter_without_a_record_is_listed__D2_D14(fresh: Served) -> None:
    fresh.running.submit(Records.bad("in", 1, "why", "what", b"")).result(20)
    [letter] = fresh.ask("GET", "/dead").body["letters"]
    assert (letter["reason"], letter["record"]) == ("why", "")
