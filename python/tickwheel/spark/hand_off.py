"""The hand-off (rules S3 to S5): near messages go to their deliverers, and the hold learns what became of them.

    deliverers --marks--> orders --> hold --NEAR--> send, in the hold's own tasks --TOLD--> report

A deliverer answers when its rows are on its disk, and drops rows that it knows. So sending twice does no harm. Rows
that a deliverer does not take stay in the hold, and delay only their own keys.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final

from pyspark.sql import DataFrame

from tickwheel.delivery.read.hand_off_rows import PARTITIONS
from tickwheel.delivery.serve.client_tls import ClientTls
from tickwheel.spark.client import Access
from tickwheel.spark.deliverers import Deliverers
from tickwheel.spark.hold import lead_ms_of
from tickwheel.spark.orders import PROPERTY, Orders, checked
from tickwheel.spark.schemas import TOLD
from tickwheel.spark.sending import Send

_MOST_SILENCE_S: Final = 5.0


@dataclass(slots=True)
class Report:
    """The state of the hold after a micro-batch. `shards`: the last report of each shard."""

    shards: dict[int, Mapping[str, Any]]
    sent: int = 0
    failed: int = 0

    @property
    def waiting(self) -> int:
        """Messages that wait until they are near."""
        return sum(told["waiting"] for told in self.shards.values())

    @property
    def given(self) -> int:
        """Messages, and chunks of cancels, that deliverers have or may have, and that have no reported outcome."""
        return sum(told["given"] for told in self.shards.values())

    @property
    def is_empty(self) -> bool:
        """Whether nothing is held, and everything that was is delivered."""
        return len(self.shards) == PARTITIONS and self.waiting == self.given == 0


class HandOff:
    """A function for `foreachBatch`, with one action, for what `hold` gives.

    `deliverers`: `HOST:PORT` of `tickwheel serve`. The list may change from one start to the next. A key moves once its
    old deliverer has delivered its messages; the old deliverer must still answer. `lost`: deliverers that have left the
    list because their disk is lost. A deliverer that comes back at its old address with an empty disk is noticed.
    `token`: the token that they require, with the right `hand-off`. `tls`: how they are known, if they have TLS;
    without, nothing is encrypted. No micro-batch waits longer than half of the lead of `hold` for a deliverer.

    Errors: `WrongUsage` for a malformed address. `DeliveryFailed` ends the query, if a deliverer refuses the token or
    its rows.
    """

    def __init__(
        self,
        deliverers: Sequence[str],
        token: bytes | None = None,
        tls: ClientTls | None = None,
        *,
        lost: Sequence[str] = (),
    ) -> None:
        deliverers = checked(deliverers, lost)
        self._access = Access(token, tls)
        self._lost = frozenset(lost)
        self._assigned = assign(deliverers)
        self._failed: frozenset[int] = frozenset()
        self._next_batch: int | None = None
        self._deliverers: Deliverers | None = None
        self._addresses = [*deliverers]
        self.report = Report({})

    def __call__(self, near: DataFrame, batch_id: int) -> None:
        """Hand off a micro-batch, and return when each deliverer has taken its part, or can't now."""
        send = self._send_of(near, batch_id)
        if self._deliverers is None:
            self._deliverers = Deliverers(self._addresses, self._access)
        is_again = batch_id != self._next_batch  # one before it failed, or this is another query
        if is_again:
            self._failed = frozenset(range(PARTITIONS))
        self._next_batch = None
        takers = self._deliverers.ask()
        orders = Orders(takers, self._assigned, self._failed, is_again, self._lost)
        near.sparkSession.sparkContext.setLocalProperty(PROPERTY, orders.encode())
        told = [row.asDict() for row in near.mapInArrow(send, TOLD).collect()]
        self._note(told, {taker.address for taker in takers}, self._deliverers)
        self._next_batch = batch_id + 1

    @property
    def up(self) -> Mapping[str, bool]:
        """Which deliverers answered the last time; none before the first micro-batch."""
        return self._deliverers.up if self._deliverers else {}

    def close(self) -> None:
        """Ask no deliverer any more, once the query has ended."""
        if self._deliverers is not None:
            self._deliverers.close()

    def _send_of(self, near: DataFrame, batch_id: int) -> Send:
        within_s = lead_ms_of(near) / 2000
        return Send(self._access, min(_MOST_SILENCE_S, within_s / 2), within_s, batch_id)

    def _note(self, told: Sequence[Mapping[str, Any]], takers: set[str], deliverers: Deliverers) -> None:
        shards = {row["shard"]: row for row in told}
        self.report.shards |= shards
        self.report.sent += sum(row["sent"] for row in told)
        failed, waiting = set(self._failed), dict.fromkeys(self._assigned, 0)
        errors: dict[str, str] = {}
        for shard, row in shards.items():
            address = row["taker"] or self._assigned[shard]
            waiting[address] = waiting.get(address, 0) + row["waiting"] + row["given"]
            if row["error"] is not None:
                failed.add(shard)
                errors[address] = row["error"]
            elif address in takers:
                failed.discard(shard)
        deliverers.know({*self._assigned, *(row["taker"] for row in self.report.shards.values() if row["taker"])})
        self._failed = frozenset(failed)
        self.report.failed += len(errors)
        for address, why in errors.items():
            deliverers.failed(address, why)
        deliverers.say_who_is_waited_for(waiting)
        deliverers.say_who_went_back(Counter(row["taker"] for row in shards.values() if row["went_back"]))


def assign(deliverers: Sequence[str]) -> list[str]:
    """For each shard one of the deliverers, evenly spread. A longer or shorter list moves few shards (rendezvous
    hashing with a limit for each).
    """
    most = -(-PARTITIONS // len(deliverers))
    count = dict.fromkeys(deliverers, 0)
    assigned = []
    for shard in range(PARTITIONS):
        best = max((it for it in count if count[it] < most), key=lambda it: _weight(it, shard))
        count[best] += 1
        assigned.append(best)
    return assigned


def _weight(address: str, shard: int) -> bytes:
    return blake2b(f"{shard} {address}".encode(), digest_size=8).digest()
