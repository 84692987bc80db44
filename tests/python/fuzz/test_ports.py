"""Random and mutated requests on both ports of `serve`: it lives, serves others, in bounded memory (D8, D11, D12).

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
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

pa = pytest.importorskip("pyarrow")
pytest.importorskip("uvicorn")
from pyarrow import flight  # noqa: E402

SECONDS = float(os.environ.get("TICKWHEEL_FUZZ_SECONDS", "0"))
SEED = os.environ.get("TICKWHEEL_FUZZ_SEED")
LEAST_S = 0.7
MIB = 1 << 20
MORE_MIB = 150  # than before the first case
FAR_MS = 4_000_000_000_000

pytestmark = pytest.mark.timeout(240 + SECONDS)


class Serving:
    def __init__(self, folder: Path) -> None:
        ports = ["--listen", "127.0.0.1:0", "--flight", "127.0.0.1:0"]
        files = ["--store", str(folder / "s.db"), "--to", f"file:{folder / 'out'}", "--max-payload", "1000"]
        command = [sys.executable, "-m", "tickwheel", "serve", *ports, *files]
        # gRPC logs bytes that it was sent as they are.
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, errors="backslashreplace")
        assert self.process.stderr is not None
        self.said = [self.process.stderr.readline()]
        self.http, self.flight = map(int, re.findall(r":(\d+)", self.said[0]))
        self._reading = threading.Thread(target=lambda: self.said.extend(self.process.stderr or []), daemon=True)
        self._reading.start()

    @property
    def resident_mib(self) -> float:
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / MIB

    def check(self) -> None:
        """Others are served."""
        for method, path, body in (("GET", "/healthz", None), ("POST", "/messages", {"id": "x", "due": FAR_MS})):
            connection = http.client.HTTPConnection("127.0.0.1", self.http, timeout=20)
            with contextlib.closing(connection):
                connection.request(method, path, body and json.dumps(body).encode())
                assert connection.getresponse().status in (200, 201)
        batch = pa.record_batch([["y"], [FAR_MS]], ["id", "due"])
        assert exchange(self.flight, batch) in (["accepted"], ["duplicate"])

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


def exchange(port: int, batch: object) -> list[str]:
    with flight.connect(f"grpc://127.0.0.1:{port}") as client:
        options = flight.FlightCallOptions(timeout=20)
        writer, reader = client.do_exchange(flight.FlightDescriptor.for_path("m"), options)
        with contextlib.suppress(pa.ArrowException):
            writer.begin(batch.schema)
            writer.write_batch(batch)
        try:
            found: list[str] = reader.read_chunk().data["answer"].to_pylist()
        finally:
            with contextlib.suppress(pa.ArrowException):
                writer.close()
        return found


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


def recorded(port: int, descriptor: str) -> bytes:
    """The bytes that a client of Arrow Flight sends for one batch."""
    sent = bytearray()

    def pump(source: socket.socket, target: socket.socket, kept: bytearray | None) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if kept is not None:
                    kept += data
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)

    with socket.create_server(("127.0.0.1", 0)) as between, contextlib.ExitStack() as stack:
        pumps = []

        def accept() -> None:
            client = stack.enter_context(between.accept()[0])
            server = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=20))
            for one, other, kept in ((client, server, sent), (server, client, None)):
                pumps.append(threading.Thread(target=pump, args=(one, other, kept)))
                pumps[-1].start()

        accepting = threading.Thread(target=accept)
        accepting.start()
        with contextlib.suppress(pa.ArrowException):
            exchange(between.getsockname()[1], pa.record_batch([[descriptor], [FAR_MS]], ["id", "due"]))
        accepting.join()
        for each in pumps:
            each.join(20)
    return bytes(sent)


def flight_bytes(port: int, random: Random, stream: bytes) -> None:
    data = random.randbytes(2000) if random.random() < 0.05 else mutated(random, stream)
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection, contextlib.suppress(OSError):
        place = 0
        while place < len(data):
            step = random.choice((1, 50, 5000))
            connection.sendall(data[place : place + step])
            place += step
        if random.random() < 0.5:
            connection.settimeout(0.02)
            while connection.recv(65536):
                pass


NAMES = ("id", "key", "due", "delay_ms", "payload", "payload_base64", "op", "x", "")
TYPE_MAKERS: tuple[Callable[[Random], object], ...] = (
    lambda _: pa.string(),
    lambda _: pa.binary(),
    lambda _: pa.int64(),
    lambda _: pa.float64(),
    lambda _: pa.timestamp("us", tz="UTC"),
    lambda _: pa.null(),
    lambda random: pa.list_(TYPE_MAKERS[random.randrange(6)](random)),
    lambda random: pa.dictionary(pa.int8(), TYPE_MAKERS[random.randrange(4)](random)),
    lambda random: pa.struct([("a", TYPE_MAKERS[random.randrange(6)](random))]),
)


def flight_batch(port: int, random: Random) -> None:
    names = random.sample(NAMES, random.randrange(1, 5))
    rows = random.choice((0, 1, 7, 2000))
    text = ""
    try:
        arrays = []
        for name in names:
            kind = pa.string() if name == "id" and random.random() < 0.7 else random.choice(TYPE_MAKERS)(random)
            arrays.append(garbage(random, kind, rows))
        assert len(exchange(port, pa.record_batch(arrays, names))) == rows
    except (pa.ArrowException, StopIteration) as error:  # by either side
        text = str(error)
    assert not re.search("Traceback|this server has an error", text), text


def garbage(random: Random, kind: object, rows: int) -> object:
    """An array of this type whose buffers hold anything, also what its type does not allow."""
    if pa.types.is_primitive(kind):
        size = rows * kind.bit_width // 8
        return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(random.randbytes(size))])
    if kind in (pa.string(), pa.binary()):
        lengths = [random.choice((0, 1, 5, 40)) for _ in range(rows)]
        offsets, data = [0], random.randbytes(sum(lengths))
        for length in lengths:
            offsets.append(offsets[-1] + length)
        if rows and random.random() < 0.1:
            offsets[random.randrange(rows + 1)] = random.choice((-1, 1 << 30, 3))
        text = data if random.random() < 0.5 else bytes(byte & 0x7F for byte in data)
        ints = pa.array(offsets, pa.int32()).buffers()[1]
        return pa.Array.from_buffers(kind, rows, [None, ints, pa.py_buffer(text)])
    return pa.nulls(rows, kind)


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
    run(serving, lambda random: http_case(serving.http, random), 7_000_000)


def test_the_flight_port_takes_any_bytes__D11_D12(serving: Serving) -> None:
    stream = recorded(serving.flight, "z")
    assert len(stream) > 500
    run(serving, lambda random: flight_bytes(serving.flight, random, stream), 8_000_000)


def test_the_flight_port_takes_any_batch__D11_D12(serving: Serving) -> None:
    run(serving, lambda random: flight_batch(serving.flight, random), 9_000_000)
