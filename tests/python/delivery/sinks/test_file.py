"""Files and standard output, as a user sees them; `crates/delivery/src/sinks/file.rs` has the parts."""

import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tickwheel._printable import ESCAPES, printable
from tickwheel.delivery import Delivery, DeliveryFailed, DeliveryQueue, Message, WrongUsage
from tickwheel.delivery.base.appending import write_lines
from tickwheel.delivery.observe.dead_letters import to_file
from tickwheel.delivery.sinks import Destination, open_sink

pytestmark = pytest.mark.timeout(60)

JSON = msgspec.Raw(b'{"x": 1.50}')
LONG_S = 20


def message(id_: str = "a", payload: msgspec.Raw | bytes = JSON) -> Message:
    return Message(id_, "k", 1, payload)


def deliver(folder: Path, spec: str, *messages: Message) -> None:
    with DeliveryQueue(folder / "store.db", to=spec) as queue:
        queue.put_many(messages)
        assert queue.wait_until_empty(LONG_S)


def test_a_line_has_the_fields_of_the_spec_in_order__D11(tmp_path: Path) -> None:
    path = tmp_path / "out.ndjson"
    deliver(tmp_path, f"file:{path}", message())
    [line] = path.read_bytes().splitlines()
    assert line.startswith(
        b'{"id":"a","key":"k","due":"1970-01-01T00:00:00.001Z","payload":{"x": 1.50},"delivered_at":'
    )
    assert [*json.loads(line)][4:] == ["delivered_at", "lateness_ms", "attempt", "redelivered"]


def test_a_delivery_has_the_same_line__D11() -> None:
    one = Delivery(1, message(), delivered_at_ms=1_700_000_000_002, lateness_us=1235)
    assert one.line == (
        b'{"id":"a","key":"k","due":"1970-01-01T00:00:00.001Z","payload":{"x": 1.50},'
        b'"delivered_at":"2023-11-14T22:13:20.002Z","lateness_ms":1.235,"attempt":1,"redelivered":false}\n'
    )


def test_other_bytes_are_written_as_base64__D1(tmp_path: Path) -> None:
    path = tmp_path / "out.ndjson"
    deliver(tmp_path, f"file:{path}", message(payload=b"\xff\x00"))
    written = json.loads(path.read_bytes())
    assert written["payload_base64"] == "/wA="
    assert "payload" not in written


def test_a_file_is_appended_to_and_seen_at_once__D10(tmp_path: Path) -> None:
    path = tmp_path / "out.ndjson"
    path.write_bytes(b'{"id":"before"}\n{"id":"cut o')
    with DeliveryQueue(tmp_path / "store.db", to=f"file:{path}") as queue:
        queue.put_many([message("a"), message("b")])
        assert queue.wait_until_empty(LONG_S)
        lines = path.read_bytes().splitlines()
    assert lines[:2] == [b'{"id":"before"}', b'{"id":"cut o']
    assert [json.loads(text)["id"] for text in lines[2:]] == ["a", "b"]


_TO_STDOUT = """
import sys
from tickwheel.delivery import DeliveryQueue
with DeliveryQueue(sys.argv[1], to="-") as queue:
    queue.put("a", delay_ms=0)
    assert queue.wait_until_empty(20)
    print("the queue is empty", flush=True)
    sys.stdin.readline()
print("and it is closed", flush=True)
"""


def test_standard_output_is_written_at_once_and_stays_open__D10(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _TO_STDOUT, str(tmp_path / "store.db")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert json.loads(child.stdout.readline())["id"] == "a"
        assert child.stdout.readline() == "the queue is empty\n"
        rest, _ = child.communicate("\n")
    assert (rest, child.returncode) == ("and it is closed\n", 0)


def test_a_pipe_whose_reader_is_gone_ends_the_run_and_says_so__D2(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    child = subprocess.Popen(
        [sys.executable, "-c", _TO_STDOUT, str(tmp_path / "store.db")],
        stdin=subprocess.DEVNULL,
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(reading)
    os.close(writing)
    _, said = child.communicate()
    assert child.returncode == 1
    assert "DeliveryFailed: the destination can't be written: Broken pipe; the last 1 may be written in part" in said


def test_a_file_that_can_not_be_opened_is_wrong_usage_when_it_is_opened__D2(tmp_path: Path) -> None:
    path = tmp_path / "none" / "out.ndjson"
    opener = open_sink(f"file:{path}")
    with pytest.raises(WrongUsage, match=r"out\.ndjson can't be written: No such file or directory: name a file"):
        DeliveryQueue(tmp_path / "store.db", to=f"file:{path}")
    assert isinstance(opener, Destination)


def test_a_full_disk_ends_the_run_says_so_and_loses_nothing__D2(tmp_path: Path) -> None:
    full = "the destination can't be written: No space left on device; the last [12] may be written in part"
    with pytest.raises(DeliveryFailed, match=full):
        deliver(tmp_path, "file:/dev/full", message("a"), message("b"))
    deliver(tmp_path, f"file:{tmp_path / 'out'}", message("a"), message("b"))
    lines = (tmp_path / "out").read_bytes().splitlines()
    assert sorted(json.loads(line)["id"] for line in lines) == ["a", "b"]


def test_what_has_no_disk_needs_no_sync__D5(tmp_path: Path) -> None:
    deliver(tmp_path, "file:/dev/null", message("a"))
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    deliver(tmp_path, f"file:{pipe}", message("b"))
    assert b'"id":"b"' in os.read(reader, 1 << 16)
    os.close(reader)


def test_a_terminal_gets_no_characters_that_it_obeys__D12(tmp_path: Path) -> None:
    """A pipe and a file get the payload as it came."""
    obeyed = "".join(chr(code) for code in ESCAPES if 126 < code < 0xE0010)  # JSON itself escapes the others
    given = tmp_path / "in.ndjson"
    record = {"id": f"a{obeyed}", "due": 100000000000, "payload": {"of": f"b{obeyed}"}}
    spaced = json.dumps(record, ensure_ascii=False).replace('"of": ', '"of":\t')
    given.write_text(spaced + "\n")
    terminal, end = pty.openpty()
    command = [sys.executable, "-m", "tickwheel", "deliver", str(given)]
    piped = subprocess.run(command, capture_output=True, check=True, timeout=LONG_S).stdout.decode()
    subprocess.run(command, stdout=end, stderr=subprocess.PIPE, check=True, timeout=LONG_S)
    shown = os.read(terminal, 1 << 16).decode()
    os.close(terminal)
    os.close(end)
    assert f'"payload":{{"of":\t"b{obeyed}"}}' in piped
    assert shown.strip().startswith(printable(f'{{"id":"a{obeyed}"'))
    assert f'"payload":{{"of": "{printable(f"b{obeyed}")}"}}' in shown
    assert json.loads(shown)["payload"] == record["payload"]


def test_a_pipe_without_a_reader_takes_nothing__D2(tmp_path: Path) -> None:
    """It would keep what was written until its close, and lose it then."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(WrongUsage, match="it is a pipe without a reader"):
        deliver(tmp_path, f"file:{pipe}", message("a"))
    with pytest.raises(WrongUsage, match="it is a pipe without a reader"):
        to_file(pipe)


def test_a_pipe_whose_reader_has_gone_ends_the_run__D2(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    queue = DeliveryQueue(tmp_path / "store.db", to=f"file:{pipe}")
    os.close(reader)
    queue.put("a", 1, delay_ms=0)
    with pytest.raises(DeliveryFailed, match="Broken pipe"):
        queue.wait_until_empty(LONG_S)
    with pytest.raises(DeliveryFailed, match="Broken pipe"):
        queue.close()
    with DeliveryQueue(tmp_path / "store.db", to=f"file:{tmp_path / 'out'}") as queue:
        assert queue.wait_until_empty(LONG_S)
    assert b'"id":"a"' in (tmp_path / "out").read_bytes()


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
