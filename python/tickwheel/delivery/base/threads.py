"""Starts threads. If the system gives none, the error says so and names the limits."""

import threading
from concurrent.futures import ThreadPoolExecutor

from tickwheel.delivery.base.errors import DeliveryFailed


def start(thread: threading.Thread) -> None:
    """Start it. Errors: `DeliveryFailed` if the system gives no thread."""
    try:
        thread.start()
    except RuntimeError as error:
        raise _no_thread(error) from error


def started_pool(count: int, name: str) -> ThreadPoolExecutor:
    """A pool whose threads run from the start. By itself it starts one when a task comes, and the task fails if the
    system gives none. Errors: `DeliveryFailed` if the system does not give all threads.
    """
    pool = ThreadPoolExecutor(count, thread_name_prefix=name)
    may_end = threading.Event()
    try:
        for _ in range(count):
            pool.submit(may_end.wait)
    except RuntimeError as error:
        pool.shutdown(wait=False)
        raise _no_thread(error) from error
    finally:
        may_end.set()
    return pool


def _no_thread(error: RuntimeError) -> DeliveryFailed:
    return DeliveryFailed(f"the system gives no thread: {error}: raise the limit (ulimit -u, TasksMax, pids.max)")
