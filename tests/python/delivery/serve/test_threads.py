"""Requests that take long hold up no others (rules D11, D14)."""

import http.client
import json
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tickwheel.delivery.sight import StoreView

from .conftest import Served

pytestmark = pytest.mark.timeout(60)
FAR_MS = 4_000_000_000_000
MANY = 200  # more than may wait


@pytest.mark.parametrize(
    ("method", "path", "kind", "count", "most"),
    [
        ("list", "/messages?key=k", "pages", 2, 128),
        ("dead", "/dead", "pages", 2, 128),
        ("actions", "/actions", "pages", 2, 128),
        ("status", "/status", "status", 1, 16),
    ],
)
def test_a_message_is_accepted_and_seen_beside_many_requests_that_take_long__D14(
    method: str, path: str, kind: str, count: int, most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_end = threading.Event()
    begun = threading.Semaphore(0)
    read = getattr(StoreView, method)

    def read_long(view: StoreView, *given: Any, **more: Any) -> Any:
        begun.release()
        assert may_end.wait(30)
        return read(view, *given, **more)

    monkeypatch.setattr(StoreView, method, read_long)
    served = Served(tmp_path)
    requests = [http.client.HTTPConnection("127.0.0.1", served.port, timeout=30) for _ in range(MANY)]
    try:
        for request in requests:
            request.request("GET", path)
        for _ in range(count):  # these are read; others get 503 or wait
            assert begun.acquire(timeout=20)
        assert served.ask("POST", "/messages", {"id": "a", "due": FAR_MS}).status == 201
        assert served.ask("GET", "/messages/a").status == 200
        assert served.ask("GET", "/metrics").status == 200
        assert served.ask("GET", "/readyz").status == 200
        assert served.ask("DELETE", "/messages/a").status == 200
        may_end.set()
        answers = [request.getresponse() for request in requests]
        assert Counter(answer.status for answer in answers) == {200: most, 503: MANY - most}
        refused = {(answer.headers["retry-after"], answer.read()) for answer in answers if answer.status == 503}
        [(again_s, fault)] = refused
        assert (again_s, json.loads(fault)["reason"]) == ("1", f"too many requests for {kind} at a time")
        assert served.ask("GET", path).status == 200  # there is room again
    finally:
        may_end.set()
        for request in requests:
            request.close()
        served.close()
