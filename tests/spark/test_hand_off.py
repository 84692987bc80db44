"""The hand-off to a real Flight server, without a JVM: answers, waiting, retries (rules S3, S5, D5)."""

import pickle
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import flight

from delivery.certificates import authority, signed
from tickwheel.delivery import DeliveryQueue
from tickwheel.delivery.errors import BadRecord
from tickwheel.delivery.message import Cancel
from tickwheel.delivery.serve.access import Access, Address
from tickwheel.delivery.serve.client_tls import ClientTls
from tickwheel.delivery.serve.flight import FlightServer
from tickwheel.delivery.serve.ports import Listening, Ports
from tickwheel.delivery.serve.tls import Certificates, TlsFiles
from tickwheel.delivery.serve.tokens import Right, Tokens
from tickwheel.spark.hand_off import HandOff

from .rows import message, row, with_partition

pytestmark = pytest.mark.timeout(60)
FAR_MS = 2_000_000_000_000
TOKEN = b"a token of this test"
READER = b"one that only reads"


@contextmanager
def deliverer(store: Path, port: int = 0, token: bytes | None = TOKEN) -> Iterator[tuple[DeliveryQueue, str]]:
    """A queue with a port; closed at the end."""
    with DeliveryQueue(store, to=lambda _: None) as queue:
        address = Address.of("--flight", f"127.0.0.1:{port}")
        access = Access(Tokens({token: Right.PRODUCE}) if token else None, address)
        server = FlightServer(address.url("grpc", port), queue._running, access, 1 << 20)
        try:
            yield queue, f"127.0.0.1:{server.port}"
        finally:
            server.stop(5)


@contextmanager
def encrypted(store: Path, certificates: Certificates) -> Iterator[tuple[DeliveryQueue, str]]:
    """A queue with the ports of `serve`; closed at the end."""
    with DeliveryQueue(store, to=lambda _: None) as queue:
        listening = Listening(Address.of("--listen", "127.0.0.1:0"), Address.of("--flight", "127.0.0.1:0"))
        access = Access(Tokens({TOKEN: Right.PRODUCE, READER: Right.READ}), *listening.addresses)
        ports = Ports(listening, access, certificates)
        urls = ports.open(queue._running, 1 << 20)
        try:
            yield queue, urls.rpartition("/")[2]
        finally:
            ports.stop_requests()
            assert ports.stop_streams()


def send(hand_off: HandOff, *batches: Any) -> int:
    [answer] = hand_off._send_all(iter(batches))
    [sent] = answer.column(0).to_pylist()
    return int(sent)


def far(*ids: str) -> list[tuple[Any, ...]]:
    return [row(message(id_, FAR_MS, key="k"), n) for n, id_ in enumerate(ids)]


def test_messages_cancels_and_dead_letters_arrive_and_copies_are_counted__S3_D5(tmp_path: Path) -> None:
    with deliverer(tmp_path / "s.db") as (queue, at):
        copied = [row(message("b", FAR_MS))] * 3
        rows = [*far("a"), *copied, row(Cancel("a", "k")), row(BadRecord("why", "what"), 9)]
        assert send(HandOff([at], TOKEN), with_partition(*rows, partition=0)) == 6
        assert send(HandOff([at], TOKEN), with_partition(*far("a"), partition=0)) == 1
        found = queue.summary
        assert (found.accepted, found.duplicates, found.cancelled, found.dead_letters) == (2, 3, 1, 1)
        assert queue.state("b") == "waiting"
        assert queue.state("a", "k") == "cancelled"


def test_a_batch_of_any_size_is_sent_in_parts_that_a_deliverer_takes__S3_D12(tmp_path: Path) -> None:
    large = [row(message(str(n), FAR_MS, payload=b'"%s"' % (b"x" * 900_000)), n) for n in range(40)]
    with deliverer(tmp_path / "s.db") as (queue, at):
        small = far(*map(str, range(100, 5_100)))
        assert send(HandOff([at], TOKEN), with_partition(*large, *small, partition=0)) == 5_040
        assert len(queue) == 5_040


def test_each_partition_goes_to_its_deliverer__S5(tmp_path: Path) -> None:
    with deliverer(tmp_path / "a.db") as (first, at), deliverer(tmp_path / "b.db") as (second, at_second):
        rows = far(*(f"m{n}" for n in range(10)))
        assert send(HandOff([at, at_second], TOKEN), with_partition(*rows)) == 10
        assert {n for n in range(10) if first.state(f"m{n}", "k") == "waiting"} == {0, 2, 4, 6, 8}
        assert {n for n in range(10) if second.state(f"m{n}", "k") == "waiting"} == {1, 3, 5, 7, 9}


def test_one_that_is_down_is_waited_for_and_what_was_not_answered_is_sent_again__S3_S4(tmp_path: Path) -> None:
    with deliverer(tmp_path / "s.db") as (_, at):
        port = int(at.rpartition(":")[2])
    sent: list[int] = []
    batch = with_partition(*far("a", "b"), partition=0)
    thread = threading.Thread(target=lambda: sent.append(send(HandOff([at], TOKEN), batch)))
    thread.start()
    thread.join(0.5)
    assert not sent, "no deliverer answers"
    with deliverer(tmp_path / "s.db", port) as (queue, _):
        thread.join(30)
        assert sent == [2]
        assert len(queue) == 2


def test_what_waiting_will_not_mend_ends_the_task__S3(tmp_path: Path) -> None:
    wrong = pytest.raises(flight.FlightUnauthenticatedError, match="the token is wrong")
    with deliverer(tmp_path / "s.db") as (_, at), wrong:
        send(HandOff([at], b"another token here"), with_partition(*far("a"), partition=0))


def test_it_speaks_tls_and_shows_its_certificate__D12_S3(tmp_path: Path) -> None:
    ca = authority(tmp_path)
    server, client = signed(ca), signed(ca, "client")
    tls = ClientTls.read(ca.cert, *client)
    with encrypted(tmp_path / "s.db", Certificates(TlsFiles(*server, ca.cert))) as (queue, at):
        assert send(pickle.loads(pickle.dumps(HandOff([at], TOKEN, tls))), with_partition(*far("a"), partition=0)) == 1
        assert queue.state("a", "k") == "waiting"
        with pytest.raises(flight.FlightUnauthorizedError, match="this token may read, and the request needs produce"):
            send(HandOff([at], READER, tls), with_partition(*far("b"), partition=0))
        assert queue.state("b", "k") == "unknown"


def test_no_secret_of_it_can_be_seen__D12(tmp_path: Path) -> None:
    tls = ClientTls.read(authority(tmp_path).cert, *authority(tmp_path, "own"))
    assert "PRIVATE KEY" not in repr(HandOff(["a:1"], TOKEN, tls))
    assert TOKEN.decode() not in repr(HandOff(["a:1"], TOKEN, tls))


def test_a_stream_with_other_columns_is_refused__S3(tmp_path: Path) -> None:
    with deliverer(tmp_path / "s.db", token=None) as (_, at), flight.connect(f"grpc://{at}") as client:
        writer, reader = client.do_exchange(flight.FlightDescriptor.for_path("hand-off"))
        other = pa.record_batch([["a"]], ["id"])
        writer.begin(other.schema)
        writer.write_batch(other)
        with pytest.raises(flight.FlightServerError, match="those of a hand-off"):
            reader.read_chunk()
        with pytest.raises(flight.FlightServerError):
            writer.close()


def test_a_row_that_no_deliverer_can_take_is_a_dead_letter__D2(tmp_path: Path) -> None:
    with deliverer(tmp_path / "s.db") as (queue, at):
        broken = row(message("a", FAR_MS, payload=b"no json"))
        assert send(HandOff([at], TOKEN), with_partition(broken, partition=0)) == 1
        assert (queue.summary.accepted, queue.summary.dead_letters) == (0, 1)
