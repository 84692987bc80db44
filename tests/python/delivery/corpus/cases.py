"""Broken records of every kind and format, each with its expected reason; the good records beside it must be accepted.

`outcomes` has an entry for each record of the input, in order: the beginning of the reason, or `OK` for a message or a
cancel. The inputs are realistic: truncated, in the wrong encoding, from a spreadsheet, from an attacker.
"""

import pyarrow as pa

from delivery.corpus.making import OK, Case, csv, message, ndjson, nested, parquet, without_due
from tickwheel.delivery.model.message import MAX_PAYLOAD, MAX_RECORD

NOT_JSON = "not a JSON object"

SYNTAX = [
    ndjson("a word", "hello", NOT_JSON),
    ndjson("an array", "[1]", NOT_JSON),
    ndjson("a number", "17", NOT_JSON),
    ndjson("null", "null", NOT_JSON),
    ndjson("cut off in a name", '{"id":"a","du', NOT_JSON),
    ndjson("cut off in text", '{"id":"a","due":1700000000005,"payload":"abc', NOT_JSON),
    ndjson("cut off before the end", '{"id":"a","due":1700000000005', NOT_JSON),
    ndjson("two objects on a line", message() + message(), NOT_JSON),
    ndjson("a comma too many", '{"id":"a","due":1700000000005,}', NOT_JSON),
    ndjson("single quotes", "{'id':'a','due':5}", NOT_JSON),
    ndjson("a comment", message() + " // soon", NOT_JSON),
    ndjson("a name without quotes", '{id:"a","due":1700000000005}', NOT_JSON),
    ndjson("NaN", message(payload="NaN"), NOT_JSON),
    ndjson("infinity", message(payload="-Infinity"), NOT_JSON),
    ndjson("a hexadecimal number", message(due="0x5"), NOT_JSON),
    ndjson("a leading zero", message(due="05"), NOT_JSON),
    ndjson("a control character in text", message(payload='"\x01"'), NOT_JSON),
    ndjson("a tabulator in text", message(payload='"a\tb"'), NOT_JSON),
    ndjson("a return in text", message(payload='"a\rb"'), NOT_JSON),
    ndjson("an escape that is none", message(payload='"\\x41"'), NOT_JSON),
    ndjson("half a surrogate pair", message(payload='"\\ud800"'), NOT_JSON),
    ndjson("half a surrogate pair in a name", '{"id":"a","due":1700000000005,"\\udc00":1}', NOT_JSON),
    ndjson("a null byte", b'{"id":"a","due":1700000000005}\x00', NOT_JSON),
    ndjson("a byte order mark in the middle", b"\xef\xbb\xbf" + message().encode(), NOT_JSON),
    ndjson("nested too deep", message(payload=nested(100_000)), "the JSON is nested too deep"),
    ndjson("nested too deep in a field of no meaning", message(x=nested(100_000)), "the JSON is nested too deep"),
    ndjson("nested too deep where a time belongs", message(due=nested(100_000)), "the JSON is nested too deep"),
    ndjson("opened and not closed, often", '{"a":' * 100_000, "the JSON is nested too deep"),
    ndjson("a name twice", '{"id":"a","due":1700000000005,"id":"b"}', "a name occurs twice"),
    ndjson("a name twice, escaped", '{"id":"a","due":1700000000005,"\\u0069d":"b"}', "a name occurs twice"),
]

ENCODING = [
    ndjson("Latin-1", message(payload='"é"').encode("latin-1"), "byte 42 of the line is not UTF-8"),
    ndjson("a byte that is never UTF-8", b'{"id":"a\xff","due":1700000000005}', "byte 9 of the line is not UTF-8"),
    ndjson("an overlong encoding", b'{"id":"\xc0\x80","due":1700000000005}', "byte 8 of the line is not UTF-8"),
    ndjson("a surrogate in UTF-8", b'{"id":"\xed\xa0\x80","due":1700000000005}', "byte 8 of the line is not UTF-8"),
    ndjson(
        "cut off inside a character",
        b'{"id":"a","due":1700000000005,"payload":"\xc3',
        "byte 42 of the line is not UTF-8",
    ),
    Case("UTF-16", "ndjson", message().encode("utf-16"), ["the text is UTF-16"]),
    Case("gzip", "ndjson", bytes.fromhex("1f8b0800") + b"\x00\xff" * 20, ["byte 2 of the line is not UTF-8"]),
    csv("Latin-1 in a cell", b"a,1700000000005,\xe9", "byte 17 of the line is not UTF-8"),
    csv("Latin-1 in a quoted cell", b'a,1700000000005,"\xe9"', "byte 18 of the line is not UTF-8"),
]

IDS = [
    ndjson("no id", message(id=""), "id is missing"),
    ndjson("an id of null", message(id="null"), "id is missing"),
    ndjson("an empty id", message(id='""'), "id is empty"),
    ndjson("an integer id", message(id="7"), "id is not text"),
    ndjson("an array id", message(id='["a"]'), "id is not text"),
    ndjson("an id of true", message(id="true"), "id is not text"),
    ndjson("a key that is a number", message(key="1.5"), "key is not text"),
    ndjson("an empty key", message(key='""'), "key is empty"),
    ndjson("an empty object", "{}", "id is missing"),
    csv("an empty cell as id", ",5,x", "id is missing"),
    parquet("an integer id in Parquet", "id is not text", id=[7]),
    parquet("a binary id in Parquet", "id is not text", id=[b"a"]),
    parquet("a null id in Parquet", "id is missing", id=pa.array([None], pa.string())),
    parquet("an id of null's own type", "id is missing", id=pa.nulls(1)),
    parquet("a key that is a struct", "key is not text", key=[{"a": 1}]),
    parquet("an id that is not UTF-8", "id is not UTF-8", id=pa.array([b"\xff"]).view(pa.string())),
]

NO_TIME = "due is not a time"
RANGE = "due is out of range"

TIMES = [
    ndjson("no due time", message(due=""), "due is missing"),
    ndjson("no zone", message(due='"2026-01-31T08:00:00"'), "due has no zone"),
    ndjson("a date only", message(due='"2026-01-31"'), "due is a date without a time of day"),
    ndjson("a time with a space before its zone", message(due='"2026-01-31T08:00:00 +01:00"'), NO_TIME),
    ndjson("a zone by name", message(due='"2026-01-31T08:00:00 Europe/Berlin"'), NO_TIME),
    ndjson("an offset of one digit", message(due='"2026-01-31T08:00:00+1"'), NO_TIME),
    ndjson("the thirtieth of February", message(due='"2026-02-30T08:00:00Z"'), "due is not on the calendar"),
    ndjson("the twenty-ninth of February 2100", message(due='"2100-02-29T08:00:00Z"'), "due is not on the calendar"),
    ndjson("a leap second", message(due='"2016-12-31T23:59:60Z"'), "due is not on the calendar"),
    ndjson("hour 24", message(due='"2026-01-31T24:00:00Z"'), "due is not on the calendar"),
    ndjson("month 13", message(due='"2026-13-01T00:00:00Z"'), "due is not on the calendar"),
    ndjson("an offset of 25 hours", message(due='"2026-01-31T08:00:00+25:00"'), "due has no such offset"),
    ndjson("year 10000", message(due='"10000-01-01T00:00:00Z"'), NO_TIME),
    ndjson("a year before Christ", message(due='"-0001-01-01T00:00:00Z"'), NO_TIME),
    ndjson("before 1970", message(due='"1969-12-31T23:59:59.999Z"'), RANGE),
    ndjson("after 9999 by its offset", message(due='"9999-12-31T23:59:59-00:01"'), RANGE),
    ndjson("after 9999 by rounding up", message(due='"9999-12-31T23:59:59.9990001Z"'), RANGE),
    ndjson("German", message(due='"31.01.2026 08:00"'), NO_TIME),
    ndjson("Arabic digits", message(due='"٢٠٢٦-01-31T08:00:00Z"'), NO_TIME),
    ndjson("a newline at the end of a time", message(due='"2026-01-31T08:00:00Z\\n"'), NO_TIME),
    ndjson(
        "a hundred thousand digits of a second",
        message(due='"2026-01-31T08:00:00.' + "9" * 100_000 + '"'),
        "due has no zone",
    ),
    ndjson("an empty time", message(due='""'), NO_TIME),
    ndjson("seconds as a float", message(due="1769846400.5"), "due is 1769846400.5, which looks like seconds"),
    ndjson("seconds as a whole float", message(due="5.0"), "due is 5, which looks like seconds"),
    ndjson("a number in exponents", message(due="1.77e12"), "due is 1.77e12, which may be rounded"),
    ndjson("seconds", message(due="1769846400"), "due is 1769846400, which looks like seconds"),
    csv("seconds in a cell", "a,1769846400,x", "due is 1769846400, which looks like seconds"),
    parquet("seconds in Parquet", "due is 1769846400, which looks like seconds", due=[1769846400]),
    ndjson("nanoseconds", message(due="1769846400000000000"), "due is 1769846400000000000, which looks like nano"),
    ndjson("a negative number", message(due="-1"), RANGE),
    ndjson("23 digits", message(due="9" * 23), RANGE),
    ndjson("a hundred thousand digits", message(due="9" * 100_000), NOT_JSON),
    ndjson("a number beyond floats", message(due="1e999999"), NOT_JSON),
    ndjson("a time as an object", message(due='{"$date":5}'), "due is neither"),
    ndjson("a time of false", message(due="false"), "due is neither"),
    csv("a word as time", "a,soon,x", NO_TIME),
    csv("a float as time", "a,5.0,x", "due is 5, which looks like seconds"),
    csv("a time of a spreadsheet", "a,31/01/2026 08:00,x", NO_TIME),
    csv("a hundred thousand digits in a cell", f"a,{'9' * 100_000},x", NO_TIME),
    csv("an empty cell as time", "a,,x", "due is missing"),
    parquet("a timestamp without a zone", "due has no zone", due=pa.array([5], pa.timestamp("us"))),
    parquet("a timestamp in 292277", RANGE, due=pa.array([2**63 - 1], pa.timestamp("ms", "UTC"))),
    parquet(
        "a date in Parquet", "due is a date without a time of day", due=pa.array([5], pa.int32()).cast(pa.date32())
    ),
    parquet("a float in Parquet", "due is 5, which looks like seconds", due=[5.0]),
    parquet("no due time in Parquet", "due is missing", due=pa.array([None], pa.int64())),
]

NO_DELAY = "delay_ms is not a number in range"

DELAYS = [
    ndjson("a delay and a due time", message(delay_ms="5"), "both due and delay_ms"),
    ndjson("a delay as text", message(due="", delay_ms='"5"'), NO_DELAY),
    ndjson("a delay of true", message(due="", delay_ms="true"), NO_DELAY),
    ndjson("a delay beyond the range", message(due="", delay_ms="1e300"), NO_DELAY),
    ndjson(
        "a delay into the year 10000", message(due="", delay_ms="253402300799999"), "now + delay_ms is out of range"
    ),
    ndjson("a delay to before 1970", message(due="", delay_ms="-2e12"), "now + delay_ms is out of range"),
    csv("a word as delay", "a,,soon", NO_DELAY, header="id,due,delay_ms"),
    csv("null as delay", "a,,null", NO_DELAY, header="id,due,delay_ms"),
    csv("NaN as delay", "a,,NaN", NO_DELAY, header="id,due,delay_ms"),
    csv("nested too deep as delay", "a,," + "[" * 100_000, NO_DELAY, header="id,due,delay_ms"),
    csv("a hundred thousand digits as delay", "a,," + "9" * 100_000, NO_DELAY, header="id,due,delay_ms"),
    parquet("NaN as delay in Parquet", NO_DELAY, due=pa.nulls(1), delay_ms=[float("nan")]),
    parquet("a duration as delay", NO_DELAY, due=pa.nulls(1), delay_ms=pa.array([5], pa.duration("ms"))),
]

BASE64 = "payload_base64 "

PAYLOADS = [
    ndjson("a payload too large", message(payload=f'"{"x" * MAX_PAYLOAD}"'), "the payload has 1,048,578 bytes"),
    ndjson("other fields too large", message(x=f'"{"x" * MAX_PAYLOAD}"'), "the payload has 1,048,584 bytes"),
    ndjson("a line too long", message(payload=f'"{"x" * MAX_RECORD}"'), "the record has 2,097,196 bytes"),
    ndjson("both payloads", message(payload="1", payload_base64='"AA=="'), "both payload and payload_base64"),
    ndjson("base64 without padding", message(payload_base64='"AA"'), BASE64 + "can't be decoded"),
    ndjson("base64 for URLs", message(payload_base64='"_-__"'), BASE64 + "can't be decoded"),
    ndjson("base64 with a newline", message(payload_base64='"AA==\\n"'), BASE64 + "can't be decoded"),
    ndjson("base64 of another alphabet", message(payload_base64='"éé=="'), BASE64 + "is not base64"),
    ndjson("base64 as a number", message(payload_base64="5"), BASE64 + "is not base64"),
    ndjson("a field beside the payload", message(payload="1", color="2"), "fields beside the payload: color"),
    ndjson("a payload in capitals", message(payload="1", Payload="2"), "fields beside the payload: Payload"),
    csv("a payload nested too deep", "a,1700000000005," + nested(100_000), "the JSON is nested too deep"),
    csv("a payload too large in a cell", f"a,1700000000005,{'x' * MAX_PAYLOAD}", "the payload has 1,048,578 bytes"),
    csv(
        "both payloads in cells",
        "a,1700000000005,x,AA==",
        "both payload and payload_base64",
        "id,due,payload,payload_base64",
    ),
    parquet("a payload too large in Parquet", "the payload has 1,048,577 bytes", payload=[b"\xff" * (MAX_PAYLOAD + 1)]),
    parquet("a payload of NaN", "payload can't be JSON: nan is not finite", payload=[float("nan")]),
    parquet(
        "a payload nested too deep in Parquet", "payload can't be JSON: the JSON is nested", payload=[nested(10**5)]
    ),
    parquet("NaN inside a list inside a struct", "x can't be JSON", x=[{"a": [1.0, float("nan")]}]),
    parquet("a column beside the payload", "fields beside the payload: x", payload=["1"], x=["2"]),
    parquet("text that is not UTF-8", "x is not UTF-8", x=pa.array([b"\xff"]).view(pa.string())),
]

OPERATIONS = [
    ndjson("an operation that is none", message(op='"delete"'), "op is not known"),
    ndjson("a cancel in capitals", '{"op":"CANCEL","id":"a"}', "op is not known"),
    ndjson("an empty operation", message(op='""'), "op is not known"),
    ndjson("an operation of true", message(op="true"), "op is not known"),
    ndjson("a cancel with a due time", '{"op":"cancel","id":"a","due":1700000000005}', "a cancel has more"),
    ndjson("a cancel of nothing", '{"op":"cancel"}', "id is missing"),
    csv("a cancel with a due time in a cell", "a,1700000000005,cancel", "a cancel has more", header="id,due,op"),
    parquet("a cancel with a due time in Parquet", "a cancel has more", op=["cancel"]),
]

BAD_ROW = "not a row of CSV"

ROWS = [
    csv("a cell too few", "a,5", "the row has 2 cells"),
    csv("a cell too many", "a,1700000000005,x,y", "the row has 4 cells"),
    csv("other separators", "a;5;x", "the row has 1 cells"),
    csv("text after a closing quote", 'a,1700000000005,"x"y', BAD_ROW),
    csv("a return alone", "a,1700000000005,x\rb,5,y", BAD_ROW),
    csv("a null byte in a cell", b"a,1700000000005\x00,x", NO_TIME),
    Case(
        "a quote that is never closed",
        "csv",
        b'id,due,payload\na,1700000000005,"open\nb,1700000000005,x\nc,1700000000005,y\n',
        [BAD_ROW],
    ),
    Case("quotes that open in every line", "csv", b"id,due,p\n" + b'x",5,"\n' * 3, [BAD_ROW]),
    Case(
        "a row that is too long",
        "csv",
        b"id,due,payload\na,1700000000005," + b"x" * MAX_RECORD + b"\nb,1700000000005,x\n",
        ["the record has 2,097,169 bytes", OK],
    ),
    Case(
        "a quoted cell that is too long",
        "csv",
        b'id,due,payload\na,1700000000005,"' + (b"x" * 9999 + b"\n") * 210 + b'"\n',
        ["a quoted cell does not end", BAD_ROW],
    ),
]

FILES = [
    Case(
        "a header without an id",
        "csv",
        b"name,due\na,1700000000005\nb,1700000000005\n",
        ["the header has no column id"],
    ),
    Case("a header without a due time", "csv", b"id,when\na,1700000000005\n", ["the header has no column due"]),
    Case("a header without rows", "csv", b"name,due\n", ["the header has no column id"]),
    Case("no header, and one row", "csv", b"a,1700000000005,x\n", ["the header has no column id, due"]),
    Case(
        "a header with a name twice", "csv", b"id,due,x,x\na,1700000000005,1,2\n", ["the header names a column twice"]
    ),
    Case(
        "a header of another encoding", "csv", b"id,du\xe9\na,1700000000005\n", ["the header can't be read: byte 6 of"]
    ),
    Case("a header with a quote open", "csv", b'"id,due\na,1700000000005\n', ["the header can't be read: " + BAD_ROW]),
    Case(
        "NDJSON named CSV",
        "csv",
        message().encode() + b"\n" + message().encode(),
        ["the header can't be read: " + BAD_ROW],
    ),
    Case("CSV named NDJSON", "ndjson", b"id,due\na,1700000000005\n", [NOT_JSON] * 2),
    Case("Parquet named NDJSON", "ndjson", b"PAR1\x15\x04\x15\xc0", ["byte 8 of the line is not UTF-8"]),
    Case("NDJSON named Parquet", "parquet", message().encode() * 9, ["the file can't be read"]),
    Case("nothing, named Parquet", "parquet", b"", ["the file can't be read"]),
    Case(
        "Parquet without an id",
        "parquet",
        parquet("", "").data.replace(b"id", b"di"),
        ["the schema has no column id"],
    ),
    Case("Parquet without a due time", "parquet", without_due(), ["the schema has no column due"]),
]

CASES = [*SYNTAX, *ENCODING, *IDS, *TIMES, *DELAYS, *PAYLOADS, *OPERATIONS, *ROWS, *FILES]
