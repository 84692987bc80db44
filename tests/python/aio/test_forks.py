"""Forks: a child shares the descriptor of its parent's timers, and leaves it alone (T12, T21)."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.timeout(60)
LOOPS = {
    "beside asyncio": "asyncio.SelectorEventLoop",
    "on asyncio": "aio.new_event_loop",
    "beside uvloop": "uvloop.new_event_loop",
    "on uvloop": "lambda: aio.new_event_loop(uvloop.Loop)",
}
loops = pytest.mark.parametrize("loop_factory", LOOPS.values(), ids=LOOPS)


def output_of(program: str, **names: str) -> str:
    if "uvloop" in "".join(names.values()):
        pytest.importorskip("uvloop")
        program = "import uvloop\n" + program
    for name, text in names.items():
        program = program.replace(name.upper(), text)
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        out, error = process.communicate(timeout=20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        pytest.fail("the parent's timers are dead")
    assert not process.returncode, error
    return out


IN_A_CALLBACK = """
import asyncio, os, sys
from tickwheel import aio

is_armed, arm = os.pipe()
children = []

def fork():
    if child := os.fork():
        children.append(child)
        return
    os.close(arm)
    os.read(is_armed, 1)
    loop.call_soon(os._exit, 0)
    LEAVES

async def main():
    global loop
    loop = asyncio.get_running_loop()  # in a child there is none
    aio.timers().call_later(0.001, fork)
    while not children:
        await asyncio.sleep(0)
    sleeps = asyncio.ensure_future(aio.sleep(0.2))
    await asyncio.sleep(0)
    os.write(arm, b"x")
    os.waitpid(children[0], 0)
    await sleeps
    print("slept")

with asyncio.Runner(loop_factory=LOOP_FACTORY) as runner:
    runner.run(main())
"""


@pytest.mark.parametrize("leaves", ["return", "sys.exit()"])
@loops
def test_a_child_forked_in_a_timers_callback_does_not_stop_its_parents_timers__T12(
    loop_factory: str, leaves: str
) -> None:
    assert output_of(IN_A_CALLBACK, loop_factory=loop_factory, leaves=leaves) == "slept\n"


IN_THE_SAME_TURN = """
import asyncio, ctypes, os
from tickwheel import aio

fork_in_c, parent = ctypes.PyDLL(None).fork, os.getpid()  # faster than os.fork(), so that the turn is not over

def fork():
    if child := fork_in_c():
        os.waitpid(child, 0)
    else:
        loop.call_soon(os._exit, 0)

def say():
    if os.getpid() != parent:
        os.write(1, b"child ")
        os._exit(0)

async def main():
    global loop
    loop = asyncio.get_running_loop()  # in a child there is none
    loop.set_exception_handler(lambda *_: None)
    for _ in range(40):  # some of them end within the turn
        at = aio.timers().time() + 0.002
        aio.timers().call_at(at, fork)
        aio.timers().call_at(at, say)
        await aio.sleep_until(at + 0.001)

asyncio.run(main())
"""


def test_a_child_forked_in_a_timers_callback_runs_none_of_its_parents__T12() -> None:
    assert output_of(IN_THE_SAME_TURN) == ""


LEAVES_A_TASK = """
import asyncio, os, sys
from tickwheel import aio

async def main():
    await aio.sleep(0.001)
    child = os.fork()
    if not child:
        sys.exit()  # leaves the Runner's block, which closes the child's copy of the loop
    os.waitpid(child, 0)
    await aio.sleep(0.001)
    print("slept")

with asyncio.Runner(loop_factory=LOOP_FACTORY) as runner:
    runner.run(main())
"""


@loops
def test_a_child_that_closes_its_copy_of_the_loop_does_not_stop_its_parents_timers__T12(loop_factory: str) -> None:
    assert output_of(LEAVES_A_TASK, loop_factory=loop_factory) == "slept\n"


AWAITS = """
import asyncio, os
from tickwheel import SystemTimer, TimerForked

timer = SystemTimer("of the parent")
task = timer.after(60_000, int)

async def main():
    try:
        await asyncio.wait_for(task, 5)
    except TimerForked:
        os.write(1, b"TimerForked")

if child := os.fork():
    os.waitpid(child, 0)
    task.cancel()
    timer.shutdown()
else:
    asyncio.run(main())
    os._exit(0)
"""


def test_a_child_that_awaits_a_task_of_its_parent_gets_an_error_and_no_hang__T12_T22() -> None:
    assert output_of(AWAITS) == "TimerForked"
