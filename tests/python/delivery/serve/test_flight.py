"""Batches over Arrow Flight: answers row by row after the commit, bad rows, other schemas, the token (D11, D12, S3)."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import flight

from delivery.batches import to_arrow
from tickwheel.delivery import DeliveryFailed
from tickwheel.delivery.model.message import Cancel, Message
from tickwheel.delivery.read.arrow import MESSAGE_SCHEMA
from tickwheel.delivery.serve import flight as port
from tickwheel.delivery.serve.flight import MAX_BYTES, MAX_ROWS
from tickwheel.delivery.serve.tokens import Right, Tokens

from .conftest import TOKEN, Served

pytestmark = pytest.mark.timeout(30)
FAR_MS = 4_000_000_000_000
SHORT = pa.schema([("id", pa.string()), ("due", pa.int64())])


@contextmanager
def exchange(served: Served, schema: Any = MESSAGE_SCHEMA, token: bytes | None = None) -> Iterator[tuple[Any, Any]]:
    """A stream to write batches to, and one to read answers from."""
    options = flight.FlightCallOptions(timeout=20, headers=[(b"authorization", b"Bearer " + token)] if token else [])
    with flight.connect(f"grpc://127.0.0.1:{served.flight_port}") as client:
        writer, reader = client.do_exchange(flight.FlightDescriptor.for_path("messages"), options)
        writer.begin(schema)
        try:
            yield writer, reader
        finally:
            with suppress(pa.ArrowException):  # the test has seen it already
                writer.close()


def send(served: Served, batch: Any, token: bytes | None = None) -> list[tuple[str, str | None]]:
    """One batch on a stream of its own; an error may appear at any step."""
    with exchange(served, batch.schema, token) as (writer, reader):
        writer.write_batch(batch)
        return answers(reader)


def answers(reader: Any) -> list[tuple[str, str | None]]:
    batch = reader.read_chunk().data
    return [*zip(*(column.to_pylist() for column in batch.columns), strict=True)]


def short(*rows: tuple[Any, Any]) -> Any:
    return pa.record_batch([[row[0] for row in rows], [row[1] for row in rows]], schema=SHORT)


def message(id_: str, payload: Any = b"\x00", due_ms: int = FAR_MS) -> Message:
    return Message(id_, None, due_ms, payload)


def test_every_batch_is_answered_row_by_row_in_order__S3(served: Served) -> None:
    with exchange(served) as (writer, reader):
        writer.write_batch(
            to_arrow([message("f1"), message("f2"), message("f1"), message("f1", b"\x01"), Cancel("f2", None)])
        )
        found = answers(reader)
        assert [answer for answer, _ in found] == ["accepted", "accepted", "duplicate", "conflict", "cancelled"]
        assert [place for place, (_, reason) in enumerate(found) if reason] == [3]
        assert found[3][1] == (
            "this key and id were accepted before with other content (allowed: the same content again, or another id)"
        )
        writer.write_batch(to_arrow([Cancel("f2", None), Cancel("f3", None), message("f3"), message("f2")]))
        assert answers(reader) == [("cancelled", None), ("unknown", None), ("cancelled", None), ("cancelled", None)]


def test_what_came_by_flight_is_delivered_as_it_was_sent__D11(served: Served) -> None:
    sent = Message("flown", "k", 86_400_000, b"\xff\x00")
    with exchange(served) as (writer, reader):
        writer.write_batch(to_arrow([sent]))
        assert answers(reader) == [("accepted", None)]
    assert served.arrived.get(timeout=10).message == sent


def test_an_answer_comes_after_the_commit__D11(served: Served) -> None:
    with exchange(served, SHORT) as (writer, reader):
        writer.write_batch(short(("committed", FAR_MS)))
        assert answers(reader) == [("accepted", None)]
        assert served.ask("GET", "/messages/committed").body["state"] == "waiting"


def test_bad_rows_are_answered_with_the_reason_and_end_nothing__D2(served: Served) -> None:
    with exchange(served, SHORT) as (writer, reader):
        writer.write_batch(short(("b1", FAR_MS), (None, FAR_MS), ("b2", None), ("", 1), ("b3", FAR_MS), ("b4", 5)))
        found = answers(reader)
        assert [answer for answer, _ in found] == ["accepted", *["bad record"] * 3, "accepted", "bad record"]
        assert "due is 5, which looks like seconds" in str(found[5][1])
        assert found[1][1] == "id is missing (allowed: id: text, not empty)"
        assert found[2][1] == "due is missing (allowed: either due or delay_ms)"
        writer.write_batch(short((None, None)))
        assert [answer for answer, _ in answers(reader)] == ["bad record"]
        writer.write_batch(short(("b1", FAR_MS)))
        assert answers(reader) == [("duplicate", None)]


def test_a_payload_is_bounded_by_the_option__D12(guarded: Served) -> None:
    with exchange(guarded, token=TOKEN) as (writer, reader):
        writer.write_batch(to_arrow([message("p1", b"\xff" * 1000), message("p2", b"\xff" * 1001)]))
        assert answers(reader) == [
            ("accepted", None),
            ("bad record", "the payload has 1,001 bytes (allowed: at most 1,000 bytes)"),
        ]


def test_a_batch_may_have_no_rows_or_thousands__S3(served: Served) -> None:
    with exchange(served, SHORT) as (writer, reader):
        writer.write_batch(short())
        assert answers(reader) == []
        rows = [(f"many {n}" if n % 7 else None, FAR_MS) for n in range(MAX_ROWS)]
        writer.write_batch(short(*rows))
        assert [answer for answer, _ in answers(reader)] == [
            "accepted" if n % 7 else "bad record" for n in range(MAX_ROWS)
        ]


def test_several_batches_may_be_on_their_way__S3(served: Served) -> None:
    with exchange(served, SHORT) as (writer, reader):
        for n in range(5):
            writer.write_batch(short((f"ahead {n}", FAR_MS), (f"ahead {n - 1}", FAR_MS)))
        found = [[answer for answer, _ in answers(reader)] for _ in range(5)]
    assert found == [["accepted", "accepted"], *[["accepted", "duplicate"]] * 4]


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        (pa.schema([("due", pa.int64())]), "the schema has no column id"),
        (pa.schema([("id", pa.string()), ("payload", pa.binary())]), "the schema has no column due"),
        (pa.schema([("id", pa.string()), ("priority", pa.int64())]), "the schema has a column 'priority'"),
        (pa.schema([("id", pa.int64())]), "the column id is of type int64"),
        (pa.schema([("id", pa.string()), ("due", pa.timestamp("ms"))]), "the column due is of type timestamp[ms]"),
        (pa.schema([("id", pa.string()), ("delay_ms", pa.string())]), "the column delay_ms is of type string"),
        (pa.schema([("id", pa.string()), ("id", pa.string())]), "the schema names a column twice"),
    ],
)
def test_another_schema_is_refused_with_the_right_one__S3(schema: Any, problem: str, served: Served) -> None:
    with exchange(served, schema) as (_, reader), pytest.raises(flight.FlightServerError) as refused:
        reader.read_chunk()
    assert "Traceback" not in str(refused.value)
    assert f"{problem}: it may have id string, key string, due timestamp[ms, tz=UTC], delay_ms double" in str(
        refused.value
    )


@pytest.mark.parametrize(
    "schema",
    [
        pa.schema([("due", pa.timestamp("us", tz="UTC")), ("id", pa.large_string()), ("payload", pa.binary())]),
        pa.schema([("id", pa.dictionary(pa.int32(), pa.string())), ("due", pa.string()), ("key", pa.null())]),
        pa.schema([("id", pa.string_view()), ("delay_ms", pa.int32()), ("payload", pa.string())]),
    ],
)
def test_types_that_say_the_same_are_taken__S3(schema: Any, served: Served) -> None:
    with exchange(served, schema) as (writer, reader):
        writer.write_batch(pa.RecordBatch.from_pylist([], schema=schema))
        assert answers(reader) == []


def test_a_batch_that_is_too_large_is_refused__D12(served: Served) -> None:
    with pytest.raises(flight.FlightServerError, match=r"10,001 rows .* it may have 10,000"):
        send(served, short(*[("x", 1)] * (MAX_ROWS + 1)))
    schema = pa.schema([("id", pa.string()), ("due", pa.int64()), ("payload", pa.binary())])
    with pytest.raises(flight.FlightServerError, match="send smaller ones"):
        send(served, pa.record_batch([["x"], [FAR_MS], [b" " * MAX_BYTES]], schema=schema))
    assert served.ask("GET", "/messages/x").status == 404


@pytest.mark.parametrize("token", [None, b"not-for-other-eyeS", b"", b"x" * 5000])
def test_without_the_token_no_stream_is_opened__D12(token: bytes | None, guarded: Served) -> None:
    with pytest.raises(flight.FlightUnauthenticatedError, match="authorization: Bearer TOKEN") as refused:
        send(guarded, short(("flew in", 1)), token)
    assert TOKEN.decode() not in str(refused.value)
    found = guarded.ask("GET", "/messages/flew%20in", headers={"authorization": "Bearer " + TOKEN.decode()})
    assert found.status == 404


def test_other_calls_need_the_token_and_do_nothing_with_it__D12(guarded: Served) -> None:
    with flight.connect(f"grpc://127.0.0.1:{guarded.flight_port}") as client:
        with pytest.raises(flight.FlightUnauthenticatedError):
            list(client.list_actions())
        options = flight.FlightCallOptions(headers=[(b"authorization", b"Bearer " + TOKEN)])
        with pytest.raises(flight.FlightServerError, match="there is no do_get here: use do_exchange"):
            client.do_get(flight.Ticket(b"x"), options).read_all()


def test_a_token_without_the_right_to_produce_opens_no_stream__D12(tmp_path: Path) -> None:
    served = Served(tmp_path, tokens=Tokens({TOKEN: Right.READ | Right.CONTROL}))
    try:
        with pytest.raises(flight.FlightUnauthorizedError, match="may control,read, and the request needs produce"):
            send(served, short(("x", 1)), TOKEN)
    finally:
        served.close()


def test_an_error_of_the_server_is_logged_and_its_traceback_is_not_sent__D12(
    served: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("a secret of the server")

    monkeypatch.setattr(port, "read_batch", fail)
    with pytest.raises(flight.FlightServerError, match="has an error, see its log: ZeroDivisionError") as refused:
        send(served, short(("x", 1)))
    assert "Traceback" not in str(refused.value)
    assert "secret" not in str(refused.value)
    assert "a secret of the server" in caplog.text


def test_other_calls_are_refused_without_a_traceback__D12(served: Served) -> None:
    with flight.connect(f"grpc://127.0.0.1:{served.flight_port}") as client:
        for call in (
            lambda: client.do_get(flight.Ticket(b"x")).read_all(),
            lambda: client.get_flight_info(flight.FlightDescriptor.for_path("x")),
            lambda: list(client.list_flights()),
        ):
            with pytest.raises(flight.FlightServerError, match="here: use do_exchange") as refused:
                call()
            assert "Traceback" not in str(refused.value)


def test_once_delivery_has_failed_a_stream_ends_with_the_reason__D11(tmp_path: Path) -> None:
    served = Served(tmp_path)
    try:
        with exchange(served, SHORT) as (writer, reader):
            writer.write_batch(short(("before", FAR_MS)))
            assert answers(reader) == [("accepted", None)]
            served.running.fail(DeliveryFailed("the destination is gone"))
            writer.write_batch(short(("after", FAR_MS)))
            with pytest.raises(flight.FlightUnavailableError, match="the destination is gone"):
                reader.read_chunk()
    finally:
        with pytest.raises(DeliveryFailed):
            served.close()
