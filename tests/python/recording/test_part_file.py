"""Until its end a recording is in a part file: no interrupt loses it, no other recording changes it (rule S6)."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import FrameType

import pyarrow.parquet as pq
import pytest

from tickwheel.recording import Recording, read_recording
from tickwheel.testing import ManualTimer

pytestmark = pytest.mark.timeout(60)

ANOTHER = "import sys; from tickwheel.recording import Recording; from tickwheel.testing import ManualTimer;"
ANOTHER += "Recording(ManualTimer(), sys.argv[1])"


def count(path: Path) -> int:
    return sum(len(batch) for batch in read_recording(path))


def run(code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=30)


def test_a_recording_replaces_no_device_and_no_pipe__S6(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="it is no file: name a file"):
        Recording(ManualTimer(), tmp_path / "pipe")
    with pytest.raises(OSError, match="it is no file: name a file"):
        Recording(ManualTimer(), "/dev/null")
    assert (tmp_path / "pipe").is_fifo()


def test_a_close_that_is_interrupted_may_be_called_again__S6(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    is_ending, may_end, is_interrupted = threading.Event(), threading.Event(), threading.Event()
    add = pq.ParquetWriter.add_key_value_metadata

    def slow(writer: pq.ParquetWriter, metadata: dict[bytes, str]) -> None:
        is_ending.set()
        assert may_end.wait(30)
        add(writer, metadata)

    def interrupt() -> None:
        assert is_ending.wait(30)
        while not is_interrupted.wait(0.01):  # a signal between the last check of CPython and its wait does not end it
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    def handle(number: int, frame: FrameType | None) -> None:
        if not is_interrupted.is_set():
            is_interrupted.set()
            signal.default_int_handler(number, frame)

    monkeypatch.setattr(pq.ParquetWriter, "add_key_value_metadata", slow)
    timer = ManualTimer()
    written = Recording(timer, tmp_path / "e.parquet")
    timer.after(1, int)
    was = signal.signal(signal.SIGINT, handle)
    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            written.close()
    finally:
        is_interrupted.set()
        may_end.set()
        thread.join()
        signal.signal(signal.SIGINT, was)
    written.close()
    assert count(tmp_path / "e.parquet") == 1


def test_a_program_that_an_interrupt_ends_in_close_leaves_its_recording__S6(tmp_path: Path) -> None:
    code = """if True:
        import os, signal, sys, time
        import pyarrow.parquet as pq
        from tickwheel.recording import Recording
        from tickwheel.testing import ManualTimer

        def slow(writer, metadata, add=pq.ParquetWriter.add_key_value_metadata):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.5)  # long enough for a program to end that does not wait
            add(writer, metadata)

        pq.ParquetWriter.add_key_value_metadata = slow
        signal.signal(signal.SIGINT, signal.default_int_handler)
        timer = ManualTimer()
        with Recording(timer, sys.argv[1]):
            timer.after(1, int)
        time.sleep(30)
        """
    done = run(code, tmp_path / "e.parquet")
    assert (done.returncode, done.stderr.splitlines()[-1]) == (-signal.SIGINT, "KeyboardInterrupt")
    assert count(tmp_path / "e.parquet") == 1


def test_of_two_recordings_of_one_path_the_last_that_ends_stays__S6(tmp_path: Path) -> None:
    path = tmp_path / "e.parquet"
    first, second = ManualTimer("first"), ManualTimer("second")
    with Recording(first, path):
        first.after(1, int)
        with Recording(second, path):
            pass
        assert count(path) == 0
        first.after(1, int)
    assert count(path) == 2
    assert [found.name for found in tmp_path.iterdir()] == ["e.parquet"]


def test_a_part_file_that_a_crash_left_stays_beside_the_next_recording__S6(tmp_path: Path) -> None:
    path = tmp_path / "e.parquet"
    assert run(f"{ANOTHER}; import os; os._exit(9)", path).returncode == 9
    (left,) = tmp_path.glob("e.parquet.*.part")
    timer = ManualTimer()
    with Recording(timer, path):
        timer.after(1, int)
    assert count(path) == 1
    assert sorted(tmp_path.iterdir()) == sorted([path, left])


def test_a_recording_that_begins_while_another_ends_never_touches_its_file__S6(tmp_path: Path) -> None:
    """Two recordings alternate at one path as fast as they can: each file seen there is complete."""
    path = tmp_path / "e.parquet"
    end = threading.Event()
    broken: list[BaseException] = []

    def take_turns() -> None:
        try:
            timer = ManualTimer()
            while not end.is_set():
                Recording(timer, path).close()
        except BaseException as error:
            broken.append(error)

    threads = [threading.Thread(target=take_turns) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        seen = 0
        while seen < 100 and not broken:
            if path.exists():
                assert count(path) == 0
                seen += 1
    finally:
        end.set()
        for thread in threads:
            thread.join()
    assert broken == []


@pytest.mark.parametrize("ends", ["written.close(); os._exit(0)", "sys.exit(0)"])
def test_a_child_that_is_forked_during_a_close_may_close_too_and_exit__S6_T12(tmp_path: Path, ends: str) -> None:
    code = """if True:
        import os, signal, sys, threading
        import pyarrow.parquet as pq
        from tickwheel.recording import Recording
        from tickwheel.testing import ManualTimer

        is_ending, may_end = threading.Event(), threading.Event()

        def slow(writer, metadata, add=pq.ParquetWriter.add_key_value_metadata):
            is_ending.set()
            may_end.wait(30)
            add(writer, metadata)

        pq.ParquetWriter.add_key_value_metadata = slow
        written = Recording(ManualTimer(), sys.argv[1])
        thread = threading.Thread(target=written.close)
        thread.start()
        assert is_ending.wait(30)
        if os.fork() == 0:
            signal.alarm(10)
            ENDS
        status = os.wait()[1]
        may_end.set()
        thread.join()
        sys.exit(os.waitstatus_to_exitcode(status))
        """.replace("ENDS", ends)
    assert run(code, tmp_path / "e.parquet").returncode == 0
    assert count(tmp_path / "e.parquet") == 0


def test_a_path_where_no_file_can_be_put_is_refused_at_the_beginning__S6(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    timer = ManualTimer()
    with pytest.raises(FileExistsError, match="folder"):
        Recording(timer, tmp_path / "folder")
    assert [found.name for found in tmp_path.iterdir()] == ["folder"]
    with Recording(timer, tmp_path / "e.parquet"):
        pass
