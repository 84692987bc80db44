import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tickwheel.delivery import Delivery, DeliveryFailed, Message, WrongUsage
from tickwheel.delivery.appending import write_lines
from tickwheel.delivery.sinks import SinkSettings, open_sink
from tickwheel.delivery.sinks.file import FileSink
from tickwheel.delivery.sinks.lines import line_of

SETTINGS = SinkSettings("a store")
JSON = msgspec.Raw(b'{"x": 1.50}')


def delivery(id_: str = "a", payload: msgspec.Raw | bytes = JSON) -> Delivery:
    return Delivery(1, Message(id_, "k", 1, payload), delivered_at_ms=1_700_000_000_002, lateness_us=1235)


def test_a_line_has_the_fields_of_the_spec_in_order__D11() -> None:
    assert line_of(delivery()) == (
        b'{"id":"a","key":"k","due":"1970-01-01T00:00:00.001Z","payload":{"x": 1.50},'
        b'"delivered_at":"2023-11-14T22:13:20.002Z","lateness_ms":1.235,"attempt":1,"redelivered":false}\n'
    )


def test_other_bytes_are_written_as_base64__D1() -> None:
    written = json.loads(line_of(delivery(payload=b"\xff\x00")))
    assert written["payload_base64"] == "/wA="
    assert "payload" not in written


def test_a_file_is_appended_to_and_seen_at_once__D10(tmp_path: Path) -> None:
    path = tmp_path / "out.ndjson"
    path.write_bytes(b'{"id":"before"}\n{"id":"cut o')
    sink = open_sink(f"file:{path}")(SETTINGS)
    sink.send([delivery("a"), delivery("b")])
    lines = path.read_bytes().splitlines()
    assert lines[:2] == [b'{"id":"before"}', b'{"id":"cut o']
    assert [json.loads(text)["id"] for text in lines[2:]] == ["a", "b"]
    sink.close()


def test_standard_output_is_written_at_once_and_stays_open__D10(capfdbinary: Any) -> None:
    sink = open_sink("-")(SETTINGS)
    sink.send([delivery()])
    sink.close()
    assert capfdbinary.readouterr().out == line_of(delivery())
    os.write(1, b"")


def test_a_file_that_can_not_be_opened_is_wrong_usage__D2(tmp_path: Path) -> None:
    with pytest.raises(WrongUsage, match="No such file or directory"):
        open_sink(f"file:{tmp_path / 'none' / 'out.ndjson'}")(SETTINGS)


def test_a_full_disk_ends_the_run_and_says_so__D2() -> None:
    sink = open_sink("file:/dev/full")(SETTINGS)
    with pytest.raises(DeliveryFailed, match="No space left on device; the last 2 may be written in part"):
        sink.send([delivery("a"), delivery("b")])
    sink.close()


def test_what_was_written_is_synced_and_what_has_no_disk_is_not__D5(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    real = os.fdatasync
    monkeypatch.setattr(os, "fdatasync", lambda fd: (synced.append(fd), real(fd)))
    for spec in (f"file:{tmp_path / 'out'}", "file:/dev/null"):
        sink = open_sink(spec)(SETTINGS)
        sink.sync()
        sink.close()
    assert len(synced) == 2
    reading, writing = os.pipe()
    os.close(reading)
    FileSink(writing, owned=True).sync()
    os.close(writing)


def test_a_write_that_is_cut_short_goes_on__D2(monkeypatch: pytest.MonkeyPatch) -> None:
    written = b""

    def chunks() -> Iterator[int]:
        yield from [3, 1, 2]

    sizes = chunks()

    def write(_fd: int, data: memoryview) -> int:
        nonlocal written
        size = next(sizes)
        written += data[:size]
        return size

    monkeypatch.setattr(os, "write", write)
    write_lines(99, b"abcdef")
    assert written == b"abcdef"
