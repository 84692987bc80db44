"""D6: a failure that is final makes a dead letter without another attempt."""

import threading
import urllib.error
from collections.abc import Callable, Mapping, Sequence
from email.message import Message as Headers
from http import HTTPStatus
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest
from click.testing import CliRunner

from delivery.webhook_receiver import Receiver
from tickwheel.commands import tickwheel as command
from tickwheel.delivery import Delivery, DeliveryQueue, Final, Letter, WrongUsage
from tickwheel.delivery.sinks import Refusals, Sink

pytestmark = pytest.mark.timeout(60)


class GoneError(Final): ...


def gone() -> Exception:
    return urllib.error.HTTPError("http://shop.example/", 410, "Gone", Headers(), None)


def function(error: Exception) -> Any:
    def send(delivery: Delivery) -> None:
        raise error

    return send


def coroutine(error: Exception) -> Any:
    async def send(delivery: Delivery) -> None:
        raise error

    return send


def sink(error: Exception) -> Any:
    class Refusing(Sink):
        def send(self, deliveries: Sequence[Delivery]) -> Refusals:
            raise error

    return Refusing


def sink_of_each(error: Exception) -> Any:
    class Refusing(Sink):
        def send(self, deliveries: Sequence[Delivery]) -> Mapping[int, Any]:
            return {0: error}

    return Refusing


@pytest.mark.parametrize("to", [function, coroutine, sink, sink_of_each])
@pytest.mark.parametrize(
    ("error", "why"),
    [
        (Final("no such customer"), "no such customer"),
        (GoneError("no such customer"), "no such customer"),
        (gone(), "HTTPError: HTTP Error 410: Gone"),
    ],
)
def test_a_final_failure_is_the_last_attempt__D6(
    tmp_path: Path, to: Callable[[Exception], Any], error: Exception, why: str
) -> None:
    letters: list[Letter] = []
    came = threading.Event()

    def keep(letter: Letter) -> None:
        letters.append(letter)
        came.set()

    with DeliveryQueue(tmp_path / "s.db", to=to(error), on_dead_letter=keep, backoff_s=(3_600, 3_600)) as queue:
        queue.put("a", delay_ms=0)
        assert came.wait(20)
    assert [why in letter.reason for letter in letters] == [True], letters
    assert queue.summary.dead_letters == 1


def test_unavailable_does_not_make_it_less_final__D6(tmp_path: Path) -> None:
    came = threading.Event()
    how: dict[str, Any] = {"unavailable": Exception, "on_dead_letter": lambda letter: came.set()}
    with DeliveryQueue(tmp_path / "s.db", to=function(Final("no")), backoff_s=(3_600, 3_600), **how) as queue:
        queue.put("a", delay_ms=0)
        assert came.wait(20)


@pytest.mark.parametrize("status", [399, 500, 422.0, "422", True])
def test_only_statuses_of_a_refusal_are_final__D6(tmp_path: Path, status: Any) -> None:
    with pytest.raises(WrongUsage, match=r"final-status is .*: it may be a whole number, 400 to 499"):
        DeliveryQueue(tmp_path / "s.db", to="http://127.0.0.1:9/", final_statuses=[status])


def test_a_status_may_be_one_of_the_standard_library__D6(tmp_path: Path) -> None:
    with DeliveryQueue(tmp_path / "s.db", to="http://127.0.0.1:9/", final_statuses=[HTTPStatus.FORBIDDEN]):
        pass


def test_final_statuses_are_of_webhooks__D6(tmp_path: Path) -> None:
    with pytest.raises(WrongUsage, match="final-status is for webhooks, and this sends to none: leave it out"):
        DeliveryQueue(tmp_path / "s.db", to=print, final_statuses=[422])


def test_the_commands_take_final_statuses__D6(tmp_path: Path, receiver: Receiver) -> None:
    receiver.statuses.extend([422, 200])
    (tmp_path / "in.ndjson").write_text('{"id": "a", "delay_ms": 0}\n{"id": "b", "delay_ms": 0}\n')
    options = ["--to", receiver.url, "--concurrency", "1", "--backoff", "1h,1h"]
    done = CliRunner().invoke(command, ["deliver", f"{tmp_path}/in.ndjson", *options, "--final-status", "403,422"])
    assert (done.exit_code, len(receiver.requests)) == (1, 2), done.output
    assert "status 422" in done.stderr
    bad = CliRunner().invoke(command, ["deliver", "-", "--final-status", "4xx"])
    assert bad.exit_code == 2
    assert "'4xx' is no list of statuses: write them as 422,403." in bad.stderr


def test_what_a_sink_raises_over_several_is_final_for_none_of_the_others__D6(tmp_path: Path) -> None:
    came, letters = SimpleQueue[str](), SimpleQueue[Letter]()

    class Taking(Sink):
        max_batch = 100

        def send(self, deliveries: Sequence[Delivery]) -> Refusals:
            if any(delivery.message.id == "bad" for delivery in deliveries):
                raise Final("no such customer")
            for delivery in deliveries:
                came.put(delivery.message.id)
            return {}

    ids = [*map(str, range(9)), "bad"]
    how: dict[str, Any] = {"on_dead_letter": letters.put, "backoff_s": (0.001, 0.001), "max_attempts": 100}
    with DeliveryQueue(tmp_path / "s.db", to=Taking, **how) as queue:
        queue.put_many([{"id": id_, "delay_ms": 0} for id_ in ids])
        assert sorted(came.get(timeout=30) for _ in range(9)) == ids[:9]
        assert "no such customer" in letters.get(timeout=30).reason
    assert (queue.summary.delivered, queue.summary.dead_letters) == (9, 1)
