"""What the tests of the purgatory share: an operation that writes down what happens to it, and threads."""

import threading
from collections.abc import Callable
from typing import Any

from tickwheel import DelayedOperation, DelayedOperationPurgatory

HOUR = 3_600_000.0


class Op(DelayedOperation):
    """Is there once it `is_ready`."""

    def __init__(self, delay_ms: float = HOUR, lock: Any = None, *, ready: bool = False) -> None:
        super().__init__(delay_ms, lock)
        self.is_ready = ready
        self.tries = 0
        self.log: list[str] = []

    def try_complete(self) -> bool:
        self.tries += 1
        return self.is_ready and self.force_complete()

    def on_complete(self) -> None:
        self.log.append("complete")

    def on_expiration(self) -> None:
        self.log.append("expire")


class Acts(Op):
    """Does something before it looks."""

    in_try: Callable[[], object] | None = None

    def try_complete(self) -> bool:
        if self.in_try:
            self.in_try()
        return super().try_complete()


def counts(purgatory: DelayedOperationPurgatory) -> tuple[int, int, int, int]:
    """What is waiting: operations, on the timer, places on lists, keys."""
    stats = purgatory.stats()
    assert (stats["waiting"], stats["delayed"], stats["watched"]) == (
        len(purgatory),
        purgatory.num_delayed,
        purgatory.watched,
    )
    return stats["waiting"], stats["delayed"], stats["watched"], stats["keys"]


EMPTY = (0, 0, 0, 0)


def together(*calls: Callable[[], object], limit_s: float = 30) -> None:
    """Runs each in a thread of its own, all let go at once; raises what one of them raised, or that one hangs."""
    barrier = threading.Barrier(len(calls))
    errors: list[BaseException] = []

    def run(call: Callable[[], object]) -> None:
        try:
            barrier.wait(limit_s)
            call()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(call,), daemon=True) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(limit_s)
    if errors:
        raise errors[0]
    assert not any(thread.is_alive() for thread in threads), "a thread hangs"


class Stranger:
    """Another thread, which holds a lock until it is told to let go."""

    def __init__(self, lock: Any) -> None:
        self.let_go = threading.Event()
        held = threading.Event()

        def hold() -> None:
            with lock:
                held.set()
                self.let_go.wait(30)

        self.thread = threading.Thread(target=hold, daemon=True)
        self.thread.start()
        assert held.wait(30)

    def __enter__(self) -> "Stranger":
        return self

    def __exit__(self, *_: object) -> None:
        self.let_go.set()
        self.thread.join(30)
        assert not self.thread.is_alive()
