"""`submit_arrow` reads and submits a batch part by part, so that many equal values do not fill the memory (rule D8)."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tickwheel._native import Records, read_records
from tickwheel.delivery import Answer, BadRecord
from tickwheel.delivery.engine.running import Running
from tickwheel.delivery.model.entries import Look
from tickwheel.delivery.model.settings import Settings
from tickwheel.delivery.sinks import sink_of_function

pytest.importorskip("pyarrow")
pytestmark = pytest.mark.timeout(120)


def test_each_part_is_submitted_before_the_next_is_read__D8(tmp_path: Path) -> None:
    running = Running(tmp_path / "store.db", sink_of_function(lambda _: None), Settings(), lambda letters: None)
    states: list[Answer] = []

    def parts() -> Iterator[Records]:
        for id_ in ("a", "b"):
            lines = f'{{"id": "{id_}", "due": 4000000000000}}\n{{"id": "bad"}}\n'.encode()
            yield from read_records(lines, format="lines")
            states.extend(running.submit([Look(id_, None)]).result(20))

    first, fault, second, _ = running.submit_parts(parts()).result(20)
    assert states == [Answer.WAITING] * 2
    assert (first, second) == (Answer.ACCEPTED, Answer.ACCEPTED)
    assert isinstance(fault, BadRecord)
    assert running.submit_parts(iter(())).result(20) == []
    running.close()


SCRIPT = """
import resource, sys
import pyarrow as pa
from tickwheel.delivery import DeliveryQueue
values = pa.DictionaryArray.from_arrays(pa.array([0] * 300, pa.int32()), pa.array(["x" * 1_000_000]))
ids = pa.array([str(number) for number in range(300)])
batch = pa.record_batch({"id": ids, "due": pa.array([4_000_000_000_000] * 300), "payload": values})
with DeliveryQueue(sys.argv[1], to=lambda _: None) as queue:
    queue.put("first", due=4_000_000_000_000)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    answers = queue.submit_arrow(batch).result()
    grown_mib = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    print(len(answers), {str(answer) for answer in answers}, grown_mib < 150, grown_mib)
"""


def test_one_large_value_in_each_row_does_not_fill_the_memory__D8(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, tmp_path / "store.db"], capture_output=True, text=True, timeout=100
    )
    assert done.stderr == ""
    assert done.stdout.startswith("300 {'accepted'} True"), done.stdout
