"""Destinations with one writer: `--spare` gives them no second one."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tickwheel.delivery import Delivery, DeliveryQueue
from tickwheel.delivery.sinks import Refusals, Sink


class Plain(Sink):
    def send(self, deliveries: Sequence[Delivery]) -> Refusals:
        return {}


class Positioned(Plain):
    def position(self) -> str | None:
        return "1"


@pytest.mark.parametrize(("to", "spare"), [("file:{}/lines", 0), (Positioned, 0), (Plain, 2)])
def test_spare_places_are_none_for_a_file_and_for_a_sink_with_a_position__D10_D18(
    tmp_path: Path, to: str | type[Sink], spare: int
) -> None:
    with DeliveryQueue(
        tmp_path / "store.db", to=to.format(tmp_path) if isinstance(to, str) else to, spare=2, concurrency=3
    ) as queue:
        queue.put("a", delay_ms=0)
        assert queue.wait_until_empty(60)
        assert queue._running.engine.measures().spare_places == (0, spare)
