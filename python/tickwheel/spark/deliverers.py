"""The deliverers as the driver sees them (rules S3 to S5): which answer, what they have settled, who is waited for."""

import math
import time
from collections.abc import Mapping, Sequence, Set
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Final

from tickwheel._printable import logger_of
from tickwheel.delivery.base.errors import DeliveryFailed
from tickwheel.delivery.read.hand_off_rows import PARTITIONS
from tickwheel.spark.client import Access, Client, Refused, reason_of
from tickwheel.spark.orders import Taker

_ANSWER_WITHIN_S: Final = 1.0
_CALL_TIMEOUT_S: Final = 2.0
_SAY_EVERY_S: Final = 10.0
_CLOCKS_DIFFER_MS: Final = 1_000
_SAY_SELDOM_S: Final = 600.0
_NO_ANSWER: Final = "no answer"
_NO_PORT: Final = "is it the port of tickwheel serve, and is there TLS on both sides or on none?"
_NO_TLS: Final = ("RemoteDisconnected", "Remote end closed", "no tickwheel serve")

_log = logger_of(__name__)


@dataclass(slots=True)
class _Deliverer:
    """One of them. `down_since_s`: when it did not answer any more."""

    address: str
    client: Client
    asked: "Future[Taker] | None" = None
    has_answered: bool = False
    down_since_s: float | None = None
    said_s: float = 0.0
    why: str = ""
    compared_s: float = -math.inf
    store_id: str = ""
    clock_off_ms: int = 0


class Deliverers:
    """Asks all deliverers at once, and waits for those that answered the last time."""

    def __init__(self, addresses: Sequence[str], access: Access) -> None:
        self._access = access
        self._known: dict[str, _Deliverer] = {}
        self._pool = ThreadPoolExecutor(max_workers=256, thread_name_prefix="ask-deliverer")
        self.know({*addresses})

    def know(self, addresses: Set[str]) -> None:
        """Ask these from now on: the deliverers of the list, and the earlier deliverers of shards."""
        for address in {*self._known} - addresses:
            self._known[address].client.close()
        self._known = {
            address: self._known.get(address) or _Deliverer(address, self._access.connect(address, _CALL_TIMEOUT_S))
            for address in sorted(addresses)
        }

    def ask(self) -> Sequence[Taker]:
        """The deliverers that answer. Their marks cover all messages that they took before this call.

        Errors: `DeliveryFailed` if a deliverer refuses the token and has not accepted it before.
        """
        for one in self._known.values():
            if one.asked is None:
                one.asked = self._pool.submit(self._ask, one)
        wait([one.asked for one in self._known.values() if one.asked and one.down_since_s is None], _ANSWER_WITHIN_S)
        takers = (self._answer_of(one) for one in self._known.values())
        return [taker for taker in takers if taker]

    @property
    def up(self) -> Mapping[str, bool]:
        """Which of them answer, as of the last `ask`."""
        return {one.address: one.has_answered and one.down_since_s is None for one in [*self._known.values()]}

    def say_who_is_waited_for(self, messages: Mapping[str, int]) -> None:
        """Write to the log, some times a minute, who does not answer. `messages`: how many wait for each."""
        now_s = time.monotonic()
        for one in self._known.values():
            if one.down_since_s is not None and now_s >= one.said_s + _SAY_EVERY_S:
                one.said_s = now_s
                _log.warning(
                    "the deliverer %s does not answer for %.0f s (%s); messages of its keys that wait for it, and no "
                    "others: %d", one.address, now_s - one.down_since_s, one.why, messages.get(one.address, 0),
                )  # fmt: skip

    def failed(self, address: str, why: str) -> None:
        """A deliverer answers, but did not take its rows."""
        _log.warning("the deliverer %s did not take what it was sent (%s): it is sent again", address, why)

    def say_who_went_back(self, shards: Mapping[str, int]) -> None:
        """Write to the log whose stores are older copies of themselves, and how many shards found out."""
        for address, count in shards.items():
            _log.warning(
                "the store of the deliverer %s went back to an older copy of itself (in %d of %d shards): what it had "
                "taken since, and what is not settled, is given to it again, marked as a repeat",
                address, count, PARTITIONS,
            )  # fmt: skip

    def close(self) -> None:
        """Ask no more."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        for one in self._known.values():
            one.client.close()

    def _ask(self, one: _Deliverer) -> Taker:
        asked_ms = time.time_ns() // 1_000_000
        found = one.client.marks()
        answered_ms = time.time_ns() // 1_000_000
        # It was read in between: an answer that takes long says little of a clock.
        one.clock_off_ms = min(0, found["now_ms"] - asked_ms) + max(0, found["now_ms"] - answered_ms)
        ahead_ms = found["now_ms"] - asked_ms
        return Taker(one.address, found["store_id"], found["marks"], found["openings"], found["commits"], ahead_ms)

    def _answer_of(self, one: _Deliverer) -> Taker | None:
        if one.asked is None or not one.asked.done():
            self._is_down(one, f"{_NO_ANSWER} within {_ANSWER_WITHIN_S:.0f} s")
            return None
        asked, one.asked = one.asked, None
        error = asked.exception()
        if error is None:
            if one.down_since_s is not None:
                _log.warning(
                    "the deliverer %s answers again after %.0f s", one.address, time.monotonic() - one.down_since_s
                )
            one.has_answered, one.down_since_s, one.why = True, None, ""
            self._compare_stores(one, asked.result().store_id)
            self._compare_clocks(one)
            return asked.result()
        if isinstance(error, Refused) and not one.has_answered:
            raise DeliveryFailed(f"the deliverer {one.address} refuses: {reason_of(error)}") from error
        self._is_down(one, reason_of(error))
        return None

    def _compare_stores(self, one: _Deliverer, store_id: str) -> None:
        if one.store_id and one.store_id != store_id:
            _log.warning(
                "the deliverer %s has another store than before: what the one before had not settled is given again, "
                "marked as a repeat", one.address,
            )  # fmt: skip
        one.store_id = store_id

    def _compare_clocks(self, one: _Deliverer) -> None:
        ahead_ms = one.clock_off_ms
        if abs(ahead_ms) < _CLOCKS_DIFFER_MS or time.monotonic() < one.compared_s + _SAY_SELDOM_S:
            return
        one.compared_s = time.monotonic()
        _log.warning(
            "the clock of the deliverer %s is %.1f s %s this machine's: set both; messages are due by the deliverer's",
            one.address, abs(ahead_ms) / 1000, "ahead of" if ahead_ms > 0 else "behind",
        )  # fmt: skip

    def _is_down(self, one: _Deliverer, why: str) -> None:
        if one.down_since_s is None:
            one.down_since_s, one.said_s = time.monotonic(), 0.0
        if not one.why or not why.startswith(_NO_ANSWER):  # which says less than what was found before
            one.why = f"{why}; {_NO_PORT}" if any(part in why for part in _NO_TLS) else why
