"""T12: in a program that gevent or eventlet has patched, the threads of a timer are threads of the system."""

import pytest

from borders.harness import run_script

PATCHES = {
    "gevent": "from gevent import monkey; monkey.patch_all()",
    "eventlet": """
import warnings
warnings.simplefilter("ignore")  # it says that it is deprecated
import eventlet
eventlet.monkey_patch()
warnings.simplefilter("error")
""",
}


@pytest.fixture(params=PATCHES)
def patch(request: pytest.FixtureRequest) -> str:
    pytest.importorskip(request.param, reason=f"{request.param} is not installed: requirements-dev.txt has it")
    return PATCHES[request.param]


def test_callbacks_run_while_no_greenlet_does__T12(patch: str) -> None:
    run_script(
        """
assert not isinstance(threading._start_new_thread, type(len)), "it is patched"
came, sleep = [], ctypes.CDLL(None).usleep
with SystemTimer("x") as timer:
    assert tid_of("exec-x") and tid_of("reaper-x")
    for number in range(100):
        timer.after(number % 5, came.append, number)
    end = time.monotonic() + 15
    while len(came) < 100:  # no greenlet gets a turn in this sleep
        assert time.monotonic() < end, came
        sleep(1000)
    task = timer.after(3_600_000, nop)
    assert task.cancel()
print("ended")
""",
        first=patch,
    )


def test_ctrl_c_ends_the_program_and_the_exit_hook_the_timer__T11_T12(patch: str) -> None:
    run_script(
        """
timer = SystemTimer("x")
timer.after(3_600_000, nop)
try:
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(15)
except KeyboardInterrupt:
    print("interrupted")
else:
    raise AssertionError("no KeyboardInterrupt")
""",
        first=patch,
    )


def test_a_pool_of_greenlets_is_refused__T12_T13(patch: str) -> None:
    run_script(
        """
with ThreadPoolExecutor(2) as pool:
    try:
        SystemTimer("x", executor=pool)
    except TypeError as error:
        assert "whose threads gevent or eventlet has replaced: leave it out" in str(error), error
    else:
        raise AssertionError("it was taken")
""",
        first=patch,
    )


def test_in_a_forked_child_the_thread_has_ended__T12() -> None:
    run_script(
        """
from tickwheel._system_threads import _SystemThread

may_end = threading.Event()
thread = _SystemThread(may_end.wait)
assert not thread.is_alive()
thread.start()
assert thread.is_alive()
if not (child := os.fork()):
    thread.join()
    os._exit(thread.is_alive())
assert reap(child) == 0
may_end.set()
thread.join()
assert not thread.is_alive()
"""
    )


def test_a_debugger_that_hooks_the_start_of_threads_changes_nothing__T12() -> None:
    run_script(
        """
from concurrent.futures import ThreadPoolExecutor
name = "_start_joinable_thread" if hasattr(threading, "_start_joinable_thread") else "_start_new_thread"
start, came = getattr(threading, name), threading.Event()

class Debugger:
    def hook(self, *args, **options):
        return start(*args, **options)

setattr(threading, name, Debugger().hook)
with ThreadPoolExecutor(1) as pool, SystemTimer("x", executor=pool) as timer:
    timer.after(0, came.set)
    assert came.wait(15)
print("ended")
"""
    )
