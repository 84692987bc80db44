"""Border rule 7, the exit: with operations that wait and callbacks that run it ends without a crash or a word (T11)."""

import subprocess
import sys

import pytest

from purgatory.scripts import run_script

WAITING = """
class Last(Op):
    def __del__(self):
        purgatory and purgatory.check_and_complete("key")

keep = []
for purgatory in (
    DelayedOperationPurgatory("own"),
    DelayedOperationPurgatory("without", timer_enabled=False),
    DelayedOperationPurgatory("manual", ManualTimer()),
    DelayedOperationPurgatory("driven", SystemTimer("driven", reaper=False)),
):
    for number in range(50):
        operation = (Last if number % 2 else Op)(HOUR if number % 3 else 5, threading.RLock())
        purgatory.try_complete_else_watch(operation, [number, "key", object()])
        keep.append((operation, purgatory))
"""


@pytest.mark.parametrize("held", ["held", "dropped"])
@pytest.mark.parametrize("end", ["", "sys.exit(0)", "os._exit(0)"])
def test_with_operations_that_wait__rule7_T11(held, end):
    drop = "operation = purgatory = None; keep.clear()" if held == "dropped" else ""
    run_script(f"{WAITING}\n{drop}\n{end}")


@pytest.mark.parametrize("method", ["try_complete", "on_complete", "on_expiration"])
def test_a_method_that_runs_on_the_timers_thread_is_waited_for__rule7_T11(method):
    out = run_script(
        f"""
class Slow(Op):
    def slow(self):
        running.set()
        time.sleep(0.2)
        print("done", purgatory.check_and_complete("key"))

    def try_complete(self):
        if self.is_ready and "{method}" == "try_complete":
            self.slow()
        return super().try_complete()

    def on_complete(self):
        if "{method}" == "on_complete":
            self.slow()

    def on_expiration(self):
        if "{method}" == "on_expiration":
            self.slow()

running = threading.Event()
purgatory = DelayedOperationPurgatory("x")
lock = threading.Lock()
slow = Slow(50, lock)
purgatory.try_complete_else_watch(slow, ["slow"])
waiting = Op(5_000)
purgatory.try_complete_else_watch(waiting, ["key"])
if "{method}" == "try_complete":
    slow.is_ready = True
    with lock:
        purgatory.check_and_complete("slow")
running.wait(10)
"""
    )
    assert out == "done 0\n"


def test_with_coroutines_that_wait__rule7_T11():
    run_script(
        """
purgatory = DelayedOperationPurgatory("x")

async def main():
    tasks = [asyncio.create_task(purgatory.wait(Op(HOUR), [number])) for number in range(20)]
    await asyncio.sleep(0.01)
    assert len(purgatory) == 20

asyncio.run(main())  # cancels them
assert counts(purgatory) == EMPTY
"""
    )


def test_with_daemon_threads_that_check_all_the_time__rule7_T11():
    """A thread that the interpreter ends comes out of the middle of a `try_complete`, through native frames."""
    run_script(
        """
purgatory = DelayedOperationPurgatory("x")
for number in range(50):
    purgatory.try_complete_else_watch(Op(HOUR), ["key"])

def check():
    while True:
        purgatory.check_and_complete("key")

for _ in range(3):
    threading.Thread(target=check, daemon=True).start()
time.sleep(0.1)
"""
    )


HOOK_BEFORE_THE_IMPORT = """
import atexit, threading

def stop():
    go_on.set()
    thread.join(10)
    print(thread.is_alive())

go_on = threading.Event()
atexit.register(stop)
from tickwheel import DelayedOperation, DelayedOperationPurgatory

class Never(DelayedOperation):
    def try_complete(self):
        return False

def work():
    go_on.wait()
    purgatory.check_and_complete("key")

purgatory = DelayedOperationPurgatory("x")
purgatory.try_complete_else_watch(Never(60_000), ["key"])
thread = threading.Thread(target=work, daemon=True)
thread.start()
"""


def test_an_exit_hook_that_waits_for_a_thread_which_uses_a_purgatory__rule7_T11():
    """Hooks run in reverse order: one that was registered before the import runs after ours. Its thread has to end."""
    process = subprocess.run(
        [sys.executable, "-c", HOOK_BEFORE_THE_IMPORT], capture_output=True, text=True, timeout=40, check=False
    )
    assert (process.returncode, process.stdout, process.stderr) == (0, "False\n", "")
