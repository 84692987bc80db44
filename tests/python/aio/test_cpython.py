"""CPython's own tests of asyncio, on loops whose timers are in a wheel (T21)."""

import json
import os
import pkgutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(300)
PLACE = find_spec("test.test_asyncio") if find_spec("test") else None
MODULES = (
    [
        it.name
        for it in pkgutil.iter_modules(PLACE.submodule_search_locations or [])
        if it.name[:5] == "test_" and "windows" not in it.name
    ]
    if PLACE
    else []
)

RUN = """
import asyncio, json, signal, sys, unittest, warnings
from tickwheel import aio

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it for what runs in its background
warnings.simplefilter("ignore")
module, kind = sys.argv[1:]
if kind == "wheel":
    base = asyncio.SelectorEventLoop
    class Loop(aio.WheelTimers, base):
        pass
    asyncio.SelectorEventLoop = asyncio.unix_events.SelectorEventLoop = Loop
    if hasattr(asyncio, "EventLoop"):  # since Python 3.13
        asyncio.EventLoop = asyncio.unix_events.EventLoop = Loop
    asyncio.unix_events._UnixDefaultEventLoopPolicy._loop_factory = Loop
if kind == "beside":
    asyncio.timeout, asyncio.timeout_at, asyncio.Timeout = aio.timeout, aio.timeout_at, aio.Timeout
    asyncio.sleep = aio.sleep
suite = unittest.defaultTestLoader.loadTestsFromName("test.test_asyncio." + module)
found = unittest.TextTestRunner(verbosity=0).run(suite)
bad = [test.id() for test, _ in found.failures + found.errors]
print(json.dumps({"run": found.testsRun, "bad": bad, "made": getattr(asyncio.SelectorEventLoop, "__name__")}))
"""


def outcome(module: str, kind: str, folder: Path) -> dict[str, object]:
    done = subprocess.run(
        [sys.executable, "-c", RUN, module, kind], capture_output=True, text=True, check=False, cwd=folder,
        env={**os.environ, "PYTHONASYNCIODEBUG": ""}, timeout=250,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3_000:]
    found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return found | {"text": done.stderr}


@pytest.mark.skipif(not MODULES, reason="this Python has no tests of its own")
@pytest.mark.parametrize("module", MODULES)
def test_what_passes_on_the_base_loop_passes_on_the_wheel__T21(module: str, tmp_path: Path) -> None:
    found = outcome(module, "wheel", tmp_path)
    assert found["made"] == "Loop", "they run on the wheel's loop"
    if found["bad"]:
        assert found["bad"] == outcome(module, "base", tmp_path)["bad"], found["text"]


@pytest.mark.skipif(not MODULES, reason="this Python has no tests of its own")
def test_timeout_is_as_asyncios_own__T21(tmp_path: Path) -> None:
    found = outcome("test_timeouts", "beside", tmp_path)
    assert found["run"]
    assert found["bad"] == [], found["text"]
