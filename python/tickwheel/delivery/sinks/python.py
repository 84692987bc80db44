"""A program's own sink, also as `python:MODULE:NAME` (rule D10): a function, or a subclass of `Sink`.

A subclass is opened in the same way as all other sinks. A function is called with each `Delivery`:

- It is called from up to eight threads at a time, with the messages of one key one after another (D4). Each
  thread has one message at a time, so no message waits behind a slow call while a thread is free.
- When it returns, the message has arrived, whatever it returns. After an exception the key waits, and other keys go on
  (D6): `failures.py` has the meaning of each.
- A coroutine function may have many calls at a time: see `coroutine.py`. A generator would not run until it is read.
- `delivery.message.payload` is `msgspec.Raw` if it is JSON (`msgspec.json.decode` reads it), otherwise `bytes`.
"""

import importlib
import inspect
import os
import sys
from collections.abc import Awaitable, Callable
from functools import partial, wraps
from typing import TypeAlias, cast

from tickwheel import TickwheelError
from tickwheel._native import Destination
from tickwheel.delivery.base.errors import DeliveryFailed, Final, Unanswered, Unavailable, WrongUsage, quoted
from tickwheel.delivery.observe.tracing import traced
from tickwheel.delivery.sinks.coroutine import CoroutineFunction
from tickwheel.delivery.sinks.failures import judged
from tickwheel.delivery.sinks.sink import Delivery, Sink, SinkOpener, SinkSettings

FORM = "python:MODULE:FUNCTION"

ONLY_FOR_FUNCTIONS = "unavailable is for a function or a coroutine function: leave it out"

_LONGEST_REASON = 1000  # characters; each reason is stored

Function: TypeAlias = Callable[[Delivery], object]

Unavailables: TypeAlias = type[BaseException] | tuple[type[BaseException], ...]

OwnSink: TypeAlias = Function | type[Sink] | partial[Sink] | Destination
"""A function, also a coroutine function, or what makes a sink when it is called with `SinkSettings`: a subclass of
`Sink`, or a partial of one.
"""


def sink_of(to: OwnSink, unavailable: Unavailables = ()) -> SinkOpener | Destination | CoroutineFunction:
    """A program's own sink, or a destination of the engine's. `unavailable` is for a function: after one of these its
    message is unanswered. Errors: `WrongUsage` if it is none.
    """
    made_by = to.func if isinstance(to, partial) else to
    sink_class = made_by if isinstance(made_by, type) and issubclass(made_by, Sink) else None
    if unavailable != () and (sink_class or isinstance(to, Destination)):
        raise WrongUsage(ONLY_FOR_FUNCTIONS)
    if isinstance(to, Destination):
        return to
    if sink_class is not None:
        make: Callable[[SinkSettings], Sink] = to  # type: ignore[assignment]  # it makes a sink, as was just found
        if inspect.isabstract(sink_class):
            missing = ", ".join(sorted(sink_class.__abstractmethods__))
            raise WrongUsage(f"the sink {sink_class.__name__} has no {missing}: define it")
        return partial(_opened, make)
    if isinstance(to, Sink):
        raise WrongUsage(
            f"{to!r} is one sink, but a new one is needed for each thread: give the class, or a partial of it"
        )
    return sink_of_function(to, unavailable)


def _opened(make: Callable[[SinkSettings], Sink], settings: SinkSettings) -> Sink:
    try:
        return make(settings)
    except TickwheelError:
        raise
    except Exception as error:
        raise DeliveryFailed(f"the sink can't be opened: {_reason(error)}") from error


def sink_of_function(function: Function, unavailable: Unavailables = ()) -> Destination | CoroutineFunction:
    """A sink that calls `function`. Errors: `WrongUsage` if it can't be called, or if a call would not run it; if
    `unavailable` is no class of exceptions.
    """
    checked, is_coroutine = checked_function(function, unavailable)
    if is_coroutine:
        return CoroutineFunction(cast("Callable[[Delivery], Awaitable[object]]", checked))
    return Destination.function(traced(checked))


def checked_function(function: Function, unavailable: Unavailables = ()) -> tuple[Function, bool]:
    """The function with `unavailable`, and whether it is a coroutine function. Errors: as of `sink_of_function`."""
    if not callable(function):
        raise WrongUsage(f"{function!r} can't be called: name a function that takes one Delivery")
    classes = _classes_of(unavailable)
    forms = [function, getattr(function, "__call__", None)]  # noqa: B004, an object's own method, which may be async
    if any(is_one(form) for form in forms for is_one in (inspect.isasyncgenfunction, inspect.isgeneratorfunction)):
        raise WrongUsage(f"{function!r} is a generator, which is never read: name an ordinary or a coroutine function")
    if any(map(inspect.iscoroutinefunction, forms)):
        coroutine = cast("Callable[[Delivery], Awaitable[object]]", function)
        return (_awaiting(coroutine, classes) if classes else coroutine), True
    return (_calling(function, classes) if classes else function), False


def _classes_of(unavailable: Unavailables) -> tuple[type[BaseException], ...]:
    classes = unavailable if isinstance(unavailable, tuple) else (unavailable,)
    if not all(isinstance(it, type) and issubclass(it, BaseException) for it in classes):
        raise WrongUsage(f"unavailable is {quoted(unavailable)}: it may be a class of exceptions, or a tuple of them")
    return classes


def _calling(function: Function, classes: tuple[type[BaseException], ...]) -> Function:
    @wraps(function)
    def call(delivery: Delivery) -> object:
        try:
            return function(delivery)
        except (Final, Unanswered, Unavailable):
            raise
        except classes as error:
            raise _unanswered(error) from error

    return call


def _awaiting(
    function: Callable[[Delivery], Awaitable[object]], classes: tuple[type[BaseException], ...]
) -> Callable[[Delivery], Awaitable[object]]:
    @wraps(function)
    async def call(delivery: Delivery) -> object:
        try:
            return await function(delivery)
        except (Final, Unanswered, Unavailable):
            raise
        except classes as error:
            raise _unanswered(error) from error

    return call


def _unanswered(error: BaseException) -> Unanswered | Unavailable:
    """The exception that the engine gets in place of one that `unavailable` names."""
    meaning, after_s = judged(error)
    return (Unavailable if meaning == "unreachable" else Unanswered)(_reason(error), after_s)


def opener_of(spec: str) -> SinkOpener | Destination | CoroutineFunction:
    """Imports it now. Errors: `WrongUsage`."""
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
    return sink_of(function)


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
