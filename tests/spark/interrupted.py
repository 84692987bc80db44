"""Ctrl-C at a chosen moment of a command's work on Spark."""

import threading
from types import SimpleNamespace

import pytest

_WITHIN_S = 60


class NoSpark:
    """It stands in for a session, and says when Ctrl-C is seen: then all jobs are cancelled."""

    def __init__(self) -> None:
        self.ctrl_c, self.is_stopped = threading.Event(), threading.Event()
        self.sparkContext = SimpleNamespace(cancelAllJobs=self.ctrl_c.set)

    def stop(self) -> None:
        self.is_stopped.set()

    def wait_for_ctrl_c(self) -> None:
        assert self.ctrl_c.wait(_WITHIN_S)


def press_ctrl_c_at(moment: threading.Event, session: NoSpark, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the next command on this session, and press Ctrl-C at this moment."""

    class Interrupted(threading.Thread):
        def start(self) -> None:
            super().start()
            assert moment.wait(_WITHIN_S)
            raise KeyboardInterrupt

    monkeypatch.setattr("tickwheel.spark.session.laptop_session", lambda _name: session)
    monkeypatch.setattr("threading.Thread", Interrupted)
