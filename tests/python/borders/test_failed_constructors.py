"""A constructor that fails leaves no thread, no entry in the list of timers, and no reference (border rule 7, T13)."""

import pytest

from borders.harness import run_script

CHECK = """
sys.setswitchinterval(10)

def make(what, **settings):
    class Marked(ThreadPoolExecutor):
        pass

    pool, on_error = Marked(1), lambda *_: pool
    pool.submit(nop).result()
    before, gone = native_threads(), (weakref.ref(pool), weakref.ref(on_error))
    try:
        SystemTimer("fails", executor=pool, on_error=on_error, **settings)
    except what as error:
        said, left = str(error), dict(_native._running_timers)  # at once: nothing here lets another thread have the GIL
    else:
        raise AssertionError("it did not fail")
    assert not left, "its worker is left"
    # Joined for Python, a thread is still there for the kernel for a moment.
    wait_until(lambda: native_threads() == before, what="its threads to end")
    assert not _native._running_timers and not [one for one in _native._ending_threads if one.is_alive()]
    assert not [thread for thread in threading.enumerate() if "fails" in thread.name]
    pool.shutdown()
    del pool, on_error
    gc.collect()
    assert [one() for one in gone] == [None, None], "a reference is left"
    return said
"""


def test_a_reaper_whose_thread_is_refused_leaves_no_worker__rule7_T13():
    """Its stack does not fit into the address space: the system refuses the thread, after the worker's was started."""
    run_script(
        CHECK
        + """
assert "could not start a thread for timer 'fails'" in make(RuntimeError)
SystemTimer("without", reaper=False).shutdown()  # as before
""",
        first="import os; os.environ['RUST_MIN_STACK'] = str(1 << 46)",
    )


STARTS = {
    "refused": "raise RuntimeError('no thread')",
    "interrupted before it begins": "late.append(super().start); raise KeyboardInterrupt",
    "interrupted after it has begun": "super().start(); begun.wait(20); raise KeyboardInterrupt",
}


@pytest.mark.parametrize("start", STARTS)
def test_a_worker_whose_thread_is_refused_or_interrupted_leaves_nothing__rule7_T13(start):
    run_script(
        CHECK
        + f"""
late, begun = [], threading.Event()

class Thread(threading.Thread):
    def start(self):
        {STARTS[start]}

    def run(self):
        begun.set()
        super().run()

def fail(on_error, plain=threading.Thread):
    threading.Thread = Thread
    try:
        SystemTimer("fails", on_error=on_error)
    except (RuntimeError, KeyboardInterrupt):
        return weakref.ref(on_error)
    finally:
        threading.Thread = plain
    raise AssertionError("it did not fail")

gone = fail(lambda *_: None)
for begin in late:
    begin()
late.clear()
wait_until(lambda: not any("fails" in thread.name for thread in threading.enumerate()), what="its thread to end")
wait_until(lambda: not _native._running_timers and (gc.collect(), gone())[1] is None, limit=5, what="all to go")
with SystemTimer("next") as timer:
    ran = threading.Event()
    timer.after(0, ran.set)
    assert ran.wait(20)
"""
    )


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ("tick_ms=0", "ValueError"),
        ("max_pending=0", "ValueError"),
        ("start_ms=2**60", "ValueError"),
        ("wheel_size=1", "ValueError"),
    ],
)
def test_a_bad_setting_leaves_nothing__rule7_T13(settings, error):
    run_script(CHECK + f"make({error}, {settings})")
