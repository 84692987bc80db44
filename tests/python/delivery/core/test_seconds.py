"""A due time in seconds is refused wherever it comes in, and says what it is in milliseconds (rule D1)."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tickwheel.delivery import Answer, BadRecord, DeliveryQueue

pytestmark = pytest.mark.timeout(30)

SECONDS = 1_769_846_400
REASON = f"due is {SECONDS}, which looks like seconds; in milliseconds it is {SECONDS * 1000}"


def parquet(path: Path) -> None:
    pq.write_table(pa.table({"id": ["a"], "due": [SECONDS]}), path)


FILES: dict[str, Callable[[Path], object]] = {
    "in.ndjson": lambda path: path.write_text(json.dumps({"id": "a", "due": SECONDS}) + "\n"),
    "in.csv": lambda path: path.write_text(f"id,due\na,{SECONDS}\n"),
    "in.parquet": parquet,
}


@pytest.mark.parametrize("name", FILES)
def test_in_a_file_it_is_a_dead_letter__D1_D2(tmp_path: Path, name: str) -> None:
    FILES[name](tmp_path / name)
    letters = tmp_path / "letters"
    options = ["--to", f"file:{tmp_path}/out", "--dead-letters", str(letters), "--store", f"{tmp_path}/store.db"]
    command = [sys.executable, "-m", "tickwheel.cli", "deliver", str(tmp_path / name), *options]
    assert subprocess.run(command, capture_output=True, timeout=25).returncode == 1
    assert json.loads(letters.read_text())["reason"] == REASON


def test_a_program_is_told__D1(tmp_path: Path) -> None:
    with DeliveryQueue(tmp_path / "store.db", to=lambda delivery: None) as queue:
        ways: list[Callable[[], object]] = [
            lambda: queue.put("a", due=SECONDS),
            lambda: queue.put_many([{"id": "a", "due": SECONDS}]),
            lambda: queue.put_many([("a", SECONDS, b"")]),
        ]
        for put in ways:
            with pytest.raises(BadRecord) as refused:
                put()
            assert refused.value.reason == REASON
        assert queue.put("a", due="1973-01-01T00:00:00Z") is Answer.ACCEPTED, "text may name any time"
