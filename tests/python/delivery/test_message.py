from pathlib import Path
from queue import Queue

import msgspec
import pytest

from delivery.records import DUE_MS, read_ndjson
from tickwheel.delivery import BadRecord, Cancel, Delivery, DeliveryQueue, Letter, Message
from tickwheel.delivery.model.message import MAX_PAYLOAD, Columns

NOW_NS = 1_000_000_000_001  # a nanosecond past 1,000,000 ms


def parse(line: str | bytes, columns: Columns | None = None, now_ns: int | None = NOW_NS) -> Message | Cancel:
    [found] = read_ndjson(line.encode() if isinstance(line, str) else line, columns or Columns(), now_ns)
    if isinstance(found.item, BadRecord):
        raise found.item
    return found.item


def message(line: str | bytes, columns: Columns | None = None) -> Message:
    item = parse(line, columns)
    assert isinstance(item, Message)
    return item


def test_a_message_has_id_key_due_and_payload__D1() -> None:
    assert message('{"id": "a", "key": "k", "due": 1700000000005, "payload": [1]}') == Message(
        "a", "k", DUE_MS, msgspec.Raw(b"[1]")
    )
    assert message('{"id": "a", "key": null, "due": "1970-01-01T00:00:00.005Z", "payload": [1]}').due_ms == 5


@pytest.mark.parametrize(
    "payload",
    ["1.50", '"\\u00e9 é"', "[null]", "1e999", '{"b" : 1,  "a":{}}', "12345678901234567890123", '"a\\ud83d\\ude00"'],
)
def test_json_is_kept_byte_for_byte__D1(payload: str) -> None:
    kept = message(f'{{"id": "a", "due": 1700000000005, "payload": {payload} }}').payload
    assert bytes(kept) == payload.encode()


def test_a_return_in_json_is_white_space_and_can_not_split_a_line__D11() -> None:
    assert bytes(message(b'{"id": "a", "due": 1700000000005, "payload": [1,\r2]}').payload) == b"[1, 2]"


def test_other_bytes_come_as_base64__D1() -> None:
    assert message('{"id": "a", "due": 1700000000005, "payload_base64": "/wA="}').payload == b"\xff\x00"


def test_without_a_payload_the_other_fields_are_the_payload__D1() -> None:
    assert (
        bytes(message('{"x": 1.50, "id": "a", "due": 1700000000005, "y": "é"}').payload)
        == '{"x":1.50,"y":"é"}'.encode()
    )
    assert bytes(message('{"id": "a", "due": 1700000000005}').payload) == b"{}"


def test_the_caller_may_name_the_columns__D11() -> None:
    columns = Columns(id="flight", key="tail", due="at", payload="body")
    assert message('{"flight": "a", "tail": "t", "at": 1700000000005, "body": 1}', columns) == Message(
        "a", "t", DUE_MS, msgspec.Raw(b"1")
    )
    columns = Columns(id="flight")
    assert bytes(message('{"flight": "a", "id": "b", "due": 1700000000005}', columns).payload) == b'{"id":"b"}'
    columns = Columns(id="id", key="id")
    assert message('{"id": "a", "due": 1700000000005}', columns).key == "a"


@pytest.mark.parametrize(
    ("delay", "due_ms"), [("0", 1_000_001), ("1.5", 1_000_003), ("-1000", 999_001), ("null", None)]
)
def test_a_delay_counts_from_acceptance_and_is_rounded_up__D1(delay: str, due_ms: int | None) -> None:
    line = f'{{"id": "a", "delay_ms": {delay}}}'
    if due_ms is None:
        with pytest.raises(BadRecord, match="due is missing"):
            parse(line)
    else:
        assert message(line).due_ms == due_ms


def test_a_replay_has_nothing_that_a_delay_could_count_from__D11() -> None:
    with pytest.raises(BadRecord, match="with --speed: due"):
        parse('{"id": "a", "delay_ms": 5}', now_ns=None)


def test_a_cancel_has_id_and_key__D7() -> None:
    assert parse('{"op": "cancel", "id": "a"}') == Cancel("a", None)
    assert parse('{"op": "cancel", "id": "a", "key": "k", "due": null}') == Cancel("a", "k")


def test_a_payload_has_at_most_a_mebibyte__D12() -> None:
    fits = "x" * (MAX_PAYLOAD - 2)
    assert message(f'{{"id": "a", "due": 1700000000005, "payload": "{fits}"}}')
    with pytest.raises(BadRecord, match="1,048,577 bytes"):
        parse(f'{{"id": "a", "due": 1700000000005, "payload": "{fits}x"}}')
    with pytest.raises(BadRecord, match="1,048,578 bytes"):
        parse(f'{{"id": "a", "due": 1700000000005, "x": "{fits[:-4]}"}}')


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("nope", "not a JSON object"),
        ("[1]", "not a JSON object"),
        ('{"id": "a", "due": 1700000000005', "not a JSON object"),
        ('{"id": "a", "due": 1700000000005} {}', "not a JSON object"),
        ('{"id": "a", "due": NaN}', "not a JSON object"),
        ('{"id": "a", "due": 1700000000005, "payload": Infinity}', "not a JSON object"),
        ('{"id": "a", "due": 1700000000005, "payload": "\\ud800"}', "not a JSON object"),
        ('{"id": "a", "due": 1e999}', "not a JSON object"),
        (b'{"id": "a", "due": 1700000000005, "payload": "\xff"}', "byte 47 of the line is not UTF-8"),
        ('{"id": "a", "due": 1700000000005, "payload": ' + "[" * 100_000 + "]" * 100_000 + "}", "nested too deep"),
        ('{"id": "a", "due": 1700000000005, "id": "b"}', "a name occurs twice"),
        ('{"id": "a", "due": 1700000000005, "x": 1, "x": 1}', "a name occurs twice"),
        ('{"due": 1700000000005}', "id is missing"),
        ('{"id": null, "due": 1700000000005}', "id is missing"),
        ('{"id": "", "due": 1700000000005}', "id is empty"),
        ('{"id": 7, "due": 1700000000005}', "id is not text"),
        ('{"id": "a", "key": 7, "due": 1700000000005}', "key is not text"),
        ('{"id": "a", "key": "", "due": 1700000000005}', "key is empty"),
        ('{"id": "a"}', "due is missing"),
        ('{"id": "a", "due": true}', "due is neither"),
        ('{"id": "a", "due": 5.5}', "due is 5.5, which looks like seconds"),
        ('{"id": "a", "due": "5"}', "due is text of digits"),
        ('{"id": "a", "due": 99999999999999999999999}', "due is out of range"),
        ('{"id": "a", "due": 1700000000005, "delay_ms": 5}', "both due and delay_ms"),
        ('{"id": "a", "delay_ms": false}', "delay_ms is not a number in range"),
        ('{"id": "a", "delay_ms": "5"}', "delay_ms is not a number in range"),
        ('{"id": "a", "delay_ms": 1e300}', "delay_ms is not a number in range"),
        ('{"id": "a", "delay_ms": 253402300799999}', "now + delay_ms is out of range"),
        ('{"id": "a", "due": 1700000000005, "payload": 1, "payload_base64": ""}', "both payload and payload_base64"),
        ('{"id": "a", "due": 1700000000005, "payload_base64": "a"}', "payload_base64 can't be decoded"),
        ('{"id": "a", "due": 1700000000005, "payload_base64": "é"}', "payload_base64 is not base64"),
        ('{"id": "a", "due": 1700000000005, "payload_base64": 5}', "payload_base64 is not base64"),
        ('{"id": "a", "due": 1700000000005, "payload": 1, "colour": 2}', "fields beside the payload: colour"),
        ('{"id": "a", "due": 1700000000005, "op": "delete"}', "op is not known"),
        ('{"id": "a", "due": 1700000000005, "op": ["cancel"]}', "op is not known"),
        ('{"id": "a", "op": "cancel", "due": 1700000000005}', "a cancel has more"),
        ('{"id": "a", "op": "cancel", "x": 5}', "a cancel has more"),
        ('{"id": "a", "op": "cancel", "payload": [5]}', "a cancel has more"),
        ('{"op": "cancel"}', "id is missing"),
    ],
)
def test_what_breaks_the_schema_says_why_and_what_is_allowed__D2(line: str | bytes, reason: str) -> None:
    with pytest.raises(BadRecord) as error:
        parse(line)
    assert reason in error.value.reason
    assert error.value.allowed


def test_a_payload_that_the_caller_named_must_be_there__D1() -> None:
    with pytest.raises(BadRecord, match="body is missing"):
        parse('{"id": "a", "due": 1700000000005, "x": 1}', Columns(payload="body"))


def test_errors_name_the_callers_column__D2() -> None:
    with pytest.raises(BadRecord, match="sched has no zone"):
        parse('{"id": "a", "sched": "2026-01-31T08:00:00"}', Columns(due="sched"))


@pytest.mark.parametrize(
    ("payload", "field"),
    [(msgspec.Raw(b'{"x": 1.50}'), b'"payload":{"x": 1.50}'), (b"\xff", b'"payload_base64":"/w=="')],
)
def test_a_message_that_is_given_up_is_a_record_that_could_be_given_again__D1_D6(
    payload: msgspec.Raw | bytes, field: bytes, tmp_path: Path
) -> None:
    def refuse(_: Delivery) -> None:
        raise ValueError

    letters: Queue[Letter] = Queue()
    with DeliveryQueue(tmp_path / "s.db", to=refuse, max_attempts=1, on_dead_letter=letters.put) as queue:
        queue.put_many([Message("a", "k", 1, payload)])
        written = letters.get(timeout=20).record
    assert written == b'{"id":"a","key":"k","due":"1970-01-01T00:00:00.001Z",' + field + b"}"
    assert message(written).payload == payload
