"""A file that is read again, and hangs, holds up no stop (D12, D13)."""

import os
import signal
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tickwheel._stopping import Stopped, stopped_by_signals
from tickwheel.delivery.serve.credentials import Credentials

pytestmark = pytest.mark.timeout(60)


def test_a_signal_that_does_not_interrupt_the_read_ends_it__D12_D13(tmp_path: Path) -> None:
    """As one between CPython's check and the read: here the system gives it to another thread."""
    path = tmp_path / "tokens"
    path.write_text("x" * 32 + "\n")
    path.chmod(0o600)
    credentials = Credentials(path)
    path.unlink()
    os.mkfifo(path, 0o600)
    is_over, waited = threading.Event(), list[bool]()

    def stop() -> None:
        with path.open("wb"):  # the reader has opened it
            signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
            waited.append(is_over.wait(20))

    thread = threading.Thread(target=stop)
    thread.start()
    access: Any = SimpleNamespace(tokens=None)
    try:
        with pytest.raises(Stopped), stopped_by_signals():
            credentials.read_again(access, print)
    finally:
        is_over.set()
        thread.join()
    assert waited == [True], "the stop came only when the file did"
