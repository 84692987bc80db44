"""T12: only the main interpreter of a process may import tickwheel, and its timers outlive every other interpreter."""

from borders.harness import run_script

OTHERS = '''
import os, sys, threading, time
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters


def try_import(name):
    """What an import in an interpreter of its own says. mod_wsgi and uwsgi make and end one so."""
    reads, writes = os.pipe()
    if sys.version_info >= (3, 13):
        other = interpreters.create("legacy")
    else:
        other = interpreters.create(isolated=False)
    interpreters.run_string(other, f"""if True:
        import os, sys
        sys.path[:] = {sys.path!r}
        try:
            import {name}
        except ImportError as error:
            os.write({writes}, str(error).encode())
        else:
            os.write({writes}, b"imported")
    """)
    interpreters.destroy(other)
    os.close(writes)
    with open(reads) as told:
        return told.read()


def is_refused(name):
    said = try_import(name)
    assert "only the main interpreter" in said and "WSGIApplicationGroup %{GLOBAL}" in said, said


def runs_a_timer():
    from tickwheel import SystemTimer

    ran = threading.Event()
    with SystemTimer("main") as timer:
        timer.after(1, ran.set)
        assert ran.wait(15)
'''


def test_another_interpreter_gets_an_import_error_and_the_timers_of_the_main_one_go_on__T12() -> None:
    run_script(
        """
from tickwheel import SystemTimer

ran = threading.Event()
with SystemTimer("main") as timer:
    task = timer.after(3_600_000, ran.set)
    for name in ("tickwheel", "tickwheel.aio", "tickwheel.delivery"):
        is_refused(name)
    assert (task.is_pending, timer.stats()["expired"]) == (True, 0)
    task.reschedule(1)
    assert ran.wait(15)
runs_a_timer()
""",
        prelude=OTHERS,
    )


def test_an_interpreter_that_came_first_and_has_ended_forbids_the_main_one_nothing__T12() -> None:
    run_script("for _ in range(3): is_refused('tickwheel')\nruns_a_timer()\nis_refused('tickwheel')\n", prelude=OTHERS)
