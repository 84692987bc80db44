import msgspec
import pytest

from delivery.records import DUE_MS, Item, read_csv
from tickwheel.delivery import BadRecord, Cancel, Message
from tickwheel.delivery.model.message import MAX_RECORD, Columns


def parse(text: str | bytes, columns: Columns | None = None) -> list[tuple[int, Item]]:
    found = read_csv(text.encode() if isinstance(text, str) else text, columns or Columns())
    return [(record.line, record.item) for record in found]


def reasons(text: str | bytes, columns: Columns | None = None) -> dict[int, str]:
    return {line: item.reason for line, item in parse(text, columns) if isinstance(item, BadRecord)}


def test_a_row_is_a_message__D1() -> None:
    text = "id,key,due,payload\r\na,k,1700000000005,x\r\n\r\nb,,1970-01-01T00:00:00.006Z,y\r\n"
    assert parse(text) == [
        (2, Message("a", "k", DUE_MS, msgspec.Raw(b'"x"'))),
        (4, Message("b", None, 6, msgspec.Raw(b'"y"'))),
    ]


def test_without_a_payload_column_the_other_columns_are_the_payload__D1() -> None:
    [(_, message)] = parse('id,due,x,y\na,1700000000005,1.50,"é"\n')
    assert isinstance(message, Message)
    assert bytes(message.payload) == '{"x":"1.50","y":"é"}'.encode()


@pytest.mark.parametrize(
    ("cell", "payload"),
    [
        ("text", b'"text"'),
        ("1.50", b"1.50"),
        ("NaN", b'"NaN"'),
        ("", b'""'),
        ('"{""a"": [1,\r\n2]}"', b'{"a": [1,  2]}'),
        ('"two\nlines"', b'"two\\nlines"'),
    ],
)
def test_a_payload_that_is_json_stays_json_and_is_one_line__D1(cell: str, payload: bytes) -> None:
    [(_, message)] = parse(f"id,due,payload\na,1700000000005,{cell}\n")
    assert isinstance(message, Message)
    assert bytes(message.payload) == payload


def test_a_row_has_either_payload_or_base64__D1() -> None:
    text = "id,due,payload,payload_base64\na,D,,/w==\nb,D,x,\nc,D,,\nd,D,x,/w==\n".replace("D", str(DUE_MS))
    (_, a), (_, b), (_, c), (_, d) = parse(text)
    assert isinstance(a, Message)
    assert isinstance(b, Message)
    assert isinstance(c, Message)
    assert isinstance(d, BadRecord)
    assert [a.payload, bytes(b.payload), bytes(c.payload)] == [b"\xff", b'"x"', b'""']


def test_delays_and_cancels_come_in_columns_too__D7() -> None:
    text = "id,due,delay_ms,op,x\na,,1.5,,\nb,,,cancel,\nc,,,cancel,1\nd,,soon,,\n"
    (_, a), (_, b), (_, c), (_, d) = parse(text)
    assert isinstance(a, Message)
    assert a.due_ms == 2
    assert b == Cancel("b", None)
    assert isinstance(c, BadRecord)
    assert isinstance(d, BadRecord)


def test_a_row_that_is_broken_costs_its_own_lines_only__D2() -> None:
    text = b'id,due,x\na,D\nb,D,1,2\nc,D,"open\nd,D,1\ne,D,"shut"x\nf,D,1\ng,D,\xff\nh,D,1\n'
    text = text.replace(b"D", b"%d" % DUE_MS)
    assert reasons(text) == {
        2: "the row has 2 cells",
        3: "the row has 4 cells",
        4: "not a row of CSV: ',' expected after '\"'",
        8: "byte 17 of the line is not UTF-8",
    }
    assert [item.id for _, item in parse(text) if isinstance(item, Message)] == ["f", "h"]
    [lost] = [record.data for record in read_csv(text) if record.line == 4]
    assert lost == b'c,D,"open\nd,D,1\ne,D,"shut"x'.replace(b"D", b"%d" % DUE_MS)


def test_a_cell_may_be_as_long_as_a_payload__D12() -> None:
    [(_, message)] = parse(f"id,due,payload\na,1700000000005,{'x' * 1_000_000}\n")
    assert isinstance(message, Message)
    assert len(bytes(message.payload)) == 1_000_002


def test_a_quote_that_is_never_closed_costs_as_much_as_a_record_and_its_dead_letter_has_that__D2() -> None:
    rows = [f"m{i},1700000000005,{'x' * 1000}\n".encode() for i in range(3000)]
    bad, *rest = read_csv(b'id,due,x\na,1700000000005,"open\n' + b"".join(rows))
    assert bad.bad is not None
    assert (bad.line, bad.bad.reason, bad.bad.allowed) == (
        2,
        "a quoted cell does not end",
        "a row of at most 2,097,152 bytes",
    )
    lost = len(rows) - len(rest)
    assert bad.data == (b'a,1700000000005,"open\n' + b"".join(rows[:lost])).rstrip()
    assert MAX_RECORD < len(bad.data) < MAX_RECORD + 1100
    assert [record.id for record in rest] == [f"m{i}" for i in range(lost, len(rows))]
    assert reasons('id,due,x\na,1700000000005,"open\nb,1700000000005,1\n') == {
        2: "not a row of CSV: unexpected end of data"
    }


@pytest.mark.parametrize(
    ("text", "columns", "reason"),
    [
        ("name,due\na,1700000000005\nb,1700000000005\n", Columns(), "the header has no column id"),
        ("id,due\na,1700000000005\nb,1700000000005\n", Columns(key="tail"), "the header has no column tail"),
        ("id,due,x,x\na,1700000000005,1,2\nb,1700000000005,1,2\n", Columns(), "the header names a column twice"),
    ],
)
def test_a_header_that_can_not_be_used_is_one_error_of_the_file_also_without_rows__D2(
    text: str, columns: Columns, reason: str
) -> None:
    assert reasons(text, columns) == {1: reason}
    assert reasons(text.partition("\n")[0], columns) == {1: reason}


def test_the_error_of_a_header_names_the_option_that_would_help__D2() -> None:
    [(_, bad)] = parse("\nflight,tail,at\na,b,c\n", Columns(key="tail"))
    assert isinstance(bad, BadRecord)
    assert bad.reason == "the header has no column id, due"
    assert (
        bad.allowed
        == "--id NAME and --due NAME, with a name of this file: flight, tail, at; no row of the file is read"
    )
    [(_, bad)] = parse("id,due,text,text\n")
    assert isinstance(bad, BadRecord)
    assert bad.allowed == "each name once, and not 'text' again; no row of the file is read"
    assert reasons("id,op\na,cancel\n") == reasons("id,delay_ms\na,5\n") == {}


def test_a_header_that_can_not_be_read_is_a_dead_letter__D2() -> None:
    assert reasons(b"id,du\xffe\na,5\n") == {1: "the header can't be read: byte 6 of the line is not UTF-8"}


def test_a_line_in_a_quoted_cell_that_is_no_text_ends_the_row__D2() -> None:
    text = b'id,due\na,"1700000000005\n\xff"\nb,1700000000005\n'
    assert reasons(text) == {2: "line 3 in a quoted cell is too long, or not UTF-8"}
    assert [line for line, _ in parse(text)] == [2, 4]


def test_a_byte_order_mark_is_no_part_of_the_first_name__D1() -> None:
    [(_, message)] = parse(b"\xef\xbb\xbfid,due\na,1700000000005\n")
    assert isinstance(message, Message)


def test_an_empty_file_holds_nothing__D1() -> None:
    assert parse("") == []
    assert parse("id,due\n") == []


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_the_header_says_what_separates_the_cells__D2(separator: str) -> None:
    lines = 'id,due,"x",y\na,1700000000005,"1,5;2\t3",z\n"b",1700000000006,"two\nlines",\n'
    outside = lines.replace(",", separator).replace(f"1{separator}5", "1,5")
    (_, first), (_, second) = parse(f"\n{outside}")
    assert isinstance(first, Message)
    assert isinstance(second, Message)
    assert (first.id, msgspec.json.decode(first.payload)) == ("a", {"x": "1,5;2\t3", "y": "z"})
    assert (second.id, msgspec.json.decode(second.payload)) == ("b", {"x": "two\nlines", "y": ""})


def test_a_comma_in_the_header_counts_more_than_other_separators__D2() -> None:
    [(_, message)] = parse('id,due,"a;b;c",d\te\nm,1700000000005,1;2,3\n')
    assert isinstance(message, Message)
    assert msgspec.json.decode(message.payload) == {"a;b;c": "1;2", "d\te": "3"}


@pytest.mark.parametrize("header", ["id;due;price, net", 'id;due;"price, net"', '"id";due;price, net'])
def test_the_separator_is_the_one_that_makes_a_column_of_the_id__D2(header: str) -> None:
    [(_, message)] = parse(f"{header}\na;1700000000005;1,5\n")
    assert isinstance(message, Message)
    assert (message.id, msgspec.json.decode(message.payload)) == ("a", {"price, net": "1,5"})
