"""The objects of a graph: nodes, callbacks of every form, tasks, operations, handlers of errors.

A callback gets a node, and what it does goes along that node's references: so cycles run through all parts of the
module. Each call looks at its node first: one whose attributes are gone was cleared by the collector too early.
"""

import asyncio
import functools
import random
import sys
from collections.abc import Callable
from typing import Any

from fuzz.ledger import Ledger, Planned, planned
from tickwheel import DelayedOperation, TimerRejected, TimerTask

CALLBACKS = ("lambda", "closure", "method", "partial", "callable", "defaults", "class", "any", "raising")
HANDLERS = ("none", "lambda", "method", "partial", "callable", "raises", "dying")


class Node:
    """A piece of the graph. `acts` is called with the node from callbacks and from `__del__`; `None` does nothing."""

    def __init__(self, ledger: Ledger, number: int, acts: Callable[["Node", random.Random], None]) -> None:
        self.ledger, self.number, self.acts, self.refs = ledger, number, acts, [self]

    def look(self) -> Ledger:
        """Fails if the collector has cleared this node."""
        try:
            _ = self.refs, self.number
            return self.ledger
        except AttributeError:
            raise AssertionError("the collector cleared a node that was still to be called") from None


class DyingNode(Node):
    """Its destructor calls back: it adds, cancels, shuts down."""

    def __del__(self) -> None:
        if "acts" in self.__dict__ and not sys.is_finalizing() and not self.ledger.is_quiet:
            self.acts(self, random.Random(self.number))


class Dying:
    """For a class whose objects have a `node`: their destructor calls back, and brings some back to life."""

    def __del__(self) -> None:
        node = self.__dict__.get("node")
        if node is None or sys.is_finalizing() or node.ledger.is_quiet:
            return
        rng = random.Random(node.ledger.number())  # another each time: what acts makes more of these
        if rng.random() < 0.3:
            node.ledger.revived.append(self)
        node.acts(node, rng)


def ran(number: int, node: Node, *indices: Any) -> None:
    """Every callback ends here: counts the run, then fails on purpose or does something with its node."""
    ledger = node.look()
    ledger.note("ran", number, len(indices[0]) if indices and isinstance(indices[0], memoryview) else 1)
    if ledger.is_quiet:
        return
    rng = random.Random(number)
    if rng.random() < 0.15:
        ledger.note("raised", number)
        raise planned(number)
    if rng.random() < 0.6:
        node.acts(node, rng)


class CallingNode(Node):
    """A node that is a callback itself, and has one as a method."""

    called = 0

    def __call__(self, *arguments: Any) -> None:
        ran(self.called, self, *arguments)

    method = __call__


class AnyNode(CallingNode):
    """Like a mock, it has every attribute; not those that say whether it is whole."""

    def __getattr__(self, name: str) -> Any:
        if name in {"refs", "number", "ledger", "acts"}:
            raise AttributeError(name)
        return self


class RaisingNode(CallingNode):
    def __call__(self, *arguments: Any) -> None:
        ran(self.called, self, *arguments)
        if not self.ledger.is_quiet:
            number = self.ledger.number()
            self.ledger.note("raised", number)
            raise planned(number)


def callback(kind: str, number: int, node: Node) -> Callable[..., Any]:
    """A callable of this form that runs `ran(number, node)`, and that its node holds now and then."""
    if kind in {"callable", "method", "any", "raising"}:
        of_kind = {"any": AnyNode, "raising": RaisingNode}.get(kind, CallingNode)
        own = of_kind(node.ledger, node.ledger.number(), node.acts)
        own.called, own.refs = number, [*node.refs, node, own]
        made: Callable[..., Any] = own.method if kind == "method" else own
    elif kind == "lambda":
        made = lambda *arguments: ran(number, node, *arguments)  # noqa: E731
    elif kind == "closure":

        def made(*arguments: Any) -> None:
            _ = made
            ran(number, node, *arguments)
    elif kind == "partial":
        made = functools.partial(ran, number, node)
    elif kind == "class":

        class Made:
            def __init__(self, *arguments: Any) -> None:
                ran(number, node, *arguments)

        made = Made
    elif kind == "coroutine":

        async def awaited(*arguments: Any) -> None:
            await asyncio.sleep(0)
            ran(number, node, *arguments)

        made = awaited
    else:

        def made(*arguments: Any, number: int = number, node: Node = node) -> None:
            ran(number, node, *arguments)

    if number % 2:
        node.refs.append(made)
    return made


def heard(node: Node, about: object, error: BaseException) -> None:
    """Every handler of errors ends here."""
    note_error(node.look(), error)


def note_error(ledger: Ledger, error: BaseException) -> None:
    if isinstance(error, Planned):
        ledger.note("heard", error.number)
    elif isinstance(error, TimerRejected):
        ledger.note("rejected", 0)
    else:
        ledger.problem(f"not planned: {type(error).__name__}: {error}")


class HearingNode(Node):
    def __call__(self, about: object, error: BaseException) -> None:
        heard(self, about, error)

    def raises(self, about: object, error: BaseException) -> None:
        heard(self, about, error)
        number = self.ledger.number()
        self.ledger.note("raised", number)
        raise planned(number)

    method = __call__


class DyingHearingNode(HearingNode, DyingNode):
    pass


def handler(kind: str, node: Node) -> Callable[[Any, BaseException], None] | None:
    """An `on_error` of this form."""
    of_kind = DyingHearingNode if kind == "dying" else HearingNode
    own = of_kind(node.ledger, node.ledger.number(), node.acts)
    own.refs = [*node.refs, node, own]
    made: dict[str, Callable[[Any, BaseException], None] | None] = {
        "none": None,
        "lambda": lambda about, error: heard(own, about, error),
        "method": own.method,
        "partial": functools.partial(heard, own),
        "callable": own,
        "raises": own.raises,
        "dying": own,
    }
    return made[kind]


class Task(TimerTask):
    """A subclass with attributes of its own."""

    def __init__(self, delay_ms: float, number: int, node: Node) -> None:
        super().__init__(delay_ms)
        self.number, self.node = number, node

    def run(self) -> None:
        ran(self.number, self.node)


class DyingTask(Dying, Task):
    pass


class Operation(DelayedOperation):
    """Completes when it is ready; each of its methods may call back or fail."""

    def __init__(self, delay_ms: float, lock: Any, node: Node) -> None:
        super().__init__(delay_ms, lock)
        self.node, self.number, self.is_ready = node, node.ledger.number(), False
        self.rng = random.Random(self.number)

    def try_complete(self) -> bool:
        ledger = self.node.look()
        if self.rng.random() < 0.1 and not ledger.is_quiet:
            self.node.acts(self.node, self.rng)
        if self.rng.random() < 0.1 and not ledger.is_quiet:
            self.fail()
        return self.is_ready and self.force()

    def force(self) -> bool:
        won = self.force_complete()
        if won:
            self.node.ledger.note("forced", self.number)
        return won

    def on_complete(self) -> None:
        self.end("completed")

    def on_expiration(self) -> None:
        self.end("expired")

    def end(self, how: str) -> None:
        ledger = self.node.look()
        ledger.note(how, self.number)
        if self.rng.random() < 0.3 and not ledger.is_quiet:
            self.node.acts(self.node, self.rng)
        if self.rng.random() < 0.2 and not ledger.is_quiet:
            self.fail()

    def fail(self) -> None:
        number = self.node.ledger.number()
        self.node.ledger.note("raised", number)
        raise planned(number)


class Key:
    """A key that is a piece of the graph, with Python in its comparison."""

    def __init__(self, node: Node) -> None:
        self.node, self.number = node, node.number

    def __hash__(self) -> int:
        return self.number % 7

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Key) and self.number == other.number


class DyingOperation(Dying, Operation):
    pass


class DyingKey(Dying, Key):
    pass
