"""T12: timers, tasks and batches belong to their process, so pickling or copying one says why it cannot be done."""

import copy
import pickle
from array import array
from collections.abc import Callable
from typing import Any

import pytest

from tickwheel import SystemTimer, TimerTask
from tickwheel.testing import ManualTimer


class Ping(TimerTask):
    def run(self) -> None: ...


class MyTimer(ManualTimer):
    pass


MAKE: dict[str, Callable[[], Any]] = {
    "SystemTimer": lambda: SystemTimer("pickled"),
    "ManualTimer": ManualTimer,
    "MyTimer": MyTimer,
    "TimerTask": lambda: TimerTask(5, print),
    "Ping": lambda: Ping(5),
    "TaskBatch": lambda: ManualTimer().add_many(array("q", [5]), print),
}
WAYS: dict[str, Callable[[Any], object]] = {
    **{f"protocol {number}": lambda it, number=number: pickle.dumps(it, number) for number in range(6)},
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "in a list": lambda it: pickle.dumps([it]),
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("name", MAKE)
def test_pickling_and_copying_raise_with_the_reason__T12(name: str, way: Callable[[Any], object]) -> None:
    shown = "TimerTask" if name == "Ping" else name
    text = (
        f"^cannot pickle a {shown}: its threads and what is pending belong to this process; make one where it is used$"
    )
    with pytest.raises(TypeError, match=text):
        way(MAKE[name]())


def test_a_refused_pickle_leaves_a_timer_as_it_was__T12() -> None:
    timer, ran = ManualTimer(), []
    timer.after(5, ran.append, 1)
    with pytest.raises(TypeError):
        pickle.dumps(timer)
    timer.advance(5)
    assert ran == [1]
