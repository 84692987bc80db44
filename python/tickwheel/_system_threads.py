"""Threads of the system in a program whose threads gevent or eventlet has replaced (T12)."""

import importlib.util
import os
import sys
import threading
from collections.abc import Callable
from importlib.machinery import BuiltinImporter
from typing import Any


def are_replaced() -> bool:
    """Whether the threads of `threading` are greenlets. A debugger replaces their start too, and they stay threads."""
    gevent, eventlet = sys.modules.get("gevent.monkey"), sys.modules.get("eventlet.patcher")
    by_gevent = gevent is not None and gevent.is_module_patched("threading")
    return bool(by_gevent or (eventlet is not None and eventlet.is_monkey_patched("thread")))


def make_thread(target: Callable[[], None], name: str) -> Any:
    """A daemon thread with `start`, `join` and `is_alive`: one of `threading`, if its threads are the system's."""
    return _SystemThread(target) if are_replaced() else threading.Thread(target=target, name=name, daemon=True)


class _SystemThread:
    """A thread that no library has replaced. A greenlet would run only while this thread waits in that library."""

    def __init__(self, target: Callable[[], None]) -> None:
        self._target = target
        self._module = _unchanged_thread_module()
        self._runs = self._module.allocate_lock()  # held from the start to the end

    def start(self) -> None:
        self._runs.acquire()
        self._process = os.getpid()
        try:
            self.ident = self._module.start_new_thread(self._run, ())
        except BaseException:
            self._runs.release()
            raise

    def _run(self) -> None:
        try:
            self._target()
        finally:
            self._runs.release()

    def is_alive(self) -> bool:
        """Whether it runs. In a forked child it has ended."""
        return bool(self._runs.locked()) and self._process == os.getpid()

    def join(self, timeout: float = -1) -> None:
        if self.is_alive() and self._runs.acquire(timeout=timeout):
            self._runs.release()


def _unchanged_thread_module() -> Any:
    """A new `_thread`: the libraries replace the functions of the module that is imported."""
    spec = importlib.util.spec_from_loader("_thread", BuiltinImporter, origin="built-in")
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    BuiltinImporter.exec_module(module)
    return module
