"""D15: what the log says of destinations and messages."""

import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from tickwheel.delivery import Delivery, DeliveryQueue, Letter
from tickwheel.delivery.observe.log import log_events, log_letters
from tickwheel.delivery.sinks import Sink, SinkSettings

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


def test_a_step_of_the_wall_clock_is_told_with_how_far_and_where_to__D15_D19(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("WARNING", "tickwheel.delivery"):
        log_events([("clock stepped", -7_200_000, 1_795_422_600_000), ("clock stepped", 1, 1_795_422_600_001)])
    assert [record.getMessage() for record in caplog.records] == [
        "the wall clock was stepped by -7200.000 s, to 2026-11-23T08:30:00.000Z",
        "the wall clock was stepped by +0.001 s, to 2026-11-23T08:30:00.001Z",
    ]


@pytest.mark.parametrize(
    ("count", "named"),
    [
        (1, "message 'm0' of key 'k' was cut off: no answer in time"),
        (3, "message 'm0' of key 'k' and 2 more were cut off: no answer in time"),
    ],
)
def test_a_send_that_is_cut_off_is_told_with_the_name_of_its_message__D15(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, count: int, named: str
) -> None:
    """Of a send with many messages, with that of the first."""
    is_let_go = threading.Event()

    class Hangs(Sink):
        max_batch = 10

        def __init__(self, settings: SinkSettings) -> None:
            pass

        def send(self, deliveries: Sequence[Delivery]) -> dict[int, str]:
            is_let_go.wait(30)
            return {}

    def told() -> list[str]:
        return [it.getMessage() for it in caplog.records if "cut off" in it.getMessage()]

    with (
        caplog.at_level("WARNING", "tickwheel.delivery"),
        DeliveryQueue(tmp_path / "s.db", to=Hangs, sink_timeout_s=0.2, backoff_s=(300, 300)) as queue,
    ):
        queue.pause()
        queue.put_many([(f"m{n}", 10**12 + n, n, f"k{n or ''}") for n in range(count)])
        queue.resume()
        while not told():
            threading.Event().wait(0.005)
        is_let_go.set()
        assert told() == [named]


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


def test_many_sends_of_one_message_are_one_line_with_their_count__D15(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("WARNING", "tickwheel.delivery"):
        with DeliveryQueue(tmp_path / "s.db", to=refuse, max_attempts=12, waits_s=[0.001]) as queue:
            queue.put("a", due=10**12, key="k")
            assert queue.wait_until_empty(30)
        told = [record.getMessage() for record in caplog.records]
    assert told == [
        "message 'a' of key 'k' failed for the first time: ValueError: no such mailbox",
        "message 'a' of key 'k' failed 10 times in a row: ValueError: no such mailbox",
        "dead letter of message 'a' of key 'k': gave up after 12 attempts: ValueError: no such mailbox",
    ]


def test_a_message_that_is_cut_off_again_and_again_is_told_at_the_tenth_time__D15(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level("WARNING", "tickwheel.delivery"):
        log_events([("cut off", None, None, "a", 1, times) for times in range(1, 21)])
    assert [record.getMessage() for record in caplog.records] == 2 * ["message 'a' was cut off: no answer in time"], (
        "the first and the tenth; that it failed ten times in a row is a line of its own"
    )


def test_the_destination_that_is_down_is_named__D15_D23(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("WARNING", "tickwheel.delivery"):
        log_events([("down", None, "503"), ("up", None, 20), ("down", "acme", "504"), ("up untried", "acme", 30)])
    assert [record.getMessage() for record in caplog.records] == [
        "the destination is down: 503",
        "the destination is up again, after 20 ms",
        "the destination acme is down: 504",
        "the destination acme counts as up after 30 ms: no message waits for it any more",
    ]


def test_a_message_is_told_with_the_destination_that_it_names__D15_D23(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("WARNING", "tickwheel.delivery"):
        log_events([("cut off", "acme", "k", "a", 1, 1)])
        with DeliveryQueue(tmp_path / "s.db", handlers={"email": refuse}, max_attempts=1) as queue:
            queue.put("b", due=10**12, destination="email")
            assert queue.wait_until_empty(30)
    why = "ValueError: no such mailbox"
    assert [record.getMessage() for record in caplog.records] == [
        "message 'a' of key 'k' to acme was cut off: no answer in time",
        f"message 'b' to email failed for the first time: {why}",
        f"dead letter of message 'b' to email: gave up after 1 attempt: {why}",
    ]
