"""Twisted's default reactor on Linux, the one on epoll, which counts in wall-clock time.

`callLater` only notes the call, and the reactor's next turn puts it into its heap; a later turn sweeps the heap when
more than half of it is cancelled.
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
            # The reactor would only log what goes wrong here, and run on for ever.
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
        hand_over=reactor.callFromThread,
    )
