"""After a crash a sink of Python is asked what has arrived (D5); `crates/delivery/src/scenarios/recovering.rs` and its
neighbours have what follows.
"""

import itertools
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec
import pytest

from delivery.delivering import LONG_S, Run, crashed, opener_of
from tickwheel.delivery import Delivery, DeliveryFailed, Message
from tickwheel.delivery.sinks import Refusals, Sink

pytestmark = pytest.mark.timeout(60)

THREE = [Message(str(number), "k", number, msgspec.Raw(b"1")) for number in (1, 2, 3)]


class Knows(Sink):
    """Says which messages have arrived."""

    def __init__(self, has: Callable[[], Iterable[int]]) -> None:
        self.has = has
        self.asked: list[tuple[int, str]] = []
        self.sent: list[tuple[int, bool]] = []
        self.is_closed = False

    def send(self, deliveries: Sequence[Delivery]) -> Refusals:
        self.sent += [(it.seq, it.redelivered) for it in deliveries]
        return {}

    def arrived(self, suspects: Sequence[Delivery], position: str | None) -> Iterable[int]:
        self.asked += [(it.seq, it.message.id) for it in suspects]
        return self.has()

    def close(self) -> None:
        self.is_closed = True


def test_what_the_destination_has_is_not_sent_again__D5_D10(tmp_path: Path) -> None:
    sink = Knows(lambda: {2, 99})
    with Run(crashed(tmp_path, *THREE), opener_of(sink)) as run:
        assert sink.asked == [(1, "1"), (2, "2"), (3, "3")]
        assert run.running.wait(LONG_S)
    assert sink.sent == [(1, True), (3, True)]
    assert run.running.summary.delivered == 3


def _unreachable() -> Iterable[int]:
    raise DeliveryFailed("can't be reached")


@pytest.mark.parametrize(
    ("has", "why"),
    [
        (_unreachable, "can't be reached"),
        (
            lambda: itertools.repeat(1),
            "arrived returned more than 1000000 numbers: return those it was asked",
        ),
    ],
)
def test_a_sink_that_can_not_say_what_it_has_ends_the_start_and_is_closed__D5_D8(
    tmp_path: Path, has: Callable[[], Iterable[int]], why: str
) -> None:
    sink = Knows(has)
    with pytest.raises(DeliveryFailed, match=why):
        Run(crashed(tmp_path, *THREE), opener_of(sink))
    assert sink.is_closed
