"""A forked child says once which timers of its parent run nothing in it, also if it never touches them (T12)."""

import pytest

from borders.harness import run_script

WARNED = """
import logging

class Lines(logging.Handler):
    def emit(self, record):
        os.write(1, f"{record.levelname} {record.name} {record.getMessage()}\\n".encode())

logging.getLogger("tickwheel").addHandler(Lines())

def fork(child=lambda: None):
    pid = os.fork()
    if pid == 0:
        child()
        os._exit(0)
    assert (rc := reap(pid)) == 0, rc
"""


def line(names: str) -> str:
    return (
        f"WARNING tickwheel this process was forked, and timers made before the fork run nothing in it: {names}; make "
        'a timer in each process, after the fork (see the page "Servers that fork" of the documentation)\n'
    )


def test_a_child_warns_once_and_names_the_timers_that_had_something_to_run__rule7_T12():
    out = run_script(
        WARNED
        + """
def grandchild():
    fork()
    with SystemTimer("own") as own:
        own.after(0, nop)

with SystemTimer("cleanup") as cleanup, SystemTimer("limits", reaper=False) as limits, SystemTimer("idle") as idle:
    series, task = cleanup.every(3_600_000, nop), limits.after(3_600_000, nop)
    idle.after(3_600_000, nop).cancel()
    fork(grandchild)
    fork()
    series.cancel(), task.cancel()
    fork()
fork()
"""
    )
    assert out == line("'cleanup', 'limits'") * 2


def test_a_purgatory_and_an_executor_of_the_program_are_named_too__rule7_T12():
    out = run_script(
        WARNED
        + """
from tickwheel import DelayedOperation, DelayedOperationPurgatory

class Reply(DelayedOperation):
    def try_complete(self):
        return False

with ThreadPoolExecutor(1) as pool, SystemTimer("pool", executor=pool) as timer, loop_in_a_thread() as loop:
    task = timer.after(3_600_000, nop)
    with SystemTimer("loop", executor=loop) as on_loop, DelayedOperationPurgatory("calls") as calls:
        other = on_loop.every(3_600_000, nop)
        calls.try_complete_else_watch(Reply(3_600_000), ["key"])
        fork()
        other.cancel()
    task.cancel()
"""
    )
    assert out == line("'pool', 'loop', 'calls'")


@pytest.mark.parametrize("way", ["multiprocessing", "a pool of processes"])
def test_each_child_of_multiprocessing_warns_once__rule7_T12(way):
    out = run_script(
        WARNED
        + f"""
import multiprocessing
from concurrent.futures import ProcessPoolExecutor

context = multiprocessing.get_context("fork")
with SystemTimer("cleanup") as timer:
    series = timer.every(3_600_000, nop)
    if {way == "multiprocessing"}:
        process = context.Process(target=nop)
        process.start()
        process.join()
    else:
        with ProcessPoolExecutor(1, mp_context=context) as pool:
            assert pool.submit(len, "abc").result() == 3
    for started in ("spawn", "forkserver"):
        process = multiprocessing.get_context(started).Process(target=print)
        process.start()
        process.join()
    series.cancel()
"""
    )
    assert [text for text in out.splitlines() if text] == [line("'cleanup'").strip()]


def test_another_program_that_is_started_warns_of_nothing__rule7_T12():
    out = run_script(
        WARNED
        + """
import subprocess

with SystemTimer("cleanup") as timer:
    series = timer.every(3_600_000, nop)
    subprocess.run(["true"], check=True)
    series.cancel()
"""
    )
    assert out == ""


def test_a_logger_that_fails_harms_neither_the_child_nor_its_own_timers__rule7_T12():
    out = run_script(
        """
import logging

class Broken(logging.Handler):
    def emit(self, record):
        raise OSError("no disk")

logging.getLogger("tickwheel").addHandler(Broken())
threading.excepthook = lambda args: os.write(1, f"{args.exc_value}\\n".encode())

with SystemTimer("cleanup") as timer:
    series = timer.every(3_600_000, nop)
    pid = os.fork()
    if pid == 0:
        ran = threading.Event()
        with SystemTimer("own") as own:
            own.after(0, ran.set)
            assert ran.wait(10)
        os._exit(0)
    assert (rc := reap(pid)) == 0, rc
    series.cancel()
"""
    )
    assert out == "no disk\n"


def test_children_that_are_forked_while_threads_log_and_run_callbacks_never_hang__rule7_T12():
    """Nearly each of them inherits the taken lock of the stream, so that what it writes there would never end."""
    run_script(
        """
timer = SystemTimer("cleanup")  # before the program imports logging
import logging

logging.basicConfig(stream=open(os.devnull, "w"), level=logging.INFO)
halt = threading.Event()

def noise():
    while not halt.is_set():
        logging.getLogger("noise").info("x" * 5000)

for _ in range(20):
    timer.every(1, lambda: logging.getLogger("callback").info("called"))
threads = [threading.Thread(target=noise) for _ in range(2)]
for thread in threads:
    thread.start()
for turn in range(8):
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    assert (rc := reap(pid, 10)) == 0, (turn, rc)
halt.set()
for thread in threads:
    thread.join()
timer.shutdown()
""",
        timeout=70,
        stderr=None,  # a thread that has the id of the lock's owner gets an error, which logging prints
    )
