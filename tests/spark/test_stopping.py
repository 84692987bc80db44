"""After a stop half-way a new run goes on: read files are known, held messages are still held (D11, D13, S1)."""

import json
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

from tickwheel.spark.query import end, start
from tickwheel.spark.run import feed_others

MESSAGES = 400


def run(folder: Path) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "tickwheel.cli", "deliver", "in", "--engine", "spark", "--lead", "2"]
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(
            [*command, "--store", "s.db", "--to", "file:out"],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )


@pytest.mark.timeout(500)  # two starts of Spark
def test_a_run_that_was_stopped_by_ctrl_c_goes_on__D11_D13(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    # Later than the first run ends, however slow Spark starts and stops; then the second run is told that they are due.
    due_ms = time.time_ns() // 1_000_000 + 3_600_000
    records = [{"id": f"m{n}", "key": f"k{n % 9}", "due": due_ms + n * 10} for n in range(MESSAGES)]
    (tmp_path / "in" / "all.ndjson").write_text("\n".join(map(json.dumps, records)))
    first = run(tmp_path)
    try:
        while not (tmp_path / "s.db.checkpoint" / "query" / "commits" / "0").exists():
            assert first.poll() is None, (tmp_path / "log").read_text()
            time.sleep(0.1)
        first.send_signal(signal.SIGINT)
        assert first.wait() == 130, (tmp_path / "log").read_text()
        assert "Traceback" not in (tmp_path / "log").read_text()
    finally:
        first.kill()
        first.wait()
    assert (tmp_path / "out").read_bytes() == b""
    due = [{"id": it["id"], "key": it["key"], "op": "reschedule", "due": 100_000_000_000} for it in records]
    (tmp_path / "in" / "due.ndjson").write_text("\n".join(map(json.dumps, due)))
    second = run(tmp_path)
    try:
        assert second.wait() == 0, (tmp_path / "log").read_text()
    finally:
        second.kill()
        second.wait()
    out = [json.loads(line) for line in (tmp_path / "out").read_bytes().splitlines()]
    assert [line["id"] for line in sorted(out, key=lambda line: int(line["id"][1:]))] == [
        f"m{n}" for n in range(MESSAGES)
    ]
    assert all(line["lateness_ms"] >= 0 for line in out)


def test_no_micro_batch_is_handed_off_once_the_run_is_to_stop__D13(session: Any, tmp_path: Path) -> None:
    begun: list[int] = []
    stop = threading.Event()

    def hand_off(_near: Any, batch: int) -> None:
        begun.append(batch)
        stop.set()

    query = start(session.readStream.format("rate").load(), hand_off, tmp_path, stop)  # type: ignore[arg-type]
    with pytest.raises(StreamingQueryException, match="the query is being ended"):
        query.awaitTermination()
    assert begun == [0]
    assert [file.name for file in (tmp_path / "commits").glob("[0-9]*")] == ["0"], "it is done by the next run"
    end(query)


def test_a_signal_ends_the_feed_of_others_and_a_late_one_does_not_matter__D13(tmp_path: Path) -> None:
    class Pipeline:
        checkpoint = "here"

        def __init__(self, *, is_delivered: bool) -> None:
            self.is_delivered = is_delivered

        def feed(self, _hand_off: object, stop: Any, _check: object) -> bool:
            assert not stop.wait(0)
            signal.raise_signal(signal.SIGTERM)
            assert stop.wait(0)
            return self.is_delivered

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    said: list[str] = []
    given: Any = None
    try:
        codes = [feed_others(Pipeline(is_delivered=each), given, said.append) for each in (False, True)]  # type: ignore[arg-type]
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert (codes, said) == ([130, 0], ["Stopped; run it again to go on from here", "everything was delivered"])
