"""tickwheel's `SystemTimer`: with its defaults, and with at most one wake-up in a millisecond, as in event loops."""

from collections.abc import Callable

from tickwheel import SystemTimer, TimerTask

from ..side import Side


def with_defaults() -> Side:
    return _side(SystemTimer("bench"))


def with_slack() -> Side:
    return _side(SystemTimer("bench", slack_us=1000))


def _side(timer: SystemTimer) -> Side:
    def at(due_s: float, callback: Callable[..., object], *args: object) -> None:
        timer.at(due_s * 1000, callback, *args)

    return Side(add=timer.after, cancel=TimerTask.cancel, at=at, delay_unit="ms", keeps_order=True, wheel=timer)
