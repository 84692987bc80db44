"""A name that is used again has a row of its own each time, in both SQL sinks (rules D5, D16)."""

import time
from pathlib import Path

import pytest

from delivery.sinks.tables import Table, ids
from tickwheel.delivery import Answer, DeliveryQueue

pytestmark = pytest.mark.timeout(120)

FAR_MS = 4_000_000_000_000


def test_each_one_of_a_name_that_is_used_again_has_its_row__D5_D16(tmp_path: Path, table: Table) -> None:
    with DeliveryQueue(tmp_path / "s.db", to=table.spec) as queue:
        for number in range(5):
            while queue.put("a", number, delay_ms=0, replace=True) is Answer.DELIVERING:
                time.sleep(0.001)
            assert queue.put("b", number, due=FAR_MS, replace=True)
            while queue.state("a") is not Answer.DELIVERED:
                time.sleep(0.001)
    assert ids(table) == ["a"] * 5
