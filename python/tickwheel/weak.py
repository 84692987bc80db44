"""Callbacks that do not keep their object alive."""

import weakref
from collections.abc import Callable
from typing import Any, Generic, TypeVar, TypeVarTuple

_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")


class weak_method(Generic[*_Ts, _T]):  # noqa: N801, called as a function
    """A bound method for a timer, which then does not keep the method's object alive.

    When the object is gone, the call does nothing. A pending task keeps its callable alive. So a session with a
    time-out would live until the time-out; with this function it does not. A series of `Timer.every` ends with the
    first call that finds no object. Errors: `TypeError` for anything but a method.

    >>> class Session:
    ...     def end(self): print("ended")
    >>> session = Session()
    >>> weak_method(session.end)()
    ended
    """

    __slots__ = ("__weakref__", "_method")

    def __init__(self, method: Callable[[*_Ts], _T]) -> None:
        if getattr(method, "__self__", None) is None or not hasattr(method, "__func__"):
            raise TypeError(f"weak_method takes the method of an object, got {method!r}: pass it as object.method")
        self._method: weakref.WeakMethod[Any] = weakref.WeakMethod(method)

    def __call__(self, *args: *_Ts) -> _T | None:
        """Call the method, if its object is there."""
        method = self._method()
        return None if method is None else method(*args)

    def __repr__(self) -> str:
        method = self._method()
        return "<weak_method of an object that is gone>" if method is None else f"<weak_method {method!r}>"
