"""Border rule 7, the fork: a child that touches its parent's purgatory gets `TimerForked`, never a hang (T12)."""

from purgatory.scripts import run_script

CHILD = '''
def touch():
    """Every touch of the parent's purgatory, in the child."""
    forked = {
        "watch": lambda: purgatory.try_complete_else_watch(Op(), ["key"]),
        "watch the parent's": lambda: DelayedOperationPurgatory("y", ManualTimer()).try_complete_else_watch(idle, [1]),
        "check": lambda: purgatory.check_and_complete("key"),
        "cancel_for_key": lambda: purgatory.cancel_for_key("key"),
        "len": lambda: len(purgatory),
        "watched": lambda: purgatory.watched,
        "num_delayed": lambda: purgatory.num_delayed,
        "stats": lambda: purgatory.stats(),
        "shutdown": lambda: purgatory.shutdown(),
        "exit": lambda: purgatory.__exit__(None, None, None),
        "wait": lambda: asyncio.run(purgatory.wait(Op(), ["key"])),
        "force_complete": lambda: waiting.force_complete(),
        "cancel": lambda: waiting.cancel(),
        "run": lambda: waiting.run(),
        "_watch": lambda: purgatory._watch(Op(), ["key"], nop),
        "_cancel_wait": lambda: purgatory._cancel_wait(waiting, 0),
        "force_complete of an idle one": lambda: idle.force_complete(),
        "on its timer": lambda: DelayedOperationPurgatory("y", purgatory.timer),
    }
    for name, call in forked.items():
        try:
            call()
        except TimerForked as error:
            assert "parent" in str(error), error
        else:
            raise AssertionError(f"{name} did not say TimerForked")
    assert "parent" in repr(purgatory) and "parent" in repr(waiting) and purgatory.name == "parent"
    assert purgatory and purgatory.unfinished == [] and not waiting.is_completed and waiting.delay_ms == HOUR
    assert waiting.log == [] and done.is_completed and repr(done) == "<Op completed>"


def own():
    """The child's own purgatory works, also with the very key objects of the parent."""
    with DelayedOperationPurgatory("child") as purgatory:
        first, second, third = Op(), Op(2), Op()
        for operation in (first, second, third):
            purgatory.try_complete_else_watch(operation, ["key", key])
        first.is_ready = True
        assert purgatory.check_and_complete(key) == 1
        wait_until(lambda: second.log == ["complete", "expire"])
    assert purgatory.unfinished == [third]

key = object()
purgatory = DelayedOperationPurgatory("parent")
waiting, idle, done = Op(), Op(), Op(ready=True)
purgatory.try_complete_else_watch(waiting, ["key", key])
purgatory.try_complete_else_watch(done, ["key"])
'''

END = """
    del purgatory, waiting, idle, done
    gc.collect()
    sys.exit(0)
"""


def test_a_child_gets_timer_forked_and_may_make_its_own__rule7_T12():
    run_script(
        CHILD
        + """
pid = os.fork()
if pid == 0:
    touch()
    own()
"""
        + END
        + """
assert (rc := reap(pid)) == 0, rc
assert counts(purgatory) == (1, 1, 2, 2)
waiting.is_ready = True
assert purgatory.check_and_complete(key) == 1
purgatory.shutdown()
"""
    )


def test_children_forked_under_load_never_hang__rule7_T12():
    """Whatever lock another thread holds at the moment of the fork."""
    run_script(
        CHILD
        + """
halt = threading.Event()

def load(seed):
    while not halt.is_set():
        operations = [Op(1) for _ in range(10)]
        for number, operation in enumerate(operations):
            purgatory.try_complete_else_watch(operation, [seed, number, "all"])
        operations[0].is_ready = True
        purgatory.check_and_complete(seed)
        purgatory.cancel_for_key(5)
        purgatory.stats()

threads = [threading.Thread(target=load, args=(seed,)) for seed in range(3)]
for thread in threads:
    thread.start()
codes = []
for turn in range(25):
    pid = os.fork()
    if pid == 0:
        touch()
        own()
"""
        + "\n".join("    " + line for line in END.strip("\n").splitlines())
        + """
    codes.append(reap(pid))
halt.set()
for thread in threads:
    thread.join()
assert codes == [0] * 25, codes
wait_until(lambda: len(purgatory) == 1)
assert counts(purgatory) == (1, 1, 2, 2)
purgatory.shutdown()
""",
        timeout=60,
    )


def test_a_child_forked_inside_a_method_leaves_the_parents_operations_alone__rule7_T12():
    """It comes back out of the check with `TimerForked`; the rest of the key is the parent's to try."""
    out = run_script(
        """
parent = os.getpid()
codes = []

class Forks(Op):
    def try_complete(self):
        if self.is_ready:
            if self is operations[0]:
                pid = os.fork()
                if pid:
                    codes.append(reap(pid))
            elif os.getpid() != parent:
                print("tried in the child", flush=True)
        return super().try_complete()

purgatory = DelayedOperationPurgatory("x", on_error=nop)
operations = [Forks() for _ in range(3)]
for operation in operations:
    purgatory.try_complete_else_watch(operation, ["key"])
    operation.is_ready = True
try:
    count = purgatory.check_and_complete("key")
except TimerForked:
    assert os.getpid() != parent
    os._exit(0)
if os.getpid() != parent:
    os._exit(3)
print(count, codes)
purgatory.shutdown()
"""
    )
    assert out == "3 [0]\n"


def test_a_child_that_a_try_forked_is_inside_no_try_of_its_own__T12():
    """Its checks are made at once, and what they complete is told at once."""
    run_script(
        """
class Forks(Op):
    def try_complete(self):
        if self.is_ready:
            self.is_ready = False
            child = os.fork()
            if child == 0:
                faulthandler.dump_traceback_later(20, exit=True)
                own = DelayedOperationPurgatory("child", ManualTimer())
                first, second = Op(), Op()
                own.try_complete_else_watch(first, ["key"])
                own.try_complete_else_watch(second, ["key"])
                first.is_ready = True
                is_right = own.check_and_complete("key") == 1 and first.log == ["complete"]
                is_right = is_right and second.force_complete() and second.log == ["complete"]
                os._exit(0 if is_right and counts(own) == EMPTY else 1)
            _, status = os.waitpid(child, 0)
            assert os.waitstatus_to_exitcode(status) == 0
            seen.append("child")
        return False

seen = []
purgatory = DelayedOperationPurgatory("parent", ManualTimer(on_error=lambda *error: seen.append(error)))
forks = Forks()
purgatory.try_complete_else_watch(forks, ["key"])
forks.is_ready = True
purgatory.check_and_complete("key")
assert seen == ["child"], seen
"""
    )
