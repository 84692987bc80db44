"""`tickwheel deliver --engine spark` (rule S1): a run like any other, whose reader is a streaming query on Spark.

The engine is in this process, and receives near messages over HTTP on loopback. With `--deliverer` it runs
elsewhere (rule S5), and this process only feeds it.
"""

import contextlib
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tickwheel._event import Event
from tickwheel._stopping import REQUESTS, SignalEvent
from tickwheel.delivery.base.errors import DeliveryFailed
from tickwheel.delivery.command.reading import ITS_START
from tickwheel.delivery.engine.running import Running
from tickwheel.delivery.model.message import MAX_PAYLOAD, Columns
from tickwheel.delivery.read.sources import Source
from tickwheel.delivery.serve.access import Access, Address
from tickwheel.delivery.serve.ports import Listening, Ports
from tickwheel.delivery.serve.tokens import Right, Tokens
from tickwheel.spark.feed import Pipeline, check_sources
from tickwheel.spark.hand_off import HandOff
from tickwheel.spark.orders import ALL_OTHERS


def reader_of(
    sources: Sequence[Source], columns: Columns, checkpoint: Path | None, lead_ms: int
) -> "Callable[[Running, Path], SparkReading]":
    """A function that makes the reader of a run. The checkpoint is beside the store, unless it is given.

    Errors: `WrongUsage`, now or when the reader is made; nothing is delivered then.
    """

    def pipeline(at: Path) -> Pipeline:
        return Pipeline(sources, columns, at, lead_ms)

    given = pipeline(checkpoint) if checkpoint else None
    if given is None:
        check_sources(sources)

    def read(running: Running, store: Path) -> SparkReading:
        return SparkReading(given or pipeline(store.with_name(f"{store.name}.checkpoint")), running)

    return read


class SparkReading(threading.Thread):
    """A thread that controls the query; the query's own threads are in a JVM."""

    def __init__(self, pipeline: Pipeline, running: Running) -> None:
        super().__init__(name="spark-deliver", daemon=True)
        self._pipeline = pipeline
        self._running = running
        self._is_stopping = Event()
        self._over = Event()
        self.stopped_at: str | None = ITS_START

    def has_ended(self, timeout_s: float) -> bool:
        """Whether everything was handed off, or the query failed, within this time."""
        return self._over.wait(timeout_s)

    def stop(self) -> None:
        """End the query, and wait until it has ended."""
        self._is_stopping.set()
        if self.is_alive():
            self.join()

    def run(self) -> None:
        """In the thread. Every error goes to the engine, which ends the run."""
        try:
            with _port(self._running) as (address, token):
                if self._feed(address, token):
                    self.stopped_at = None
        except BaseException as error:
            self._running.fail(error)
        self._over.set()

    def _feed(self, address: str, token: bytes) -> bool:
        # This is the only deliverer, so a store that it had before and has not now is lost.
        hand_off = HandOff([address], token, lost=[ALL_OTHERS])
        return self._pipeline.feed(hand_off, self._is_stopping, self._check)

    def _check(self, progress: Mapping[str, Any] | None) -> None:
        self._running.check()
        if progress is not None:
            self.stopped_at = f"micro-batch {progress['batchId']}"


def feed_others(pipeline: Pipeline, hand_off: HandOff, say: Callable[[str], object]) -> int:
    """Feed deliverers that run elsewhere until they have delivered everything or a signal comes. Returns the exit code.
    Call it in the main thread. Errors: `WrongUsage`.
    """
    stop = SignalEvent(*REQUESTS)
    last = -1

    def say_progress(progress: Mapping[str, Any] | None) -> None:
        nonlocal last
        if progress is not None and progress["batchId"] // 10 != last:  # every ten seconds or so
            last = progress["batchId"] // 10
            report = hand_off.report
            say(f"{report.waiting:,} held, {report.given:,} handed off and not settled; micro-batch {last * 10}")

    try:
        if pipeline.feed(hand_off, stop, say_progress):
            say("everything was delivered")
            return 0
    except DeliveryFailed as error:
        say(f"Failed: {error}; then run it again to go on")
        return 3
    say(f"Stopped; run it again to go on from {pipeline.checkpoint}")
    return 130


@contextlib.contextmanager
def _port(running: Running) -> Iterator[tuple[str, bytes]]:
    """A port for the hand-off, on loopback and with a token of its own, because the machine may have other users."""
    token = secrets.token_hex(32).encode()
    address = Address.of("--listen", "127.0.0.1:0")
    listening = Listening(address)
    ports = Ports(listening, Access(Tokens({token: Right.HAND_OFF}), address), None)
    try:
        ports.open(running, MAX_PAYLOAD)
        yield f"{address.ip}:{listening.port}", token
    finally:
        ports.close()
