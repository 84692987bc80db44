"""D15: what the log says of destinations and messages."""

import threading
from pathlib import Path

import pytest

from tickwheel.delivery import Delivery, DeliveryQueue


@pytest.mark.parametrize(
    ("key", "named"), [(None, """message "it's \\n 7\""""), ("k", """message "it's \\n 7" of key 'k'""")]
)
def test_a_failed_message_is_named_by_its_id_and_key__D15(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, key: str | None, named: str
) -> None:
    failed = threading.Event()

    def refuse(_: Delivery) -> None:
        failed.set()
        raise ValueError("no such mailbox")

    with caplog.at_level("WARNING", "tickwheel.delivery"):
        with DeliveryQueue(tmp_path / "s.db", to=refuse) as queue:
            queue.put("it's \n 7", due=10**12, payload=1, key=key)
            assert failed.wait(60)
        told = [record.getMessage() for record in caplog.records if record.getMessage().startswith("message")]
    assert [text.split(" failed for the first time: ")[0] for text in told] == [named]
    assert "no such mailbox" in told[0]


def test_a_long_id_is_cut__D15(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    failed = threading.Event()

    def refuse(_: Delivery) -> None:
        failed.set()
        raise ValueError("no")

    with caplog.at_level("WARNING", "tickwheel.delivery"):
        with DeliveryQueue(tmp_path / "s.db", to=refuse) as queue:
            queue.put("é" * 100_000, due=10**12, payload=1)
            assert failed.wait(60)
        assert f"message '{'é' * 200}' failed" in caplog.text
        assert "é" * 201 not in caplog.text
