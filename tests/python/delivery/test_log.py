"""D15: what the log says of destinations and messages."""

from pathlib import Path

import pytest

from tickwheel.delivery import Delivery, DeliveryQueue, Letter
from tickwheel.delivery.observe.log import log_letters

pytestmark = pytest.mark.timeout(60)

NAMES = [
    ("it's \n 7", None, """message "it's \\n 7\""""),
    ("it's \n 7", "k", """message "it's \\n 7\" of key 'k'"""),
    ("é" * 100_000, "k" * 201, f"message '{'é' * 200}' of key '{'k' * 200}'"),
]


def refuse(_: Delivery) -> None:
    raise ValueError("no such mailbox")


@pytest.mark.parametrize(("id_", "key", "named"), NAMES, ids=["alone", "of a key", "long"])
def test_what_fails_and_what_is_given_up_is_named_by_its_id_and_key__D15(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, id_: str, key: str | None, named: str
) -> None:
    with caplog.at_level("WARNING", "tickwheel.delivery"):
        with DeliveryQueue(tmp_path / "s.db", to=refuse, max_attempts=2, backoff_s=(0.001, 0.001)) as queue:
            queue.put(id_, due=10**12, payload=1, key=key)
            assert queue.wait_until_empty(30)
        told = [(record.levelname, record.getMessage()) for record in caplog.records]
    why = "ValueError: no such mailbox"
    assert told == [
        ("WARNING", f"{named} failed for the first time: {why}"),
        ("ERROR", f"dead letter of {named}: gave up after 2 attempts: {why}"),
    ]


def test_a_function_for_dead_letters_that_fails_is_told_with_the_name__D15(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(letter: Letter) -> None:
        raise OSError("no room")

    with caplog.at_level("ERROR", "tickwheel.delivery"):
        with DeliveryQueue(tmp_path / "s.db", to=refuse, max_attempts=1, on_dead_letter=broken) as queue:
            queue.put("a", due=10**12, key="k")
            assert queue.wait_until_empty(30)
        told = [record.getMessage() for record in caplog.records]
    assert told == ["on_dead_letter failed with the letter of message 'a' of key 'k'"]


@pytest.mark.parametrize("source", ["orders.ndjson", "delivery"])
def test_a_record_without_a_name_is_told_by_its_place__D15(caplog: pytest.LogCaptureFixture, source: str) -> None:
    log_letters([Letter(source, 3, "not a JSON object", "one JSON object per line", b"{")])
    assert [record.getMessage() for record in caplog.records] == [f"dead letter of {source}, line 3: not a JSON object"]
