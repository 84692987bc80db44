"""For all tests: the list of long tests, and a time limit that also ends the processes of a test.

A test that only gets an exception at its limit may hang for ever: leaving `with Popen(...)` waits for the process. A
fixture that serves several tests, as a database, keeps its processes. SIGINT works however pytest was started. A shell
lets a command in the background ignore SIGINT, and each process inherits that.
"""

import os
import random
import signal
import threading
from collections.abc import Callable, Generator, Set
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

# The tests that `make test-all` runs and `make test` does not, and why: a folder, a file, or one test of a file. They
# begin in this order, the slowest first, so that no worker is left with a slow one at the end.
CLUSTERS = "clusters whose parts are killed"
BROKER = "a broker"
LONG = {
    "tests/spark/soak": CLUSTERS,
    "tests/spark/test_program.py": CLUSTERS,
    "tests/spark/kafka": BROKER,
    "tests/spark/analytics": "reports of many stores by Spark",
    "tests/spark/test_bad_input.py": "a session of Spark of its own",
    "tests/spark/test_engines.py": "a session of Spark of its own",
    "tests/spark/test_stopping.py": "a session of Spark of its own",
    "tests/spark/what_if/test_simulate.py": "a session of Spark of its own",
    "tests/python/aio/test_cpython.py": "CPython's own tests",
    "tests/python/test_instructions.py": "valgrind",
    "tests/python/django_site/test_worker.py::test_no_task_is_lost_when_the_worker_is_killed__D5": "kills",
    "tests/python/django_site/test_restarts.py": "kills",
    "tests/python/delivery/outbox/test_kill.py": "kills",
    "tests/python/delivery/soak": "kills",
    "tests/python/delivery/serve/test_failed_sync.py": "kills",
    "tests/python/pages": "a browser",
    "tests/python/test_benches.py": "the benchmarks",
    "tests/python/delivery/test_flights.py::test_a_demo_that_was_stopped_half_way_goes_on__D11": "kills",
    "tests/python/docs/test_site.py": "the site is built",
    "tests/python/test_bench_kafka.py": "the benchmarks",
    "tests/python/test_bench_queues.py": "the benchmarks",
    "tests/python/fuzz": "fuzzers",
    "tests/python/delivery/test_fuzz.py": "fuzzers",
    "tests/python/delivery/test_fuzz_arrow.py": "fuzzers",
    "tests/python/delivery/sinks/test_kafka.py": BROKER,
    "tests/python/delivery/report/test_browser.py": "a browser",
    "tests/python/docs/test_browser.py": "a browser",
    "tests/python/packages/test_contents.py": "archives are made",
}
ROOT = Path(__file__).parents[1]
AGAIN_S = 10.0  # a test that hangs in its clean-up is ended too


class Process(NamedTuple):
    """The number alone may be another process's later."""

    pid: int
    started: str


_shared: set[Process] = set()


def _descendants(left_out: Set[Process] = frozenset()) -> set[Process]:
    """The processes below this one, without these and what is below them. Empty where the system does not tell."""
    children: dict[int, list[Process]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            fields = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
            children.setdefault(int(fields[1]), []).append(Process(int(folder.name), fields[19]))
    found, waiting = set[Process](), [os.getpid()]
    while waiting:
        new = {it for it in children.get(waiting.pop(), ()) if it not in left_out}
        found |= new
        waiting += [it.pid for it in new]
    return found


def end_processes() -> list[int]:
    """Ends all that this test started, except what serves several tests."""
    ended = sorted(it.pid for it in _descendants(_shared))
    for pid in ended:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return ended


def pytest_configure() -> None:
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--shuffle", type=int, metavar="SEED", help="the files, and the tests of each, in a random order")
    parser.addoption("--long", action="store_true", help="reads only files with long tests, the slowest first")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    if not config.getoption("--long"):
        return None
    path = f"{collection_path.relative_to(ROOT).as_posix()}/"
    files = [f"{long.partition('::')[0]}/" for long in LONG]
    return None if any(path.startswith(file) or file.startswith(path) for file in files) else True


def _place(item: pytest.Item) -> int:
    """In the list of long tests, or after it."""
    return next((place for place, path in enumerate(LONG) if item.nodeid.startswith(path)), len(LONG))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if _place(item) < len(LONG):
            item.add_marker(pytest.mark.long)
    if config.getoption("--long"):
        items.sort(key=_place)
    seed = config.getoption("--shuffle")
    if seed is not None:  # each worker gets the same order
        rng = random.Random(seed)
        files = {item.path: rng.random() for item in items}
        items.sort(key=lambda item: (files[item.path], rng.random()))


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any]) -> Generator[None, Any, Any]:
    if fixturedef.scope == "function":
        return (yield)
    before = _descendants()
    try:
        return (yield)
    finally:
        _shared.update(_descendants() - before)


@pytest.hookimpl(wrapper=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> Generator[None, Any, Any]:
    result = yield
    fail = signal.getsignal(signal.SIGALRM)
    if callable(fail):
        signal.signal(signal.SIGALRM, _ending_processes(item, fail))
        signal.setitimer(signal.ITIMER_REAL, settings.timeout, AGAIN_S)
    return result


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """A child that a test forked ends with the test. It would run the next tests too, as a second pytest."""
    process = os.getpid()
    try:
        return (yield)
    finally:
        if os.getpid() != process:
            os.write(2, f"\n{item.nodeid}: a child that it forked came back from the test\n".encode())
            os._exit(70)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, Any, Any]:
    """The alarm of a test that was over its limit goes on: pytest-timeout stops it when the failure is reported."""
    fail = item.stash.get(_OVER, None)
    if fail is None:
        return (yield)
    signal.signal(signal.SIGALRM, _ending_processes(item, fail))
    signal.setitimer(signal.ITIMER_REAL, AGAIN_S, AGAIN_S)
    try:
        return (yield)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)


_OVER = pytest.StashKey[Callable[..., Any]]()


def _ending_processes(item: pytest.Item, fail: Callable[..., Any]) -> Callable[..., None]:
    def handler(number: int, frame: Any) -> None:
        item.stash[_OVER] = fail
        ended = end_processes()
        os.write(2, f"\nover its time limit: ended the processes {ended}\n".encode())
        fail(number, frame)

    return handler


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """A file runs in one worker. Spark's short tests do so together, in one JVM. Its long tests are two groups of equal
    length, those with a cluster and those with sessions or a broker: two starts of Spark at a time, and no third, which
    takes a minute on two cores, and some of these tests need it within a time.
    """
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            if not nodeid.startswith("tests/spark/"):
                return nodeid.split("::", 1)[0]
            reason = next((reason for path, reason in LONG.items() if nodeid.startswith(path)), None)
            if reason is None:
                return "Spark: short"
            return "Spark: long, clusters" if reason == CLUSTERS else "Spark: long, sessions"

    return Scheduling(config, log)
