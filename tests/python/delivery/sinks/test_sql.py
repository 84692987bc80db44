"""The promises of both SQL sinks, tested on a SQLite file and on a PostgreSQL server."""

import json
import random
from collections.abc import Iterator
from pathlib import Path
from queue import Queue

import msgspec
import pytest

from delivery.sinks.making import MIB, ODD_IDS, batch, child_sending, delivery, kill_when_it_says, opened
from delivery.sinks.tables import Table, ids, names, refuse_the_id
from tickwheel.delivery import DeliveryQueue
from tickwheel.delivery.base.errors import DeliveryFailed, Unanswered, WrongUsage
from tickwheel.delivery.model.message import Message
from tickwheel.delivery.sinks import Delivery, Sink, open_sink

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def sink(table: Table) -> Iterator[Sink]:
    sink = opened(table.spec)
    yield sink
    sink.close()


_SEQS = {delivery(seq).digest: seq for seq in range(30_000)}


def seqs(table: Table) -> list[tuple[str, int]]:
    found = table.ask(f"SELECT run, digest FROM {table.name}_ids")
    return sorted((run, _SEQS[bytes(digest)]) for run, digest in found)  # type: ignore[call-overload,misc]


def test_every_message_is_a_row_in_the_order_given__D4(table: Table, sink: Sink) -> None:
    assert sink.send(batch(range(256))) == {}
    assert sink.send(batch([400, 300])) == {}
    assert ids(table) == [*names(0, 255), "id400", "id300"]


@pytest.mark.parametrize("added", [("cause", "event", "tenant"), ("event",), ("tenant",), ()])
def test_the_cause_the_event_and_the_tenant_are_in_columns_that_the_table_has__D10_D22_D24(
    table: Table, tmp_path: Path, added: tuple[str, ...]
) -> None:
    opened(table.spec).close()  # makes the table
    for column in added:
        table.ask(f"ALTER TABLE {table.name} ADD COLUMN {column} TEXT")
    came: Queue[Delivery] = Queue()
    with DeliveryQueue(tmp_path / "store.db", came.put) as queue:
        queue.put("a", key="k", due=4_000_000_000_000, until_event=["paid"], tenant="acme")
        queue.event("k", "paid", id="1", payload=[1])
        queue.put("b", key="k", delay_ms=0)
        deliveries = [came.get(timeout=20) for _ in range(2)]
    sink = opened(table.spec)
    assert sink.send(deliveries) == {}
    sink.close()
    rows = {
        "a": {"cause": "event", "event": '{"name":"paid","id":"1","payload":[1]}', "tenant": "acme"},
        "b": {"cause": None, "event": None, "tenant": None},
    }
    found = table.ask(f"SELECT {', '.join(('id', *added))} FROM {table.name} ORDER BY id")
    assert found == [(id_, *(rows[id_][column] for column in added)) for id_ in "ab"]


def test_what_is_sent_again_has_no_second_row__D5(table: Table, sink: Sink) -> None:
    sink.send(batch(range(10)))
    assert sink.send(batch(range(5, 15))) == {}
    again = opened(table.spec)  # as after a crash
    assert again.send(batch(range(20))) == {}
    again.close()
    assert ids(table) == names(0, 19)
    assert seqs(table) == [("run", seq) for seq in range(20)]


def test_two_stores_do_not_mix_up_their_numbers__D5(table: Table, sink: Sink) -> None:
    other = opened(table.spec, store_id="other'; \U0001f600")
    sink.send([delivery(1, "mine")])
    other.send([delivery(1, "theirs")])
    assert ids(table) == ["mine", "theirs"]
    assert list(other.arrived([delivery(1, "theirs"), delivery(2, "nobody's")], None)) == [1]
    assert list(sink.arrived([delivery(1, "mine"), delivery(2, "theirs")], None)) == [1, 2], "by whichever it came"
    assert {store for (store,) in table.ask(f"SELECT store FROM {table.name}_ids")} == {"store", "other'; \U0001f600"}
    other.close()


def test_killed_in_the_middle_it_has_sent_all_or_nothing__D5(table: Table) -> None:
    kill_when_it_says(child_sending(table.spec, range(100), stuck_at=60), "stuck")
    sink = opened(table.spec)
    assert ids(table) == []
    assert list(sink.arrived(batch(range(100)), None)) == []
    assert sink.send(batch(range(100))) == {}
    sink.close()
    assert ids(table) == names(0, 99)


def test_killed_after_the_send_it_is_all_there__D5(table: Table) -> None:
    kill_when_it_says(child_sending(table.spec, range(100)), "sent")
    sink = opened(table.spec)
    assert set(sink.arrived(batch(range(50, 200)), None)) == set(range(50, 100))
    assert sink.send(batch(range(100, 110))) == {}
    sink.close()
    assert ids(table) == names(0, 109)


def test_of_many_suspects_those_are_named_that_arrived__D5(table: Table, sink: Sink) -> None:
    for start in range(0, 25_600, 256):
        sink.send(batch(range(start, start + 256)))
    found: set[int] = set()
    for start in range(100, 30_100, 1_000):  # as many as the engine asks for at a time
        found.update(sink.arrived(batch(range(start, start + 1_000, 2)), None))
    assert found == set(range(100, 25_600, 2))
    assert len(seqs(table)) == 25_600, "asking forgets nothing"


def test_what_is_asked_for_twice_is_found_twice__D5(table: Table, sink: Sink) -> None:
    sink.send(batch(range(10)))
    for _ in range(2):  # a second crash, before anything was committed
        assert set(sink.arrived(batch([3, 4, 50]), None)) == {3, 4}
        sink.close()
    sink.send(batch([3, 4, 10]))
    assert ids(table) == names(0, 10)


def test_what_the_engine_has_committed_is_forgotten__D5(table: Table, sink: Sink) -> None:
    sink.send(batch(range(10)))
    sink.send(batch(range(10, 20)))
    sink.committed(1, True)
    sink.send(batch(range(20, 25)))
    assert seqs(table) == [("run", seq) for seq in range(10, 25)]
    sink.committed(3, True)
    sink.send(batch([25]))
    assert seqs(table) == [("run", 25)]
    assert ids(table) == names(0, 25)


def test_however_long_a_commit_takes_nothing_is_forgotten_before__D5(table: Table, sink: Sink) -> None:
    for seq in range(50):
        sink.send(batch([seq]))
    assert len(seqs(table)) == 50
    again = opened(table.spec, run="after a crash")
    assert len(again.arrived(batch(range(50)), None)) == 50
    again.close()


def test_after_a_burst_the_digests_of_two_sends_go_with_each__D5(table: Table, sink: Sink) -> None:
    for start in (0, 200, 400):
        sink.send(batch(range(start, start + 200)))
    sink.committed(3, True)
    sink.send(batch([600]))
    assert [seq for _, seq in seqs(table)] == [*range(400, 601)]
    sink.send(batch([601]))
    assert [seq for _, seq in seqs(table)] == [600, 601]


def test_a_send_that_failed_has_its_number_and_has_forgotten_nothing__D5(table: Table, sink: Sink) -> None:
    sink.send(batch([1]))
    table.ask(f"ALTER TABLE {table.name} RENAME TO {table.name}_away")
    sink.committed(1, True)
    with pytest.raises(Unanswered):
        sink.send(batch([2]))
    table.ask(f"ALTER TABLE {table.name}_away RENAME TO {table.name}")
    assert seqs(table) == [("run", 1)]
    sink.send(batch([2]))
    assert seqs(table) == [("run", 2)]
    sink.committed(2, True)
    sink.send(batch([3]))
    assert seqs(table) == [("run", 2), ("run", 3)], "the second send was the one that failed"
    sink.committed(3, True)
    sink.send(batch([4]))
    assert seqs(table) == [("run", 3), ("run", 4)]


def test_what_earlier_runs_left_is_forgotten_when_all_of_it_has_its_outcome__D5(table: Table) -> None:
    for run in ("first", "second"):
        before = opened(table.spec, run=run)
        before.send([delivery(seq, key=f"k{seq % 7}") for seq in (range(3) if run == "first" else range(3, 5_000))])
        before.close()
    other = opened(table.spec, "another store", run="first")
    other.send([delivery(0, "theirs")])
    other.close()

    def left() -> int:
        ((count,),) = table.ask(f"SELECT count(*) FROM {table.name}_ids WHERE run <> 'third'")
        return int(count)

    sink = opened(table.spec, run="third")
    for seq in range(6_000, 6_010):
        sink.send(batch([seq]))
        sink.committed(seq - 6_000, False)
    assert left() == 5_001
    sink.committed(10, True)
    counts = []
    for seq in range(6_010, 6_014):
        sink.send(batch([seq]))
        counts.append(left())
    sink.close()
    assert counts == [2_953, 905, 1, 1], "in parts, and not those of the other store"


def test_the_columns_are_those_of_the_written_line__D11(table: Table, sink: Sink) -> None:
    sink.send([delivery(1, "a", key=None), delivery(2, "b", b"\xff", redelivered=True, attempt=4)])
    columns = "id, key, due, payload, payload_bytes, delivered_at, lateness_ms, attempt, redelivered"
    (first, second) = table.ask(f"SELECT {columns} FROM {table.name} ORDER BY id")
    assert (first[0], first[1], first[4], *first[6:]) == ("a", None, None, 1.25, 1, False)
    assert (second[0], second[1], second[3], second[4], *second[6:]) == ("b", "k", None, b"\xff", 1.25, 4, True)
    times = [text if isinstance(text, str) else text.astimezone().timestamp() for text in (first[2], first[5])]
    assert times in (
        ["2023-11-14T22:13:20.000Z", "2023-11-14T22:13:20.002Z"],
        [1_700_000_000.000, 1_700_000_000.002],
    )


@pytest.mark.parametrize(
    "payload",
    [
        b'{"b":1, "a" :1.50,"a":2}',
        b'"\\u0000 \\ud800"',
        '"\U0001f600 \u00e4"'.encode(),
        b"null",
        b'""',
        b"1e999999",
        b"-0",
        b"[" * 200 + b"]" * 200,
        b'"' + b"x" * (MIB - 2) + b'"',
    ],
)
def test_json_comes_out_byte_for_byte__D1(table: Table, sink: Sink, payload: bytes) -> None:
    assert sink.send([delivery(payload=msgspec.Raw(payload))]) == {}
    cast = "::text" if table.name != "t" else ""
    assert table.ask(f"SELECT payload{cast}, payload_bytes FROM {table.name}") == [(payload.decode(), None)]


@pytest.mark.parametrize("payload", [b"", b"\0", bytes(range(256)), b"\xff" * MIB, msgspec.Raw(b'"\xff"')])
def test_other_bytes_come_out_byte_for_byte__D1(table: Table, sink: Sink, payload: msgspec.Raw | bytes) -> None:
    assert sink.send([delivery(payload=payload)]) == {}
    assert table.ask(f"SELECT payload, payload_bytes FROM {table.name}") == [(None, bytes(payload))]


def test_any_id_and_key_is_kept_as_it_is__D1(table: Table, sink: Sink) -> None:
    assert sink.send([delivery(seq, id_, key=id_) for seq, id_ in enumerate(ODD_IDS)]) == {}
    assert table.ask(f"SELECT id, key FROM {table.name}") == [(id_, id_) for id_ in ODD_IDS]


def test_a_batch_of_mebibytes_is_one_transaction_still__D8(table: Table, sink: Sink) -> None:
    refuse_the_id(table, "id20")
    large = msgspec.Raw(b'"' + b"x" * (MIB - 2) + b'"')
    assert list(sink.send([delivery(seq, payload=large) for seq in range(40)])) == [20]
    assert ids(table) == ["id20", *names(0, 19), *names(21, 39)]


def test_the_last_moment_there_is_can_be_written__D1(table: Table, sink: Sink) -> None:
    last = Delivery(2**62, Message("a", None, 253_402_300_799_999, b""), 253_402_300_799_999, 0)
    assert sink.send([last]) == {}
    assert str(table.ask(f"SELECT due FROM {table.name}")[0][0]).startswith(("9999-12-31", "10000"))


@pytest.mark.parametrize("place", [0, 3, 255])
def test_one_refused_row_does_not_take_the_others_with_it__D6(table: Table, sink: Sink, place: int) -> None:
    refuse_the_id(table, f"id{place}")
    refused = sink.send(batch(range(256)))
    assert list(refused) == [place]
    assert "unique" in str(refused[place]).lower()
    assert ids(table) == [f"id{place}", *(id_ for id_ in names(0, 255) if id_ != f"id{place}")]
    table.ask(f"DROP INDEX once_{table.name}")
    assert sink.send(batch([place])) == {}  # refused, it was not noted as delivered
    assert len(ids(table)) == 257


def test_a_batch_of_nothing_but_refused_rows_leaves_nothing__D6(table: Table, sink: Sink) -> None:
    table.ask(f"CREATE UNIQUE INDEX once_{table.name} ON {table.name} (attempt)")
    other = opened(table.spec, "another store")
    other.send([delivery(100)])
    other.close()
    assert list(sink.send(batch(range(9)))) == list(range(9))
    assert ids(table) == ["id100"]
    assert seqs(table) == [("run", 100)]


def test_a_table_of_the_users_with_more_columns_is_used__D10(table: Table) -> None:
    time, json_, bytes_, boolean = "timestamptz", "json", "bytea", "boolean"
    if table.name == "t":
        time, json_, bytes_, boolean = "TEXT", "TEXT", "BLOB", "INTEGER"
    table.ask(
        f"CREATE TABLE {table.name} (mine INTEGER DEFAULT 7, id TEXT, key TEXT, due {time}, payload {json_},"
        f" payload_bytes {bytes_}, delivered_at {time}, lateness_ms DOUBLE PRECISION, attempt INTEGER,"
        f" redelivered {boolean})"
    )
    sink = opened(table.spec)
    assert sink.send([delivery()]) == {}
    sink.close()
    assert table.ask(f"SELECT mine, id FROM {table.name}") == [(7, "id1")]


def test_a_table_that_lacks_columns_is_told_which__D10(table: Table) -> None:
    table.ask(f"CREATE TABLE {table.name} (id TEXT, due TEXT, payload TEXT, lateness_ms INTEGER, other INTEGER)")
    with pytest.raises(DeliveryFailed) as error:
        opened(table.spec)
    assert "has no key, payload_bytes, delivered_at, attempt, redelivered:" in str(error.value)


def test_a_table_beside_it_that_lacks_the_key_is_told_at_once__D5(table: Table) -> None:
    table.ask(f"CREATE TABLE {table.name}_ids (digest {table.bytes}, store TEXT, run TEXT, first_seq BIGINT)")
    with pytest.raises(DeliveryFailed, match="ON CONFLICT"):
        opened(table.spec)


def test_what_was_there_stays_there__D10(table: Table, sink: Sink) -> None:
    sink.send(batch([1]))
    sink.close()
    again = opened(table.spec)
    again.send(batch([2]))
    again.close()
    assert ids(table) == names(1, 2)


def test_a_closed_sink_opens_again_with_the_next_send__D6(table: Table, sink: Sink) -> None:
    sink.close()
    sink.close()
    assert sink.send(batch([1])) == {}


def test_a_lost_table_fails_them_all_and_the_sink_recovers__D6(table: Table, sink: Sink) -> None:
    table.ask(f"ALTER TABLE {table.name} RENAME TO {table.name}_away")
    with pytest.raises(Unanswered):
        sink.send(batch(range(3)))
    table.ask(f"ALTER TABLE {table.name}_away RENAME TO {table.name}")
    assert seqs(table) == []
    assert sink.send(batch(range(3))) == {}
    assert ids(table) == names(0, 2)


@pytest.mark.parametrize("form", ["sqlite:out.db{}", "postgresql://db/x{}"])
@pytest.mark.parametrize(
    "query",
    [
        "",
        "?",
        "?table",
        "?table=",
        "?table=1t",
        "?table=a-b",
        "?table=t;--",
        '?table="t"',
        "?table=t%20t",
        "?table=a.b.c",
        "?table=\u00e4",
        "?table=t&table=u",
        "?table=" + "t" * 54,
        "?Table=t",
        "?table=t%00",
        "?table=.t",
        "?table=t.",
    ],
)
def test_a_table_name_that_is_none_is_wrong_usage__D10(form: str, query: str) -> None:
    with pytest.raises(WrongUsage):
        open_sink(form.format(query))


def test_a_table_may_be_called_like_a_word_of_sql__D10(table: Table) -> None:
    spec = table.spec.replace(f"table={table.name}", "table=Select")
    sink = opened(spec)
    assert sink.send([delivery()]) == {}
    sink.close()
    assert table.ask('SELECT id FROM "Select"') == [("id1",)]
    table.ask('DROP TABLE "Select"')
    table.ask('DROP TABLE "Select_ids"')


def test_up_to_1024_go_in_one_transaction_by_one_thread__D10(sink: Sink) -> None:
    assert (sink.max_batch, sink.threads) == (1024, 1)
    assert sink.position() is None
    assert json.dumps(list(sink.arrived(batch([]), None))) == "[]"


def test_a_name_that_was_forgotten_and_comes_again_has_its_row__D5(table: Table, sink: Sink) -> None:
    for seq in range(6):  # each send deletes what two of them have left
        sink.send([delivery(seq, f"id{seq}")])
    sink.committed(6, False)
    assert sink.send([delivery(9, "id4"), delivery(10, "id10")]) == {}
    assert ids(table).count("id4") == 2
    for seq in range(20, 26):
        sink.send([delivery(seq)])
    assert {"id4", "id10"} <= {f"id{_SEQS[bytes(d)]}" for (d,) in table.ask(f"SELECT digest FROM {table.name}_ids")}  # type: ignore[call-overload]
    assert sink.send([delivery(9, "id4")]) == {}, "this one is not committed"
    assert ids(table).count("id4") == 2


def test_a_name_of_an_earlier_run_that_comes_again_has_its_row__D5(table: Table) -> None:
    earlier = opened(table.spec, run="earlier")
    for start in range(1, 6_001, 1_000):
        earlier.send(batch(range(start, start + 1_000)))
    earlier.close()
    sink = opened(table.spec, run="this")
    sent = [delivery(7_000, "id6000"), delivery(5_999), delivery(0, "id5998")]  # 0: another store may have sent it
    for found in ({5_999, 0}, {7_000, 5_999, 0}):
        assert set(sink.arrived(sent, None)) == found
        assert sink.send(sent) == {}
    assert [ids(table).count(f"id{seq}") for seq in (6_000, 5_999, 5_998)] == [2, 1, 1]
    sink.close()


def fail_at_random(table: Table) -> None:
    """From now on the payload of a row says how it fails, if it does."""
    ways = ["ABORT", "FAIL", "ROLLBACK"]
    if table.name == "t":
        parts = [f"SELECT RAISE({way}, 'no') WHERE new.payload = '\"{way}\"';" for way in ways]
        parts.append("SELECT json_extract('no JSON', '$') WHERE new.payload = '\"ERROR\"';")
        table.ask(f"CREATE TABLE {table.name}_seen (id TEXT)")
        table.ask(
            f"CREATE TRIGGER fails BEFORE INSERT ON {table.name} BEGIN INSERT INTO {table.name}_seen VALUES (new.id);"
            f" {' '.join(parts)} END"
        )
        return
    codes = {
        "ABORT": "raise_exception",
        "FAIL": "check_violation",
        "ROLLBACK": "deadlock_detected",
        "ERROR": "disk_full",
    }
    cases = " ".join(f"WHEN '\"{way}\"' THEN RAISE {code};" for way, code in codes.items())
    table.ask(f"CREATE TABLE {table.name}_seen (id TEXT)")
    table.ask(
        f"CREATE FUNCTION {table.name}_fails() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        f" INSERT INTO {table.name}_seen VALUES (new.id);"
        f" CASE new.payload::text {cases} ELSE NULL; END CASE; RETURN new; END $$"
    )
    table.ask(f"CREATE TRIGGER fails BEFORE INSERT ON {table.name} FOR EACH ROW EXECUTE FUNCTION {table.name}_fails()")


@pytest.mark.parametrize("seed", range(12))
def test_whatever_rows_fail_each_other_one_is_there_once_with_its_digest__D5_D6(
    table: Table, sink: Sink, seed: int
) -> None:
    random_ = random.Random(seed)
    fail_at_random(table)
    expected: set[int] = set()
    for _ in range(6):
        bad: dict[int, str] = {}
        given = sorted(random_.sample(range(200), random_.choice([1, 2, 7, 100])))
        share = random_.choice([0.0, 0.05, 0.5, 1.0])
        for place, seq in enumerate(given):
            if random_.random() < share and seq not in expected:
                bad[place] = random_.choice(["ABORT", "FAIL", "ROLLBACK", "ERROR"])
        told = sink.send(
            [
                delivery(seq, payload=msgspec.Raw(f'"{bad[place]}"'.encode() if place in bad else b"1"))
                for place, seq in enumerate(given)
            ]
        )
        assert sorted(told) == sorted(bad)
        expected |= {seq for place, seq in enumerate(given) if place not in bad}
        assert sorted(ids(table)) == sorted(f"id{seq}" for seq in expected)
        assert [seq for _, seq in seqs(table)] == sorted(expected)
        assert sorted(table.ask(f"SELECT id FROM {table.name}_seen")) == sorted((id_,) for id_ in ids(table))
