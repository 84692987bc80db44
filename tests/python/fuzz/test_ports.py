"""Random and mutated requests on the port of `serve`: it lives, serves others, in bounded memory (D8, D11, D12).

Each run takes a second or so; `TICKWHEEL_FUZZ_SECONDS=60` goes on for so long in total. A failure names its seed, and
`TICKWHEEL_FUZZ_SEED=N` begins with it. The cases are the same each time; those of `make soak` are new ones.
"""

import contextlib
import http.client
import json
import os
import re
import secrets
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")
pytest.importorskip("uvicorn")

from delivery.batches import stream  # noqa: E402
from tickwheel._native import NdjsonLines  # noqa: E402
from tickwheel.delivery.model.message import Columns  # noqa: E402
from tickwheel.delivery.read.hand_off_rows import HANDED, batch_of  # noqa: E402

SECONDS = float(os.environ.get("TICKWHEEL_FUZZ_SECONDS", "0"))
SEED = os.environ.get("TICKWHEEL_FUZZ_SEED")
LEAST_S = 0.7
MIB = 1 << 20
MORE_MIB = 150  # than before the first case
FAR_MS = 4_000_000_000_000

pytestmark = pytest.mark.timeout(240 + SECONDS)


class Serving:
    def __init__(self, folder: Path) -> None:
        ports = ["--listen", "127.0.0.1:0"]
        files = ["--store", str(folder / "s.db"), "--to", f"file:{folder / 'out'}", "--max-payload", "1000"]
        command = [sys.executable, "-m", "tickwheel", "serve", *ports, *files]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        self.said = [self.process.stderr.readline()]
        self.port = int(self.said[0].rpartition(":")[2])
        self._reading = threading.Thread(target=lambda: self.said.extend(self.process.stderr or []), daemon=True)
        self._reading.start()

    @property
    def resident_mib(self) -> float:
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / MIB

    def check(self) -> None:
        """Others are served."""
        for method, path, body in (("GET", "/healthz", None), ("POST", "/messages", {"id": "x", "due": FAR_MS})):
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
            with contextlib.closing(connection):
                connection.request(method, path, body and json.dumps(body).encode())
                assert connection.getresponse().status in (200, 201)
        batch = pa.record_batch([["y"], [FAR_MS]], ["id", "due"])
        for path, body in (("/messages", stream(batch)), ("/hand-off", HANDED_OFF)):
            assert arrow(self.port, body, path)[0] == 200

    def end(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(30) == 0
        self._reading.join(20)
        assert not [line for line in self.said if "Traceback" in line], "".join(self.said[-50:])


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Serving]:
    server = Serving(tmp_path)
    try:
        yield server
        server.end()
    finally:
        server.process.kill()
        server.process.communicate()


ARROW = "application/vnd.apache.arrow.stream"
HANDED_OFF = stream(
    batch_of(
        NdjsonLines("in", Columns(), 1000).read(
            b'{"id": "h", "key": "k", "due": 4000000000000, "payload": [1]}\n{"id": "c", "op": "cancel"}\noops\n'
            b'{"id": "r", "every": 60000, "payload": "x"}\n{"id": "h", "op": "reschedule", "due": 4000000000001}'
        )
    ).select(HANDED.names)
)


def arrow(port: int, body: bytes, path: str = "/messages") -> tuple[int, bytes]:
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=20)) as connection:
        connection.request("POST", path, body, {"content-type": ARROW})
        response = connection.getresponse()
        return response.status, response.read()


def mutated(random: Random, data: bytes) -> bytes:
    """Some bytes changed, left out, repeated or put in."""
    out = bytearray(data)
    for _ in range(random.choice((0, 1, 1, 2, 5, 30))):
        start = random.randrange(len(out) + 1)
        end = min(len(out), start + random.choice((1, 1, 2, 8, 100)))
        match random.randrange(5):
            case 0:
                out[start:end] = random.randbytes(end - start)
            case 1:
                del out[start:end]
            case 2:
                out[start:start] = out[start:end] * random.choice((1, 2, 50))
            case 3:
                out[start:start] = random.choice(ODD)
            case _ if start < len(out):
                out[start] ^= 1 << random.randrange(8)
    return bytes(out)


ODD = (
    *(b"\0", b"\r\n", b"\n", b"\r\n\r\n", b": ", b"%00", b"%", b"\xff\xfe", b"{", b'"', b"\\u0000", b"[" * 2000),
    *(b"-1", b"0", b"99999999999999999999", b"1e999", b"chunked", b"expect: 100-continue\r\n", b"x" * 70_000),
    *(b"transfer-encoding: chunked\r\n", b"content-length: 5\r\n", b"upgrade: websocket\r\nconnection: upgrade\r\n"),
)
BODIES = (
    b'{"id": "a", "key": "k", "due": 4000000000000, "payload": {"n": 1.50}}',
    b'{"id": "b", "delay_ms": 1, "payload_base64": "AAEC"}\n{"id": "b", "op": "cancel"}\n\n{"id": "c", "due": "soon"}',
    b"",
)
PATHS = (b"/messages", b"/messages/a?key=k", b"/messages/%C3%A9", b"/metrics", b"/healthz", b"/", b"*", b"/messages/")
METHODS = (b"GET", b"POST", b"DELETE", b"PUT", b"HEAD", b"OPTIONS", b"PATCH", b"CONNECT")
TYPES = (b"", b"content-type: application/x-ndjson\r\n", b"content-type: application/json\r\n")


def request(random: Random) -> bytes:
    body = random.choice(BODIES)
    method = random.choice(METHODS[:2] if random.random() < 0.7 else METHODS)
    head = b"%s %s HTTP/1.1\r\nhost: 127.0.0.1\r\n%s" % (method, random.choice(PATHS), random.choice(TYPES))
    if random.random() < 0.3:
        cut = random.randrange(len(body) + 1)
        chunks = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (body[:cut], body[cut:]) if part)
        return head + b"transfer-encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"
    return head + b"content-length: %d\r\n\r\n" % len(body) + body


def statuses(port: int, data: bytes, *, reads: bool) -> list[int]:
    """What the answers to these bytes begin with, until it is silent or closes."""
    got = b""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection, contextlib.suppress(OSError):
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        while reads and (part := connection.recv(65536)):
            got += part
    return [int(found) for found in re.findall(rb"HTTP/1\.1 (\d{3}) ", got)]


def http_case(port: int, random: Random) -> None:
    data = b"".join(mutated(random, request(random)) for _ in range(random.choice((1, 1, 3))))
    if random.random() < 0.05:
        data = random.randbytes(random.randrange(2000))
    found = statuses(port, data, reads=random.random() < 0.9)
    assert not [status for status in found if status == 500], data[:500]


def arrow_bytes(port: int, random: Random, streams: Sequence[bytes]) -> None:
    """A stream, mutated, as a whole or in chunks of any size; sometimes not to its end."""
    data = random.randbytes(2000) if random.random() < 0.05 else mutated(random, random.choice(streams))
    path = random.choice((b"/messages", b"/hand-off", b"/messages?replace=true&at_latest_ms=5"))
    head = b"POST %s HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: %s\r\n" % (path, ARROW.encode())
    if random.random() < 0.5:
        sent, place = bytearray(head + b"transfer-encoding: chunked\r\n\r\n"), 0
        while place < len(data):
            part = data[place : place + random.choice((1, 50, 5000))]
            sent += b"%x\r\n%s\r\n" % (len(part), part)
            place += len(part)
        sent += b"0\r\n\r\n"
    else:
        sent = bytearray(head + b"content-length: %d\r\n\r\n" % len(data) + data)
    if random.random() < 0.1:
        del sent[random.randrange(len(head), len(sent)) :]
    found = statuses(port, bytes(sent), reads=random.random() < 0.95)
    assert {*found} <= {200, 400, 413}, (path, found, data[:500])


NAMES = (
    *("id", "key", "due", "delay_ms", "payload", "payload_base64", "op", "every", "cron", "tz", "missed", "expires"),
    *("traceparent", "x", ""),
)
SIMPLE: tuple[Callable[[], object], ...] = (
    *(pa.string, pa.binary, pa.int64, pa.float64, pa.null, pa.bool_, pa.int8, pa.large_string, pa.date32, pa.float16),
    *(pa.string_view, pa.binary_view),
    lambda: pa.timestamp("us", tz="UTC"),
    lambda: pa.timestamp("s"),
    lambda: pa.decimal128(38, 3),
    lambda: pa.duration("ns"),
    lambda: pa.binary(3),
)


def simple(random: Random) -> object:
    return random.choice(SIMPLE)()


TYPE_MAKERS: tuple[Callable[[Random], object], ...] = (
    *(simple, simple, simple),
    lambda random: pa.list_(simple(random)),
    lambda random: pa.list_view(simple(random)),
    lambda random: pa.list_(simple(random), 2),
    lambda random: pa.dictionary(random.choice((pa.int8(), pa.uint32())), simple(random)),
    lambda random: pa.list_(pa.dictionary(pa.int8(), simple(random))),
    lambda random: pa.struct([("a", simple(random)), ("b", simple(random))]),
    lambda random: pa.map_(pa.string(), simple(random)),
    lambda random: pa.run_end_encoded(pa.int16(), simple(random)),
)


def any_schema(random: Random) -> Any:
    names = random.sample(NAMES, random.randrange(1, 6))
    if random.random() < 0.7:
        names = list(dict.fromkeys(["id", "due", *names]))
    usual = {"id": pa.string(), "due": pa.int64()}
    kinds = [usual[it] if it in usual and random.random() < 0.8 else random.choice(TYPE_MAKERS)(random) for it in names]
    return pa.schema([*zip(names, kinds, strict=True)])


def arrow_batch(port: int, random: Random) -> None:
    """Batches of any schema, whose arrays may be broken: an answer to each row, or a refusal with the reason."""
    is_hand_off = random.random() < 0.3
    schema = HANDED if is_hand_off else any_schema(random)
    sizes = random.choices((0, 1, 7, 2000), k=random.choice((1, 1, 2, 5)))
    try:
        given = [[garbage(random, kind, rows) for kind in schema.types] for rows in sizes]
        body = stream(*(pa.RecordBatch.from_arrays(arrays, schema=schema) for arrays in given))
    except (pa.ArrowException, OverflowError):  # not even the writer takes it
        return
    path = "/hand-off" if is_hand_off or random.random() < 0.1 else "/messages"
    status, answers = arrow(port, body, path)
    assert status in (200, 400), answers[:500]
    if status == 400:
        assert json.loads(answers).keys() == {"reason", "allowed"}
        return
    if path == "/hand-off":
        assert json.loads(answers) == {"rows": sum(sizes)}
        return
    found = [json.loads(line) for line in answers.splitlines()]
    assert [each["line"] for each in found] == [*range(1, sum(sizes) + 1)]
    assert {each["status"] for each in found} <= {200, 201, 202, 400, 404, 409, 413}


def garbage(random: Random, kind: Any, rows: int) -> Any:
    """An array of this type whose buffers hold anything, also what its type does not allow."""
    types = pa.types
    valid = pa.py_buffer(random.randbytes((rows + 7) // 8)) if random.random() < 0.2 else None
    if types.is_null(kind):
        return pa.Array.from_buffers(kind, rows, [None])
    if types.is_primitive(kind) or types.is_fixed_size_binary(kind) or types.is_decimal(kind):
        size = (rows * kind.bit_width + 7) // 8
        near = random.random() < 0.3 and kind == pa.int64()
        data = pa.array([FAR_MS] * rows, pa.int64()).buffers()[1] if near and rows else None
        return pa.Array.from_buffers(kind, rows, [valid, data or pa.py_buffer(random.randbytes(size))])
    if types.is_dictionary(kind):
        values = garbage(random, kind.value_type, random.choice((0, 1, 3)))
        size = rows * kind.index_type.bit_width // 8
        data = bytes(size) if random.random() < 0.7 else random.randbytes(size)
        indices = pa.Array.from_buffers(kind.index_type, rows, [valid, pa.py_buffer(data)])
        return pa.DictionaryArray.from_arrays(indices, values, safe=False)
    if types.is_run_end_encoded(kind):
        ends = pa.array(random.choice(([rows], [1, rows], [rows, 1], [rows // 2])), kind.run_end_type)
        children = [ends, garbage(random, kind.value_type, len(ends))]
        return pa.Array.from_buffers(kind, rows, [None], children=children)
    if kind in (pa.string_view(), pa.binary_view()):
        words = [struct.pack("<i4sii", random.choice((0, 4, 12, 40, -1)), b"abab", 0, 0) for _ in range(rows)]
        return pa.Array.from_buffers(kind, rows, [valid, pa.py_buffer(b"".join(words)), pa.py_buffer(b"ab" * 20)])
    if kind in (pa.string(), pa.binary(), pa.large_string()):
        offsets = offsets_of(random, rows, (0, 1, 5, 40))
        data = random.randbytes(offsets[-1])
        text = data if random.random() < 0.3 else bytes(byte & 0x7F for byte in data)
        ints = buffer_of(random, offsets, pa.int64() if types.is_large_string(kind) else pa.int32())
        return pa.Array.from_buffers(kind, rows, [valid, ints, pa.py_buffer(text)])
    if types.is_struct(kind):
        children = [garbage(random, field.type, rows) for field in kind]
        return pa.Array.from_buffers(kind, rows, [valid], children=children)
    if types.is_fixed_size_list(kind):
        child = garbage(random, kind.value_type, rows * kind.list_size)
        return pa.Array.from_buffers(kind, rows, [valid], children=[child])
    offsets = offsets_of(random, rows, (0, 1, 3))
    ints = buffer_of(random, offsets, pa.int32())
    if types.is_map(kind):
        keys, items = pa.array(["k"] * offsets[-1], pa.string()), garbage(random, kind.item_type, offsets[-1])
        fields = [pa.field("key", pa.string(), nullable=False), kind.item_field]
        child = pa.StructArray.from_arrays([keys, items], fields=fields)
        return pa.Array.from_buffers(kind, rows, [valid, ints], children=[child])
    child = garbage(random, kind.value_type, offsets[-1])
    if isinstance(kind, pa.ListViewType):
        lengths = [end - start for start, end in pairwise(offsets)]
        buffers = [valid, buffer_of(random, offsets[:-1], pa.int32()), buffer_of(random, lengths, pa.int32())]
        return pa.Array.from_buffers(kind, rows, buffers, children=[child])
    return pa.Array.from_buffers(kind, rows, [valid, ints], children=[child])


def offsets_of(random: Random, rows: int, lengths: Sequence[int]) -> list[int]:
    offsets = [0]
    for _ in range(rows):
        offsets.append(offsets[-1] + random.choice(lengths))
    return offsets


def buffer_of(random: Random, numbers: Sequence[int], kind: Any) -> Any:
    """These numbers, and sometimes one that is wrong."""
    given = [*numbers]
    if given and random.random() < 0.1:
        given[random.randrange(len(given))] = random.choice((-1, 1 << 30, 3))
    return pa.array(given, kind).buffers()[1] or pa.py_buffer(b"")


def run(serving: Serving, case: Callable[[Random], None], first: int) -> None:
    """Cases by their seeds, until the time is over."""
    seed = int(SEED) if SEED else secrets.randbits(32) if os.environ.get("TICKWHEEL_SOAK") else first
    serving.check()
    before_mib, ends_s, count = serving.resident_mib, time.monotonic() + max(LEAST_S, SECONDS / 3), 0
    while time.monotonic() < ends_s:
        try:
            case(Random(seed))
            if count % 50 == 0:
                serving.check()
            assert serving.process.poll() is None
            assert serving.resident_mib < before_mib + MORE_MIB
        except BaseException as error:
            error.add_note(f"to see it again: TICKWHEEL_FUZZ_SEED={seed}")
            raise
        seed, count = seed + 1, count + 1
    serving.check()


def test_the_http_port_takes_anything__D11_D12(serving: Serving) -> None:
    run(serving, lambda random: http_case(serving.port, random), 7_000_000)


def test_a_stream_may_be_any_bytes__D11_D12(serving: Serving) -> None:
    texts = pa.array(["z", "y", "z"]).dictionary_encode()
    words = pa.record_batch([texts, [FAR_MS] * 3, [b"1", b"{}", b"\xff"]], ["id", "due", "payload"])
    lists = pa.record_batch([["l"], [FAR_MS], [[{"a": [1, None]}]]], ["id", "due", "payload"])
    streams = [stream(words, words), stream(lists, lists), HANDED_OFF]
    run(serving, lambda random: arrow_bytes(serving.port, random, streams), 8_000_000)


def test_a_stream_may_have_any_batches__D11_D12(serving: Serving) -> None:
    run(serving, lambda random: arrow_batch(serving.port, random), 9_000_000)
