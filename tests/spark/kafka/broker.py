"""One real Kafka broker, which is its own controller, in a folder of its own; only this machine can reach it."""

import ctypes
import os
import secrets
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

_LIBC = ctypes.CDLL(None)
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG
_STARTS_WITHIN_S = 60
_JAVA = ("-Xmx320m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")

_PROPERTIES = """
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
controller.quorum.bootstrap.servers=127.0.0.1:{controller}
log.dirs={data}
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
broker.session.timeout.ms=2000
broker.heartbeat.interval.ms=500
auto.create.topics.enable=true
"""


class Broker:
    """A broker that `start` starts, on the same ports and data each time; it ends with this process in any case.

    `more`: further lines of its configuration.
    """

    def __init__(self, folder: Path, jars: Path, more: str = "") -> None:
        self._folder = folder
        java = f"{os.environ['JAVA_HOME']}/bin/java" if os.environ.get("JAVA_HOME") else "java"
        self._java = [java, *_JAVA, "-cp", f"{jars}/*"]
        self._process: subprocess.Popen[bytes] | None = None
        port, controller = _free_ports(2)
        self.address = f"127.0.0.1:{port}"
        self._config = folder / "server.properties"
        properties = _PROPERTIES.format(port=port, controller=controller, data=folder / "data")
        self._config.write_text(properties + more)
        cluster = "A" + secrets.token_urlsafe(16)[1:]  # without the A it may look like an option
        format_ = ["kafka.tools.StorageTool", "format", "-t", cluster, "--standalone", "-c", str(self._config)]
        done = subprocess.run([*self._java, *format_], check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr

    def start(self) -> None:
        """Start it, and return once it answers."""
        assert self._process is None
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*self._java, "kafka.Kafka", str(self._config)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                preexec_fn=lambda: _LIBC.prctl(_DIE_WITH_PARENT, signal.SIGKILL),
            )  # fmt: skip
        until_s = time.monotonic() + _STARTS_WITHIN_S
        while True:
            try:
                self.admin().list_topics(timeout=1)
                return
            except KafkaException:
                assert self._process.poll() is None, self.log_tail()
                assert time.monotonic() < until_s, self.log_tail()

    def stop(self) -> None:
        """Stop it normally."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Kill it, whatever its state."""
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """Stop its process until `go_on`: only the system's buffers take data, and nothing is answered."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        os.waitpid(self._process.pid, os.WUNTRACED)  # until each of its threads stands still

    def go_on(self) -> None:
        """Resume it if it is paused, start it if it is not running, also after a test was over its time limit."""
        if self._process is None or self._process.poll() is not None:
            self._process = None
            self.start()
        else:
            self._process.send_signal(signal.SIGCONT)

    def log_tail(self) -> str:
        """The end of its log."""
        return (self._folder / "log").read_text(errors="replace")[-5_000:]

    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.address, "log_level": 0, "reconnect.backoff.max.ms": 200})

    def new_topic(self, name: str, partitions: int = 4, config: Mapping[str, str] | None = None) -> str:
        """Create a topic, and return its address as a sink once it exists."""
        admin = self.admin()
        [made] = admin.create_topics([NewTopic(name, partitions, 1, config=dict(config or {}))]).values()
        made.result(30)
        while len(admin.list_topics(name, timeout=30).topics[name].partitions) < partitions:
            continue
        return f"kafka://{self.address}/{name}"

    def records(self, topic: str, begin: Mapping[int, int] | None = None) -> list[confluent_kafka.Message]:
        """All committed records, partition by partition."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.address,
                "group.id": "test",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "log_level": 0,
            }
        )
        try:
            partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
            consumer.assign([TopicPartition(topic, it, (begin or {}).get(it, 0)) for it in partitions])
            found = []
            ended = 0
            while ended < len(partitions):
                message = consumer.poll(30)
                assert message is not None, self.log_tail()
                error = message.error()
                if error is None:
                    found.append(message)
                else:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    ended += 1
        finally:
            consumer.close()
        return sorted(found, key=lambda message: (message.partition() or 0, message.offset() or 0))

    def _end(self, how: signal.Signals) -> None:
        if self._process is None:
            return
        self._process.send_signal(how)
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None


def _free_ports(count: int) -> Sequence[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            with suppress(OSError):
                one.close()


def headers(message: confluent_kafka.Message) -> dict[str, bytes]:
    return dict(message.headers() or ())  # type: ignore[arg-type]
