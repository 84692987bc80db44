"""After a stop half-way a new run goes on: read files are known, held messages are still held (D11, D13, S1)."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tickwheel.delivery import WrongUsage
from tickwheel.spark.shape import LocalFolder, keep_shape

MESSAGES = 400


def start(folder: Path) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "tickwheel.cli", "deliver", "in", "--engine", "spark", "--lead", "2"]
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(
            [*command, "--store", "s.db", "--to", "file:out"],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )


@pytest.mark.timeout(300)
def test_a_run_that_was_stopped_by_ctrl_c_goes_on__D11_D13(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    # Later than the first run ends: Spark takes some 25 s to start, and 20 s to stop, on a slow disk.
    due_ms = time.time_ns() // 1_000_000 + 90_000
    records = [{"id": f"m{n}", "key": f"k{n % 9}", "due": due_ms + n * 10} for n in range(MESSAGES)]
    (tmp_path / "in" / "all.ndjson").write_text("\n".join(map(json.dumps, records)))
    first = start(tmp_path)
    try:
        while not (tmp_path / "s.db.checkpoint" / "query" / "commits" / "0").exists():
            assert first.poll() is None, (tmp_path / "log").read_text()
            time.sleep(0.1)
        first.send_signal(signal.SIGINT)
        assert first.wait(60) == 130, (tmp_path / "log").read_text()
    finally:
        first.kill()
        first.wait()
    before = len((tmp_path / "out").read_bytes().splitlines())
    assert before < MESSAGES
    second = start(tmp_path)
    try:
        assert second.wait(180) == 0, (tmp_path / "log").read_text()
    finally:
        second.kill()
        second.wait()
    out = [json.loads(line) for line in (tmp_path / "out").read_bytes().splitlines()]
    assert [line["id"] for line in sorted(out, key=lambda line: int(line["id"][1:]))] == [
        f"m{n}" for n in range(MESSAGES)
    ]
    assert all(line["lateness_ms"] >= 0 for line in out)


def test_a_checkpoint_of_another_version_is_refused_and_says_what_to_do__S4(tmp_path: Path) -> None:
    keep_shape(LocalFolder(tmp_path / "c"))
    keep_shape(LocalFolder(tmp_path / "c"))
    shape = tmp_path / "c" / "tickwheel.json"
    shape.write_text('{"format": 1, "partitions": 64}')
    with pytest.raises(WrongUsage, match=r"format 1, this one has 3\): go on with that version until all is delivered"):
        keep_shape(LocalFolder(tmp_path / "c"))
    shape.write_text('{"format": 9')
    with pytest.raises(WrongUsage, match="is damaged"):
        keep_shape(LocalFolder(tmp_path / "c"))
