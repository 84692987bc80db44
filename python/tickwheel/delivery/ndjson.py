"""Reads NDJSON: one JSON object per line. A blank line is no record; a name that occurs twice is an error."""

import json
from collections.abc import Iterator
from functools import lru_cache

import msgspec

from tickwheel.delivery.errors import BadRecord
from tickwheel.delivery.lines import Line, LineStream, read_lines
from tickwheel.delivery.message import Columns, Fields
from tickwheel.delivery.record import Record

_WHITE_SPACE = b" \t\r\n"
_ALLOWED = "one JSON object per line, each name once"

_object = msgspec.json.Decoder(dict[str, msgspec.Raw])
_value = msgspec.json.Decoder()
# Counts the names of the outermost object, repeated ones too: msgspec silently keeps the last of these.
_count = json.JSONDecoder(object_pairs_hook=len, parse_int=str, parse_float=str)


def read_ndjson(source: str, stream: LineStream, columns: Columns, after: int = 0) -> Iterator[Record]:
    """The records of `stream` after the line `after`, each as soon as its line is complete."""
    for line in read_lines(stream):
        data = line.data.strip(_WHITE_SPACE)
        if not data or line.number <= after:
            continue
        try:
            yield Record(source, line.number, data, fields_of(line, columns))
        except BadRecord as bad:
            yield Record(source, line.number, data, bad)


def fields_of(line: Line, columns: Columns) -> Fields:
    """The fields of a line that holds an object. Errors: `BadRecord`.

    >>> fields_of(Line(1, b'{"id": "a", "due": 5}', 21), Columns()).due
    5
    """
    text = line.text().strip(_WHITE_SPACE.decode())
    try:
        names = _count.decode(text)  # refuses a carriage return inside a string
        # So any carriage return is white space; in the output it must not split a line.
        values = _object.decode(text.replace("\r", " ").encode())
        fields = _fields(values, columns)
    except (msgspec.DecodeError, json.JSONDecodeError) as error:
        raise BadRecord(f"not a JSON object: {error}", _ALLOWED) from None
    except RecursionError:
        raise BadRecord("the JSON is nested too deep", "a few hundred levels") from None
    if names != len(values):
        raise BadRecord("a name occurs twice in the object", _ALLOWED)
    return fields


def _fields(values: dict[str, msgspec.Raw], columns: Columns) -> Fields:
    get = values.get
    id_, key, due, payload, known = _names(columns)
    return Fields(
        id=_decoded(get(id_)),
        key=_decoded(get(key)),
        due=_decoded(get(due)),
        delay_ms=_decoded(get("delay_ms")),
        op=_decoded(get("op")),
        payload=get(payload),
        payload_base64=_decoded(get("payload_base64")),
        others={name: raw for name, raw in values.items() if name not in known},
    )


@lru_cache(16)
def _names(columns: Columns) -> tuple[str, str, str, str, frozenset[str]]:
    """The names to look for in every record."""
    id_, key, due, payload = map(columns.name, ("id", "key", "due", "payload"))
    return id_, key, due, payload, columns.known()


def _decoded(raw: msgspec.Raw | None) -> object:
    return None if raw is None else _value.decode(raw)
