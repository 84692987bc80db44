"""Twisted's default reactor on Linux: it uses epoll, and counts in wall-clock time.

`callLater` only stores the call, and the next turn of the reactor puts it into the heap. When more than half of the
heap is cancelled, a later turn removes those calls.
"""

from collections.abc import Callable, Iterator

from twisted.internet.epollreactor import EPollReactor

from ..side import Side, nothing


def epoll() -> Side:
    reactor = EPollReactor()

    def at(due_s: float, callback: Callable[..., object], *args: object) -> None:
        reactor.callLater(max(0.0, due_s - reactor.seconds()), callback, *args)

    def drive(work: Iterator[float]) -> None:
        errors: list[BaseException] = []

        def step() -> None:
            # Without this the reactor would only log the error, and never stop.
            try:
                seconds = next(work, None)
            except BaseException as error:
                errors.append(error)
                seconds = None
            if seconds is None:
                reactor.stop()
            else:
                reactor.callLater(seconds, step)

        reactor.callWhenRunning(step)
        reactor.run(installSignalHandlers=False)
        if errors:
            raise errors[0]

    call = reactor.callLater(3600, nothing)
    call.cancel()
    return Side(
        add=reactor.callLater,
        cancel=type(call).cancel,
        at=at,
        clock=reactor.seconds,
        drive=drive,
        call_in_loop=reactor.callFromThread,
    )
