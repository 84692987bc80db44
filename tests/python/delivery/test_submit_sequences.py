"""`submit` takes a message as `put_many` does, also from a sequence that is no list and no tuple (D11)."""

from collections import UserList
from pathlib import Path

import pytest

from tickwheel.delivery import Answer, DeliveryQueue

pytestmark = pytest.mark.timeout(60)

FAR_MS = 4_000_000_000_000


def test_submit_takes_any_sequence_that_put_many_takes__D11(tmp_path: Path) -> None:
    with DeliveryQueue(tmp_path / "s.db", to=lambda _: None) as queue:
        assert queue.put_many([UserList(["a", FAR_MS, 1])]) == [Answer.ACCEPTED]
        assert queue.submit([UserList(["b", FAR_MS, 1])]).result(30) == [Answer.ACCEPTED]
