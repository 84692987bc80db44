"""The program for clusters (rules S1, S3): one query from an input to deliverers, which runs until a signal."""

import signal
import time
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tickwheel._printable import logger_of
from tickwheel._stopping import REQUESTS, SignalEvent
from tickwheel.delivery.base.errors import DeliveryFailed, WrongUsage
from tickwheel.delivery.serve.access import Address
from tickwheel.delivery.serve.client_tls import ClientTls
from tickwheel.spark.driver_log import Watched
from tickwheel.spark.failing import failure, reason
from tickwheel.spark.hand_off import HandOff
from tickwheel.spark.hold import hold
from tickwheel.spark.input_folder import File, InputFolder
from tickwheel.spark.inputs import Input
from tickwheel.spark.metrics import QueryMeasures, observed, served
from tickwheel.spark.orders import checked
from tickwheel.spark.query import start, watch
from tickwheel.spark.same_source import (
    Begun,
    check_files,
    check_logs,
    check_source,
    gone,
    keep_source,
)
from tickwheel.spark.session import spark_session, take_signals
from tickwheel.spark.shape import HadoopFolder, keep_shape

_ONE_HOST_LEAD_S: Final = 20.0
_CLUSTER_LEAD_S: Final = 90.0

_log = logger_of(__name__)


@dataclass(frozen=True, slots=True)
class Program:
    """What to run. `checkpoint`: any folder that all hosts share, by a path or a URI. `lead_s`: 20 where all is on one
    host, 90 elsewhere, if it is not given. `metrics`: where to serve them. `changed_source`: go on if the
    checkpoint was made for another input.
    """

    given: Input
    checkpoint: str
    deliverers: Sequence[str]
    token: bytes | None = None
    tls: ClientTls | None = None
    lost: Sequence[str] = ()
    lead_s: float | None = None
    metrics: Address | None = None
    until_delivered: bool = False
    changed_source: bool = False

    def __post_init__(self) -> None:
        checked(self.deliverers, self.lost)

    def run(self) -> int:
        """Run until a signal, or until all is delivered. Returns the exit code. Call it in the main thread.

        Errors: `WrongUsage`, `DeliveryFailed`.
        """
        began_s = time.monotonic()
        stop = SignalEvent(*REQUESTS)
        take_signals()
        try:
            session = spark_session()
        except Py4JError as error:
            raise DeliveryFailed(reason(error)) from error
        try:
            is_delivered = not stop.is_set() and self._run(session, stop, began_s)
        finally:
            session.stop()
        if is_delivered:
            _log.info("everything was delivered")
            return 0
        by = signal.Signals(stop.number)
        _log.info("stopped by %s; run it again to go on from %s", by.name, self.checkpoint)
        return 0 if by == signal.SIGTERM and not self.until_delivered else 130

    def _run(self, session: SparkSession, stop: SignalEvent, began_s: float) -> bool:
        _hush(session)
        query_folder = f"{self.checkpoint.rstrip('/')}/query"
        commits = HadoopFolder(session, f"{query_folder}/commits")
        lead_s = self._lead_s(session)
        near = observed(hold(self.given.messages(session), round(lead_s * 1000)))
        self._keep_shape(session)
        self._check_source(session, HadoopFolder(session, query_folder))
        done_before = {*commits.names()}
        hand_off = HandOff(self.deliverers, self.token, self.tls, lost=self.lost)
        watched = Watched(hand_off, QueryMeasures(lead_s), began_s)
        folder = self._input_folder(session, query_folder)
        begun = Begun(HadoopFolder(session, self.checkpoint))

        def check(progress: Mapping[str, Any] | None) -> None:
            watched(progress)
            begun(progress)
            folder.check()

        try:
            with folder.watched(), served(self.metrics, hand_off, watched.measures) as port:
                if port:
                    _log.info("metrics are at port %d", port)
                folder.check()
                query = start(near, hand_off, query_folder, stop)
                _log.info("reading %s; checkpoint %s; lead %g s", self.given.name, self.checkpoint, lead_s)
                return watch(query, hand_off, stop, check, until_delivered=self.until_delivered)
        except (PySparkException, Py4JError) as error:
            is_resuming = bool(done_before) and {*commits.names()} == done_before
            raise failure(error, self.checkpoint, is_resuming=is_resuming) from error
        finally:
            hand_off.close()

    def _input_folder(self, session: SparkSession, query_folder: str) -> InputFolder:
        """An input that is no folder has no files."""

        def files() -> Iterator[File]:
            if self.given.is_files:
                yield from (File(*it) for it in HadoopFolder(session, self.given.name).files_below())

        return InputFolder(
            self.given.name, files, HadoopFolder(session, query_folder), self.given.columns,
            keeps_age="maxFileAge" not in self.given.options,
        )  # fmt: skip

    def _keep_shape(self, session: SparkSession) -> None:
        try:
            folder = HadoopFolder(session, self.checkpoint)
            if folder.scheme == "file" and not _is_one_host(session):
                _log.warning(
                    "the checkpoint %s must be on storage that all hosts share at this path: it holds the messages",
                    self.checkpoint,
                )
            keep_shape(folder, self.given.kind)
        except OSError as error:
            raise WrongUsage(
                f"--checkpoint {self.checkpoint} can't be written: {error.strerror}: name a folder that Spark can write"
            ) from error

    def _check_source(self, session: SparkSession, query: HadoopFolder) -> None:
        try:
            check_logs(HadoopFolder(session, self.checkpoint), query)
        except OSError as error:
            raise DeliveryFailed(
                f"the checkpoint {self.checkpoint} can't be read: {error.strerror}: restore it from a copy"
            ) from error
        topic = self.given.topic(session)
        try:
            folder, identity = HadoopFolder(session, self.checkpoint), self.given.identity(session)
            check_source(folder, identity, may_change=self.changed_source)
            keep_source(folder, identity)
            if self.given.is_files and not self.changed_source:
                check_files(query, _Listed(session))
            lost = gone(query, topic) if topic else ()
        except OSError as error:
            raise DeliveryFailed(f"{self.given.name} can't be read: {error.strerror}") from error
        if not lost:
            return
        words = f"{self.given.name} has lost records that were not read, offsets {', '.join(lost)}"
        if self.given.options.get("failOnDataLoss", "true").lower() == "true":
            raise WrongUsage(
                f"{words}: they were deleted from the topic. Give these messages again, and go on without them by "
                "--source-option failOnDataLoss=false; what is held stays held"
            )
        _log.error("%s: these messages are lost", words)

    def _lead_s(self, session: SparkSession) -> float:
        if self.lead_s is not None:
            return self.lead_s
        return _ONE_HOST_LEAD_S if _is_one_host(session) else _CLUSTER_LEAD_S


class _Listed:
    """Tells whether there is a file with an address. Lists each folder once."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session
        self._names: dict[str, Set[str]] = {}

    def __call__(self, address: str) -> bool:
        folder, _, name = address.rpartition("/")
        if folder not in self._names:
            self._names[folder] = {*HadoopFolder(self._session, folder).names()}
        return name in self._names[folder]


def _hush(session: SparkSession) -> None:
    """Spark warns of each micro-batch that is longer than the trigger of a second; `Watched` knows what is long."""
    jvm: Any = session.sparkContext._jvm
    log4j = jvm.org.apache.logging.log4j
    name = "org.apache.spark.sql.execution.streaming.runtime.ProcessingTimeExecutor"
    log4j.core.config.Configurator.setLevel(name, log4j.Level.ERROR)


def _is_one_host(session: SparkSession) -> bool:
    return str(session.sparkContext.master).startswith("local")
