import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from pathlib import Path

import msgspec
import pytest

from delivery.sinks.making import batch, delivery, opened
from tickwheel.delivery.errors import WrongUsage
from tickwheel.delivery.sinks import Delivery, SinkSettings, open_sink, sink_of_function
from tickwheel.delivery.sinks.python import PythonSink

pytestmark = pytest.mark.timeout(30)


def sink_of(function: Callable[[Delivery], object]) -> PythonSink:
    sink = sink_of_function(function)(SinkSettings("store"))
    assert isinstance(sink, PythonSink)
    return sink


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, which is not on the path yet."""
    import sys

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    return tmp_path


def test_the_function_gets_the_delivery_as_it_is__D10() -> None:
    seen: list[Delivery] = []
    given = [delivery(1, payload=msgspec.Raw(b'{"x": 1.50}')), delivery(2, payload=b"\xff\x00")]
    assert sink_of(seen.append).send(given) == {}
    assert seen == given
    assert isinstance(seen[0].message.payload, msgspec.Raw)
    assert msgspec.json.decode(seen[0].message.payload) == {"x": 1.5}
    assert seen[1].message.payload == b"\xff\x00"


def test_what_it_raises_is_a_failed_attempt_of_that_message_alone__D6() -> None:
    def function(one: Delivery) -> None:
        if one.seq == 2:
            raise ValueError("no such customer")

    assert sink_of(function).send(batch([1, 2, 3])) == {1: "ValueError: no such customer"}


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("never")


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (SystemExit(3), "SystemExit: 3"),
        (asyncio.CancelledError(), "CancelledError"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (Unspeakable(), "Unspeakable: its text can't be read"),
        (ValueError("x" * 5000), "ValueError: " + "x" * 988),
    ],
)
def test_nothing_it_raises_ends_the_thread__D6(error: BaseException, reason: str) -> None:
    def function(_one: Delivery) -> None:
        raise error

    assert sink_of(function).send([delivery()]) == {0: reason}


def test_what_it_returns_does_not_matter__D10() -> None:
    assert sink_of(lambda one: False).send([delivery()]) == {}


async def coroutine(_one: Delivery) -> None: ...


def generator(_one: Delivery) -> Iterator[int]:
    yield 1


async def async_generator(_one: Delivery) -> AsyncIterator[int]:
    yield 1


class Asynchronous:
    async def __call__(self, _one: Delivery) -> None: ...


@pytest.mark.parametrize("function", [coroutine, generator, async_generator, Asynchronous(), partial(coroutine)])
def test_a_function_that_would_run_nothing_is_refused_at_once__D10(function: Callable[[Delivery], object]) -> None:
    with pytest.raises(WrongUsage, match="ordinary function"):
        sink_of_function(function)


@pytest.mark.parametrize("inner", [coroutine, generator, async_generator])
def test_a_hidden_coroutine_is_a_failed_attempt_and_not_a_lost_message__D10(
    inner: Callable[[Delivery], object],
) -> None:
    refused = sink_of(lambda one: inner(one)).send([delivery()])
    assert "which is never run" in refused[0]


def test_what_can_not_be_called_is_refused__D10() -> None:
    with pytest.raises(WrongUsage, match="can't be called"):
        sink_of_function(5)  # type: ignore[arg-type]


def test_a_module_in_the_current_folder_is_found__D10(here: Path) -> None:
    (here / "mailer_here.py").write_text("seen = []\ndef send(d):\n    seen.append(d.message.id)\n")
    assert opened("python:mailer_here:send").send([delivery(id_="a\n\0b")]) == {}
    import mailer_here  # type: ignore[import-not-found]

    assert mailer_here.seen == ["a\n\0b"]


def test_a_module_in_a_package_is_found__D10(here: Path) -> None:
    (here / "shop_here").mkdir()
    (here / "shop_here" / "__init__.py").touch()
    (here / "shop_here" / "mail.py").write_text("def send(d): raise KeyError(d.seq)\n")
    assert opened("python:shop_here.mail:send").send([delivery(7)]) == {0: "KeyError: 7"}


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ("python:", "names no function"),
        ("python:json", "names no function"),
        ("python:json:", "names no function"),
        ("python::dumps", "names no function"),
        ("python:json:a.b", "names no function"),
        ("python:json:dumps:x", "names no function"),
        ("python:../x:f", "names no function"),
        ("python:no_such_module_here:f", "there is no module no_such_module_here"),
        ("python:json.no_such:f", "there is no module json.no_such"),
        ("python:no_such_package.mail:f", "there is no module no_such_package.mail"),
        ("python:json:no_such", "the module json has no no_such"),
        ("python:json:__name__", "can't be called"),
        ("python:asyncio:open_connection", "ordinary function"),
        ("python:broken_here:f", "can't be imported: ZeroDivisionError: division by zero"),
        ("python:needy_here:f", "can't be imported: ModuleNotFoundError: No module named 'not_there_either'"),
        ("python:leaving_here:f", "can't be imported: SystemExit: 0"),
    ],
)
def test_a_function_that_is_not_there_is_wrong_usage__D10(here: Path, spec: str, problem: str) -> None:
    (here / "broken_here.py").write_text("1 / 0\n")
    (here / "needy_here.py").write_text("import not_there_either\n")
    (here / "leaving_here.py").write_text("raise SystemExit(0)\n")
    with pytest.raises(WrongUsage) as error:
        open_sink(spec)
    assert problem in str(error.value)


def test_eight_threads_may_be_in_the_function_at_a_time__D10() -> None:
    together = threading.Barrier(PythonSink.threads)
    opener = sink_of_function(lambda one: together.wait(20))
    refusals: list[object] = []

    def send() -> None:
        refusals.append(opener(SinkSettings("store")).send([delivery()]))

    threads = [threading.Thread(target=send) for _ in range(PythonSink.threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert PythonSink.threads == 8
    assert PythonSink.max_batch == 1
    assert refusals == [{}] * 8
