"""The sink `python:MODULE:FUNCTION` (rule D10): calls a user's function with each `Delivery`.

- It is called from up to eight threads at a time, with the messages of one key one after another (D4).
- When it returns, the message has arrived, whatever it returns. An exception is a failed attempt (D6); after
  `ConnectionError` or `tickwheel.delivery.Unavailable` all messages wait until the destination is back, and after
  `TimeoutError` or `Unanswered` from five messages in a row.
- It must be an ordinary function: a coroutine or a generator would not run until it is awaited or read.
- `delivery.message.payload` is `msgspec.Raw` if it is JSON (`msgspec.json.decode` reads it), otherwise `bytes`.
"""

import importlib
import inspect
import os
import sys
from collections.abc import Callable, Sequence
from typing import ClassVar, TypeAlias

from tickwheel.delivery.errors import Unanswered, Unavailable, WrongUsage
from tickwheel.delivery.sinks.sink import NONE_REFUSED, Delivery, Refusals, Sink, SinkOpener

FORM = "python:MODULE:FUNCTION"

_LONGEST_REASON = 1000  # characters; each reason is stored

Function: TypeAlias = Callable[[Delivery], object]


class PythonSink(Sink):
    """Calls `function` in the thread that sends."""

    max_batch: ClassVar[int] = 1
    threads: ClassVar[int] = 8

    def __init__(self, function: Function) -> None:
        self._function = function

    def send(self, deliveries: Sequence[Delivery]) -> Refusals:
        """One call for each delivery."""
        refused: dict[int, str | Unanswered | Unavailable | None] = {}
        for place, delivery in enumerate(deliveries):
            reason = self._call(delivery)
            if reason is not None:
                refused[place] = reason
        return refused or NONE_REFUSED

    def _call(self, delivery: Delivery) -> str | Unanswered | Unavailable | None:
        try:
            result = self._function(delivery)
        except (Unanswered, Unavailable) as error:
            return error
        except ConnectionError as error:
            return Unavailable(_reason(error))
        except TimeoutError as error:
            return Unanswered(_reason(error))
        except BaseException as error:  # SystemExit too: it would end the thread and block its keys
            return _reason(error)
        if inspect.iscoroutine(result):
            result.close()  # prevents the warning that it was never awaited
        if inspect.isawaitable(result) or inspect.isgenerator(result) or inspect.isasyncgen(result):
            return f"the function returned a {type(result).__name__}, which is never run: {_ORDINARY}"
        return None


def sink_of_function(function: Function) -> SinkOpener:
    """A sink that calls `function`. Errors: `WrongUsage` if it can't be called, or if a call would not run it."""
    if not callable(function):
        raise WrongUsage(f"{function!r} can't be called: name a function that takes one Delivery")
    forms = [function, getattr(function, "__call__", None)]  # noqa: B004, an object's own method, which may be async
    is_lazy = (inspect.iscoroutinefunction, inspect.isasyncgenfunction, inspect.isgeneratorfunction)
    if any(is_one(form) for form in forms for is_one in is_lazy):
        raise WrongUsage(f"{function!r} is a coroutine function or a generator: {_ORDINARY}")
    return lambda _settings: PythonSink(function)


def opener_of(spec: str) -> SinkOpener:
    """Imports the function now. Errors: `WrongUsage`."""
    _, _, path = spec.partition(":")
    module_name, _, name = path.partition(":")
    if not all(part.isidentifier() for part in module_name.split(".")) or not name.isidentifier():
        raise WrongUsage(f"{spec!r} names no function: write {FORM}, such as python:shop.mail:send")
    module = _module(module_name)
    try:
        function = getattr(module, name)
    except AttributeError:
        raise WrongUsage(f"the module {module_name} has no {name}: name a function that it defines") from None
    if not callable(function):
        raise WrongUsage(f"{name} of the module {module_name} can't be called: name a function that takes one Delivery")
    return sink_of_function(function)


_ORDINARY = "it must be an ordinary function, and may call asyncio.run"


def _module(name: str) -> object:
    folder = os.getcwd()  # noqa: PTH109, sys.path holds text
    if folder not in sys.path and "" not in sys.path:
        sys.path.insert(0, folder)  # as with python -m
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise WrongUsage(
                f"there is no module {name} in {folder} or among the installed ones: check the name, or install it"
            ) from None
        raise WrongUsage(f"the module {name} can't be imported: {_reason(error)}") from error
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        raise WrongUsage(f"the module {name} can't be imported: {_reason(error)}") from error


def _reason(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception:  # its own __str__ may fail
        text = "its text can't be read"
    name = type(error).__name__
    return (f"{name}: {text}" if text else name)[:_LONGEST_REASON]
