"""What is handed off comes in fast, in pieces, and is answered as a whole (rules S3, D11)."""

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import Any, cast

import pyarrow as pa
import pytest
from pyarrow import flight

from tickwheel._native import NdjsonLines, Records
from tickwheel.delivery.engine.running import Running
from tickwheel.delivery.model.entries import Answer
from tickwheel.delivery.model.message import MAX_PAYLOAD, Columns
from tickwheel.delivery.read.hand_off_rows import HANDED, batch_of
from tickwheel.delivery.serve.access import Access, Address
from tickwheel.delivery.serve.flight import HAND_OFF, FlightServer

from .conftest import Served

pytestmark = pytest.mark.timeout(30)
FAR_MS = 4_000_000_000_000


def rows(count: int, name: str = "m", size: int = 1) -> Any:
    line = b'{"id": "%s%d", "due": %d, "payload": "%s"}'
    lines = b"\n".join(line % (name.encode(), n, FAR_MS, b"x" * size) for n in range(count))
    return batch_of(NdjsonLines("in", Columns().names, 2 * MAX_PAYLOAD).read(lines)).select(HANDED.names)


@contextmanager
def stream(port: int) -> Iterator[tuple[Any, Any]]:
    with flight.connect(f"grpc://127.0.0.1:{port}") as client:
        options = flight.FlightCallOptions(timeout=20)
        writer, reader = client.do_exchange(flight.FlightDescriptor.for_path(HAND_OFF), options)
        writer.begin(HANDED)
        try:
            yield writer, reader
        finally:
            with suppress(pa.ArrowException):  # the test has seen it already
                writer.close()


class Disk:
    """Stands for a running engine whose commits the test makes."""

    def __init__(self) -> None:
        self.pieces: list[int] = []
        self.tickets: list[Future[list[Answer]]] = []
        self._has_changed = threading.Condition()

    def submit(self, items: Sequence[Records], _max_payload: int) -> "Future[list[Answer]]":
        ticket: Future[list[Answer]] = Future()
        with self._has_changed:
            self.pieces.append(sum(map(len, items)))
            self.tickets.append(ticket)
            self._has_changed.notify_all()
        return ticket

    def wait_for(self, count: int) -> None:
        with self._has_changed:
            assert self._has_changed.wait_for(lambda: sum(self.pieces) >= count, 20)


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def port(disk: Disk) -> Iterator[int]:
    address = Address.of("--flight", "127.0.0.1:0")
    server = FlightServer(address.url("grpc", 0), cast("Running", disk), Access(None, address), MAX_PAYLOAD)
    yield server.port
    assert server.stop(5)


def test_no_piece_of_a_batch_waits_for_the_commit_of_another_and_the_answer_for_all__S3(disk: Disk, port: int) -> None:
    with stream(port) as (writer, reader):
        writer.write_batch(rows(5_000))
        disk.wait_for(5_000)
        assert len(disk.pieces) > 1
        *most, last = disk.tickets
        for ticket in most:
            ticket.set_result([])
        answered: list[int] = []
        thread = threading.Thread(target=lambda: answered.extend(reader.read_chunk().data.column(0).to_pylist()))
        thread.start()
        thread.join(0.1)
        assert not answered, "the last piece is not on disk"
        last.set_result([])
        thread.join(20)
        assert answered == [5_000]


def test_a_piece_that_could_not_be_written_ends_the_stream__S3(disk: Disk, port: int) -> None:
    with stream(port) as (writer, reader):
        writer.write_batch(rows(1_000))
        disk.wait_for(1_000)
        *others, last = disk.tickets
        last.set_exception(OSError("the disk is full"))
        for ticket in others:
            ticket.set_result([])
        with pytest.raises(flight.FlightUnavailableError, match="the disk is full"):
            reader.read_chunk()


def test_a_piece_is_bounded_in_bytes__S3_D8(disk: Disk, port: int) -> None:
    with stream(port) as (writer, reader):
        writer.write_batch(rows(30, size=600_000))
        disk.wait_for(30)
        assert disk.pieces == [1] * 30
        for ticket in disk.tickets:
            ticket.set_result([])
        assert reader.read_chunk().data.num_rows == 1


def test_a_stream_that_is_silent_or_waits_for_its_answer_holds_up_no_other__S3(disk: Disk, port: int) -> None:
    with stream(port), stream(port) as (waiting, its_answer):
        waiting.write_batch(rows(2_000, "w"))
        disk.wait_for(2_000)
        with stream(port) as (writer, reader):
            writer.write_batch(rows(10))
            disk.wait_for(2_010)
            disk.tickets[-1].set_result([])
            assert reader.read_chunk().data.column(0).to_pylist() == [10]
        for ticket in disk.tickets[:-1]:
            ticket.set_result([])
        assert its_answer.read_chunk().data.column(0).to_pylist() == [2_000]


def test_what_is_answered_is_on_disk_whatever_its_size__S3(served: Served) -> None:
    before = served.running.waiting
    with stream(served.flight_port) as (writer, reader):
        for count in (1, 512, 513, 4_000):
            writer.write_batch(rows(count, f"n{count}."))
            assert reader.read_chunk().data == pa.record_batch([[count]], reader.schema)
    assert served.running.waiting == before + 1 + 512 + 513 + 4_000
