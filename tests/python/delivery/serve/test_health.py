"""`/livez`, `/readyz` and `/healthz` (rules D6, D12)."""

import threading
from pathlib import Path

import pytest

from tickwheel.delivery import Delivery, DeliveryFailed, Unavailable

from .conftest import Served

pytestmark = pytest.mark.timeout(30)
OK = (200, {"status": "ok"})


def test_a_destination_that_is_down_is_not_ready_and_alive__D6(tmp_path: Path) -> None:
    refused, is_open = threading.Event(), threading.Event()

    def send(_: Delivery) -> None:
        if not is_open.is_set():
            refused.set()
            raise Unavailable("closed for lunch", retry_after_s=0.05)

    served = Served(tmp_path, to=send)
    try:
        assert served.ask("GET", "/readyz")[:2] == OK
        for id_ in "abcde":  # of fewer keys each waits by itself
            served.ask("POST", "/messages", {"id": id_, "delay_ms": 0})
        assert refused.wait(10)
        while served.running.engine.down is None:
            pass
        assert served.ask("GET", "/readyz")[:2] == (503, {"status": "down"})
        assert [served.ask("GET", path)[:2] for path in ("/livez", "/healthz")] == [OK, OK]
        is_open.set()
        assert served.running.wait(10)
        assert served.ask("GET", "/readyz")[:2] == OK
    finally:
        served.close()


def test_one_whose_delivery_has_failed_is_neither__D12(tmp_path: Path) -> None:
    served = Served(tmp_path)
    assert [served.ask("GET", path)[:2] for path in ("/livez", "/readyz", "/healthz")] == [OK] * 3
    served.running.fail(DeliveryFailed("on purpose"))
    failed = (503, {"status": "failed"})
    assert [served.ask("GET", path)[:2] for path in ("/livez", "/readyz", "/healthz")] == [failed] * 3
    with pytest.raises(DeliveryFailed, match="on purpose"):
        served.close()
