"""The hand-off (rule S3): sends what the hold releases to the deliverers over Arrow Flight, and waits for the answers.

A deliverer answers a batch when it is on its disk. It drops what it has already taken, so sending a batch twice does no
harm. While a deliverer is down, the micro-batch waits and the query does not fail. The state is committed after the
micro-batch, so no message leaves the hold before its answer.
"""

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
from pyarrow import flight
from pyspark.sql import DataFrame

from tickwheel.delivery.handed import HANDED
from tickwheel.delivery.retry import Retry
from tickwheel.delivery.serve.client_tls import ClientTls
from tickwheel.delivery.serve.flight import HAND_OFF
from tickwheel.spark.hold import PARTITIONS
from tickwheel.spark.parse import partition_of
from tickwheel.spark.schemas import MESSAGES, TAKEN

_ROWS: Final = 2_000
_BYTES: Final = 16 << 20
_AGAIN: Final = Retry(first_ms=100, longest_ms=5_000)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class HandOff:
    """A function for `foreachBatch`, with one action. `deliverers`: `HOST:PORT` of Flight, in a fixed order, because
    the place in the list decides which keys one gets. `token`: the token that they require, with the right to produce.
    `tls`: how they are known, if they have TLS; without, nothing is encrypted.
    """

    deliverers: Sequence[str]
    token: bytes | None = field(default=None, repr=False)
    tls: ClientTls | None = None

    def __call__(self, near: DataFrame, _batch_id: int) -> None:
        """Hand off these `MESSAGES`, those of one key in due order, and return when all are taken."""
        rows = near.select(*MESSAGES.names, partition_of(PARTITIONS).alias("partition"))
        # The hold spreads a key's seconds over tasks. Here one task has all messages of a key, because overdue messages
        # have no timer that puts them in order.
        in_order = rows.repartition("partition").sortWithinPartitions("due_ms", "source", "line")
        in_order.mapInArrow(self._send_all, TAKEN).collect()

    def _send_all(self, batches: Iterator[Any]) -> Iterator[Any]:
        """In a worker: send the rows of one task, in order, each to its deliverer."""
        streams = [_DelivererStream(deliverer, self.token, self.tls) for deliverer in self.deliverers]
        try:
            sent = 0
            for batch in batches:
                table = pa.table(batch)
                place = table.column("partition").to_numpy() % len(streams)
                for number, stream in enumerate(streams):
                    for part in _parts(table.filter(pa.array(place == number)).select(HANDED.names)):
                        stream.send(part)
                        sent += part.num_rows
            yield pa.record_batch([[sent]], ["rows"])
        finally:
            for stream in streams:
                stream.close()


class _DelivererStream:
    """A stream to one deliverer, opened when it is needed, and reopened when it breaks."""

    def __init__(self, deliverer: str, token: bytes | None, tls: ClientTls | None) -> None:
        self._deliverer = deliverer
        self._token = token
        self._tls = tls
        self._stream: tuple[Any, Any, Any] | None = None

    def send(self, batch: Any) -> None:
        """Return once it is taken. Errors that no retry can repair: `FlightServerError` for what the deliverer refuses,
        `FlightUnauthenticatedError`, `FlightUnauthorizedError`.
        """
        attempt = 0
        while True:
            try:
                _, writer, reader = self._open()
                writer.write_batch(batch)
                reader.read_chunk()
                return
            except (
                flight.FlightUnavailableError,
                flight.FlightTimedOutError,
                flight.FlightInternalError,
                OSError,
                StopIteration,
            ) as error:
                self.close()
                attempt += 1
                _log.warning("the deliverer %s does not answer (%s): trying again", self._deliverer, error)
                time.sleep(_AGAIN.delay_ms(attempt) / 1000)

    def close(self) -> None:
        """Close the stream, whatever its state."""
        if self._stream is None:
            return
        client, writer, _ = self._stream
        self._stream = None
        for end in (writer.close, client.close):
            with suppress(pa.ArrowException, OSError):
                end()

    def _open(self) -> tuple[Any, Any, Any]:
        if self._stream is None:
            client = _connect(self._deliverer, self._tls)
            headers = [(b"authorization", b"Bearer " + self._token)] if self._token else []
            options = flight.FlightCallOptions(headers=headers)
            writer, reader = client.do_exchange(flight.FlightDescriptor.for_path(HAND_OFF), options)
            self._stream = client, writer, reader
            writer.begin(HANDED)
        return self._stream


def _connect(deliverer: str, tls: ClientTls | None) -> Any:
    if tls is None:
        return flight.connect(f"grpc://{deliverer}")
    return flight.connect(f"grpc+tls://{deliverer}", tls_root_certs=tls.ca, cert_chain=tls.cert, private_key=tls.key)


def _parts(table: Any) -> Iterator[Any]:
    """Batches of a size that a deliverer takes: by number of rows, and smaller where rows are large."""
    if not table.num_rows:
        return
    step = max(1, min(_ROWS, _BYTES * table.num_rows // max(1, table.nbytes)))
    for start in range(0, table.num_rows, step):
        [batch] = table.slice(start, step).combine_chunks().to_batches()
        yield batch.cast(HANDED)
