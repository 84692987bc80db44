"""What can't be used is refused when it is given, and the error says what is allowed (rule D2)."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tickwheel._native import StoreSnapshot
from tickwheel.commands import tickwheel
from tickwheel.delivery import Answer, Delivery, DeliveryQueue, Message, WrongUsage
from tickwheel.delivery.sinks import Refusals, Sink, open_sink

pytestmark = pytest.mark.timeout(60)


class Mine(Sink):
    def send(self, deliveries: Sequence[Delivery]) -> Refusals:
        return {}


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"on_dead_letter": 5}, "on_dead_letter is 5: give a function that takes one Letter, or None"),
        ({"backoff_s": 5}, "backoff is 5: it may be two numbers of seconds"),
        ({"backoff_s": (1, 2, 3)}, "two numbers of seconds"),
        ({"backoff_s": ("a", "b")}, "two numbers of seconds"),
        ({"backoff_s": (0, 1)}, "backoff's first wait is 0: it may be 0.001 to"),
        ({"max_attempts": 2.5}, "max-attempts is 2.5: it may be a whole number, 1 to"),
        ({"max_attempts": True}, "max-attempts is True: it may be a whole number, 1 to"),
        ({"max_attempts": "5"}, "max-attempts is '5': it may be a whole number, 1 to"),
        ({"horizon_s": "10"}, "horizon is '10': it may be 0.1 to"),
        ({"sink_timeout_s": None}, "sink-timeout is None: it may be 0.001 to"),
        ({"keep_ids_days": float("nan")}, "keep-ids is nan: it may be 0 to"),
        ({"unanswered_for_s": "never"}, "unanswered-for is 'never': it may be 0.001 to"),
        ({"spare": -1}, "spare is -1: it may be 0 to"),
        ({"waits_s": []}, "waits has 0 of them: it may be 1 to 100 numbers of seconds"),
        ({"waits_s": [1] * 101}, "waits has 101 of them: it may be 1 to 100 numbers of seconds"),
        ({"waits_s": [1, 0]}, "a wait is 0: it may be 0.001 to"),
        ({"waits_s": [86_401]}, "a wait is 86401: it may be 0.001 to 86,400"),
        ({"waits_s": [float("nan")]}, "a wait is nan: it may be 0.001 to"),
        ({"waits_s": ["a"]}, "waits is ['a']: it may be 1 to 100 numbers of seconds"),
        ({"waits_s": "5s"}, "waits is '5s': it may be 1 to 100 numbers of seconds"),
        ({"waits_s": 5}, "waits is 5: it may be 1 to 100 numbers of seconds"),
        ({"waits_s": [10**400]}, "waits is"),
        ({"waits_s": [1], "backoff_s": (2, 3)}, "backoff and waits were both given"),
        ({"waits_s": [1], "backoff_s": 5}, "backoff and waits were both given"),
        ({"waits_end": True}, "waits-end needs waits: give the list that ends"),
        ({"waits_end": 1, "waits_s": [1]}, "waits-end is 1: it may be True or False"),
        ({"waits_end": True, "waits_s": [1], "max_attempts": 3}, "max-attempts and waits-end were both given"),
        ({"spare": 2.5}, "spare is 2.5: it may be a whole number, 0 to 1,000,000"),
        ({"spare": True}, "spare is True: it may be a whole number, 0 to 1,000,000"),
        ({"unanswered_for_s": None}, "unanswered-for is None: it may be 0.001 to 31,536,000"),
        ({"order": None}, "order is None: it may be 'key' or 'global'"),
        ({"horizon_s": 10**400}, "horizon is 1000000000000000000000"),
        ({"keep_ids_days": 10**5_000}, "keep-ids is too large: it may be 0 to 36,500"),
        ({"keep_ids_days": 10**30}, "keep-ids is 1e+30: it may be 0 to 36,500"),
        ({"max_attempts": 10**400}, "it may be 1 to 1,000,000"),
        ({"backoff_s": (1, 10**400)}, "two numbers of seconds"),
        ({"backoff_s": (1, 10**5_000)}, "backoff is too large: it may be two numbers of seconds"),
    ],
)
def test_a_setting_that_is_none_is_told_its_range__D2(tmp_path: Path, given: Any, problem: str) -> None:
    with pytest.raises(WrongUsage) as error:
        DeliveryQueue(tmp_path / "store.db", to=lambda _: None, **given)
    assert problem in str(error.value)
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("max_batch", 0, "max_batch of the sink Odd is 0: it may be 1 to 1000000"),
        ("max_batch", -1, "max_batch of the sink Odd is -1"),
        ("max_batch", True, "max_batch of the sink Odd is True"),
        ("max_batch", "many", "max_batch of the sink Odd is 'many'"),
        ("threads", 0, "threads of the sink Odd is 0: it may be 1 to 256"),
        ("threads", 10**30, "threads of the sink Odd is 1000"),
        ("threads", 1.5, "threads of the sink Odd is 1.5"),
    ],
)
def test_a_sink_that_asks_for_what_can_not_be_is_refused__D2(
    tmp_path: Path, name: str, value: Any, problem: str
) -> None:
    odd = type("Odd", (Mine,), {name: value})
    with pytest.raises(WrongUsage) as error:
        DeliveryQueue(tmp_path / "store.db", to=odd)
    assert problem in str(error.value)
    assert [*tmp_path.iterdir()] == []


def reason_of(folder: Path, sink: type[Sink]) -> str:
    """Why the only message became a dead letter."""
    reasons: list[str] = []
    tell = lambda letter: reasons.append(letter.reason)  # noqa: E731
    with DeliveryQueue(folder / "store.db", to=sink, max_attempts=1, on_dead_letter=tell) as queue:
        queue.put("a", delay_ms=0)
        assert queue.wait_until_empty(20)
    [reason] = reasons
    return reason


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (
            None,
            "send returned None: return a dict with the place of each delivery that did not arrive, and why; an empty",
        ),
        ([], "send returned []: return a dict"),
        (True, "send returned True: return a dict"),
        ({1: "no"}, "send returned the place 1, and had 1 deliveries: return places from 0"),
        ({"a": "no"}, "send returned the place 'a', and had 1 deliveries: return places from 0"),
        ({0: 5}, "send returned 5 as a verdict: return a text, an exception or None"),
    ],
)
def test_what_send_may_not_return_is_told_with_what_it_may__D6(tmp_path: Path, answer: Any, problem: str) -> None:
    class Odd(Mine):
        def send(self, deliveries: Sequence[Delivery]) -> Refusals:
            refusals: Refusals = answer
            return refusals

    assert problem in reason_of(tmp_path, Odd)


class Endless(Mapping[int, str]):
    """Says again and again that the first delivery did not arrive."""

    def __getitem__(self, place: int) -> str:
        return "no"

    def __iter__(self) -> Iterator[int]:
        return itertools.repeat(0)

    def __len__(self) -> int:
        return 1


def test_of_a_mapping_without_an_end_no_more_is_read_than_there_are_deliveries__D6(tmp_path: Path) -> None:
    class Odd(Mine):
        def send(self, deliveries: Sequence[Delivery]) -> Refusals:
            return Endless()

    assert reason_of(tmp_path, Odd) == "gave up after 1 attempt: no"


class Long(list[Any]):
    """As long as it says."""

    def __init__(self, length: int, items: Sequence[Any]) -> None:
        super().__init__(items)
        self._length = length

    def __len__(self) -> int:
        return self._length


@pytest.mark.parametrize("length", [10**12, 2**62])
def test_how_long_a_sequence_says_it_is_costs_no_memory__D8(tmp_path: Path, length: int) -> None:
    message = Message("a", None, 4_000_000_000_000, b"")
    with DeliveryQueue(tmp_path / "store.db", to=lambda _: None) as queue:
        with pytest.raises(TypeError, match="0 can't be submitted: give a Message, a Cancel or a Look"):
            queue.submit(range(length))  # type: ignore[arg-type]
        assert queue.submit(Long(length, [message])).result(20) == [Answer.ACCEPTED]


def test_a_snapshot_that_is_closed_says_so__D14(tmp_path: Path) -> None:
    with DeliveryQueue(tmp_path / "store.db", to=lambda _: None):
        pass
    with StoreSnapshot(tmp_path / "store.db") as snapshot:
        assert snapshot.paused_keys() == 0
    with pytest.raises(WrongUsage, match="this snapshot is closed: ask it inside its with block"):
        snapshot.paused_keys()


@pytest.mark.parametrize(
    ("path", "problem"),
    [("/dev/null", "is a pipe or a device, which can't be a store"), ("a\0b", "has a NUL byte")],
    ids=["a device", "a NUL byte"],
)
def test_what_can_not_be_a_store_is_refused__D2(path: str, problem: str) -> None:
    with pytest.raises(WrongUsage, match=problem):
        DeliveryQueue(path, to=lambda _: None)


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ("", "the destination is empty: it may be - (standard output), file:PATH, http"),
        ("HTTP://host/x", "write http: in small letters"),
        ("File:out", "write file: in small letters"),
        ("SQLite:x?table=T", "write sqlite: in small letters"),
    ],
)
def test_a_destination_that_is_nearly_one_is_told_what_to_write__D10(spec: str, problem: str) -> None:
    with pytest.raises(WrongUsage) as error:
        open_sink(spec)
    assert problem in str(error.value)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (["--tls-ca", "ca.pem"], "--tls-ca: only with --engine spark"),
        (["--engine", "spark", "--tls-cert", "a", "--tls-key", "b"], "--tls-cert, --tls-key: only with --deliverer"),
        (
            ["--engine", "spark", "--deliverer", "a:1", "--checkpoint", "c", "--webhook-header", "A: b"],
            "--webhook-header: not with --deliverer",
        ),
    ],
)
def test_options_of_tls_and_webhooks_that_would_do_nothing_are_refused__D12(
    given: list[str], reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(tickwheel, ["deliver", "-", *given])
    assert (result.exit_code, [*tmp_path.iterdir()]) == (2, [])
    assert reason in " ".join(result.output.split())
