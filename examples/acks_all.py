"""Kafka's `acks=all`: a produce request waits until every replica has its record, or until it times out.

There is a leader and three replicas, each a thread with its own log. A replica fetches new records, appends them, and
acknowledges them by the offset of its next fetch, as Kafka's followers do. The least of these offsets is the high
watermark. Produce requests wait for it in a purgatory, under their partition. Then a replica stops.

    python examples/acks_all.py
"""

import threading
import time
from concurrent.futures import Future
from typing import NamedTuple

from tickwheel import DelayedOperation, DelayedOperationPurgatory

BROKERS = ("broker-1", "broker-2", "broker-3")


class TopicPartition(NamedTuple):
    topic: str
    partition: int


class Leader:
    """Keeps the log and the log end of each replica. Produce requests wait here for all replicas."""

    def __init__(self, partition: TopicPartition, purgatory: DelayedOperationPurgatory) -> None:
        self.partition, self.purgatory = partition, purgatory
        self.log: list[str] = []
        self.log_ends = dict.fromkeys(BROKERS, 0)  # of the replicas, from their last fetches
        self.changed = threading.Condition()

    def high_watermark(self) -> int:
        return min(self.log_ends.values())

    def produce(self, record: str, timeout_ms: int) -> Future[str]:
        with self.changed:
            request = DelayedProduce(self, len(self.log), timeout_ms)
            self.log.append(record)
            self.changed.notify_all()
        self.purgatory.try_complete_else_watch(request, [self.partition])
        return request.response

    def fetch(self, replica: str, offset: int) -> list[str]:
        """A fetch at `offset` acknowledges all records before it."""
        self.log_ends[replica] = offset
        self.purgatory.check_and_complete(self.partition)
        with self.changed:
            self.changed.wait_for(lambda: offset < len(self.log))
            return self.log[offset:]


class DelayedProduce(DelayedOperation):
    """Answers the client once the high watermark has passed the record at `offset` of the leader's log."""

    def __init__(self, leader: Leader, offset: int, timeout_ms: int) -> None:
        super().__init__(timeout_ms)
        self.leader, self.offset = leader, offset
        self.verdict = "timed out"  # unless `try_complete` changes it
        self.response: Future[str] = Future()

    def try_complete(self) -> bool:
        if self.leader.high_watermark() <= self.offset:
            return False
        self.verdict = "written"
        return self.force_complete()

    def on_complete(self) -> None:  # in time, or at the timeout
        acks = sum(self.offset < log_end for log_end in self.leader.log_ends.values())
        self.response.set_result(f"offset {self.offset}: {self.verdict}, {acks} of {len(BROKERS)} replicas")


class Replica(threading.Thread):
    def __init__(self, name: str, leader: Leader, log: list[str]) -> None:
        super().__init__(name=name, daemon=True)
        self.leader, self.log, self.dies = leader, log, False

    def run(self) -> None:
        while True:
            records = self.leader.fetch(self.name, len(self.log))
            time.sleep(0.003)  # the network
            if self.dies:
                return  # before it appends the fetched records
            self.log += records


def main() -> None:
    with DelayedOperationPurgatory("produce") as purgatory:
        leader = Leader(TopicPartition("orders", 0), purgatory)
        replicas = [Replica(name, leader, log=[]) for name in BROKERS]
        for replica in replicas:
            replica.start()
        print("five orders, acks=all")
        for request in [leader.produce(f"order {n}", timeout_ms=30_000) for n in range(5)]:
            print("  " + request.result())

        print("broker-3 dies; the sixth order waits 500 ms at most")
        replicas[2].dies = True
        began = time.monotonic()
        request = leader.produce("order 5", timeout_ms=500)
        show("meanwhile", purgatory)
        print(f"  {request.result()}, after {(time.monotonic() - began) * 1000:.0f} ms")
        show("left behind", purgatory)
        print(f"  log end {len(leader.log)}, high watermark {leader.high_watermark()}: nothing is taken back")

        print("broker-3 is back with its log, and catches up")
        Replica("broker-3", leader, replicas[2].log).start()
        print("  " + leader.produce("order 6", timeout_ms=30_000).result())
        show("left behind", purgatory)


def show(when: str, purgatory: DelayedOperationPurgatory) -> None:
    counts = f"watched {purgatory.watched}, num_delayed {purgatory.num_delayed}, len(purgatory) {len(purgatory)}"
    print(f"  {when}: {counts}")


if __name__ == "__main__":
    main()
