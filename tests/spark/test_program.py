"""The program for clusters, on a standalone cluster: it ends at a signal, goes on, and tells metrics (S1, S4).

All is on loopback: a master, two workers of one core, drivers by `spark-submit`, and a deliverer.
"""

import json
import os
import re
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from .cluster import Cluster, Process, wait_for

pytestmark = pytest.mark.timeout(400)

ROOT = Path(__file__).parents[2]
TICKWHEEL = [sys.executable, "-m", "tickwheel.cli"]
MESSAGES = 500
FEW = ("--conf", "spark.sql.shuffle.partitions=2")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("cluster"), workers=2)
    try:
        made.start()
        yield made
    finally:
        made.stop()


@pytest.fixture
def deliverer(cluster: Cluster, tmp_path: Path) -> Iterator[str]:
    """The port of one that writes to `out`."""
    store, out = tmp_path / "s.db", tmp_path / "out"
    process = cluster.run(
        [*TICKWHEEL, "serve", "--store", str(store), "--to", f"file:{out}", "--listen", "127.0.0.1:0"],
        name=tmp_path.name,
    )
    yield process.found(r"http://(127\.0\.0\.1:\d+)")[1]
    process.kill()


def program(cluster: Cluster, name: str, *options: str) -> Process:
    settings = [part for it in cluster.settings.items() for part in ("--conf", "=".join(it))]
    command = [*TICKWHEEL, "spark-submit", "--master", cluster.url, *settings, *FEW, "--", *options]
    return cluster.run(command, name=name)


def given(folder: Path, first_ms: int) -> None:
    folder.mkdir()
    for file in range(2):
        rows = [{"id": f"m{n}", "key": f"k{n % 9}", "due": first_ms + n} for n in range(file, MESSAGES, 2)]
        (folder / f"{file}.ndjson").write_text("\n".join(map(json.dumps, rows)))


def delivered(folder: Path) -> list[str]:
    out = folder / "out"
    return [json.loads(line)["id"] for line in out.read_text().splitlines()] if out.exists() else []


# Ctrl-C reaches all processes of a terminal, also a `chmod` that Hadoop has just begun, or the process that is about to
# become it. Spark logs its end.
ENDED_COMMAND = re.compile(
    r"^(ExitCodeException exitCode=130:|(Caused by: )?java\..*Failed to exec spawn helper: pid: \d+, signal: 2) *\n"
    r"(\s+(at|\.\.\.) .*\n)+",
    re.MULTILINE,
)


def is_clean(log: str) -> bool:
    """Whether there is no stack trace in it, but that of a command of Hadoop's that Ctrl-C ended too."""
    return re.search(r"^\s+at [\w.$]+\(|Traceback", ENDED_COMMAND.sub("", log), re.MULTILINE) is None


def metrics(driver: Process) -> dict[str, float]:
    """The samples without labels, after the first micro-batch."""
    driver.found(r"\d held, ")
    port = driver.found(r"metrics are at port (\d+)")[1]
    text = urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30).read().decode()
    families = text_string_to_metric_families(text)
    return {sample.name: sample.value for family in families for sample in family.samples}


def test_it_ends_at_a_signal_and_the_next_run_delivers_what_was_held__S1_S4_D13_D15(
    cluster: Cluster, deliverer: str, tmp_path: Path
) -> None:
    given(tmp_path / "in", time.time_ns() // 1_000_000 + 3_600_000)
    (tmp_path / "in" / "_skipped.ndjson").touch()
    options = [str(tmp_path / "in"), "--deliverer", deliverer, "--checkpoint", (tmp_path / "checkpoint").as_uri()]
    first = program(cluster, "first", *options, "--lead", "3", "--metrics", "127.0.0.1:0")
    found = metrics(first)
    assert found["tickwheel_spark_held_messages"] == MESSAGES
    assert found["tickwheel_spark_deliverer_messages"] == MESSAGES
    assert found["tickwheel_spark_deliverer_up"] == 1
    assert found["tickwheel_spark_lead_seconds"] == 3
    assert found["tickwheel_spark_read_rows_total"] == 2, "files"
    assert found["tickwheel_spark_start_duration_seconds"] > 1
    assert found["tickwheel_spark_handed_off_messages_total"] == found["tickwheel_spark_failed_hand_offs_total"] == 0
    assert found["tickwheel_spark_next_due_timestamp_seconds"] > time.time()
    assert "a longer --lead" in first.output(), "a start takes longer than half of this lead"
    assert ended(first, signal.SIGTERM) == 0, first.output()
    assert "stopped by SIGTERM; run it again to go on" in first.output()
    assert is_clean(first.output()), first.output()
    assert not delivered(tmp_path)
    due = [{"id": f"m{n}", "key": f"k{n % 9}", "op": "reschedule", "due": 100_000_000_000} for n in range(MESSAGES)]
    with (tmp_path / "in" / "0.ndjson").open("a") as read:
        read.write('\n{"id": "added", "due": 100000000000}\n')
    (tmp_path / "in" / "due.ndjson").write_text("\n".join(map(json.dumps, due)))
    second = program(cluster, "second", *options, "--lead", "3", "--until-delivered")
    assert second.wait() == 0, second.output()
    assert "everything was delivered" in second.output()
    assert "as the name begins with . or _: _skipped.ndjson" in second.output()
    assert "have changed since they were read, and are not read again: 0.ndjson. " in second.output()
    assert re.search(r"^\d{4}-\S+ \S+ tickwheel INFO reading ", second.output(), re.MULTILINE)
    assert is_clean(second.output()), second.output()
    assert sorted(delivered(tmp_path)) == sorted(f"m{n}" for n in range(MESSAGES))


def ended(driver: Process, number: int) -> int:
    """Its exit code after a signal to the JVM, the process that `spark-submit` is."""
    assert driver.popen is not None
    os.kill(driver.popen.pid, number)
    return driver.wait()


def test_ctrl_c_ends_it_with_130_and_a_file_that_it_was_about_to_read_must_be_there_again__D13_S4(
    cluster: Cluster, deliverer: str, tmp_path: Path
) -> None:
    given(tmp_path / "in", time.time_ns() // 1_000_000 + 600_000)
    options = [str(tmp_path / "in"), "--deliverer", deliverer, "--checkpoint", str(tmp_path / "c")]

    def interrupted(name: str) -> None:
        driver = program(cluster, name, *options)
        driver.found(r"lead 90 s")
        driver.found(r"\d held, ")
        driver.signal(signal.SIGINT)
        assert driver.wait() == 130, driver.output()
        assert is_clean(driver.output()), driver.output()

    interrupted("interrupted")
    query = tmp_path / "c/query"
    for path in (*query.glob("commits/*"), *query.glob("offsets/*")):
        if path.parent.name == "commits" or path.name not in ("0", ".0.crc"):
            path.unlink()  # as after a crash in the first micro-batch
    file = (tmp_path / "in/1.ndjson").rename(tmp_path / "1.ndjson")
    refused = program(cluster, "refused", *options)
    assert refused.wait() == 2, refused.output()
    assert f"files are gone that were seen and not read: file://{tmp_path}/in/1.ndjson: put" in refused.output()
    file.rename(tmp_path / "in/1.ndjson")
    interrupted("again")


def test_what_can_not_run_is_one_line_of_usage__D2(cluster: Cluster, tmp_path: Path) -> None:
    driver = program(
        cluster, "wrong", str(tmp_path / "nothing"), "--deliverer", "127.0.0.1:1", "--checkpoint", str(tmp_path / "c")
    )
    assert driver.wait() == 2, driver.output()
    assert re.search(r"^Error: .*nothing", driver.output(), re.MULTILINE), driver.output()
    assert is_clean(driver.output()), driver.output()


@pytest.mark.parametrize("how", ["spark-submit", "python"])
def test_the_program_of_the_documentation_works_as_it_stands__S1(
    cluster: Cluster, deliverer: str, tmp_path: Path, how: str
) -> None:
    text = documented()[0].replace("127.0.0.1:7400", deliverer).replace("1 hour", "30 seconds")
    file = tmp_path / "program.py"
    file.write_text(text.replace('"checkpoint"', repr(str(tmp_path / "checkpoint"))))
    if how == "python":
        driver = cluster.run([sys.executable, str(file)], name=f"documented-{how}")
    else:
        driver = cluster.submit(*FEW, str(file), name=f"documented-{how}")
    wait_for(lambda: delivered(tmp_path), driver)
    driver.kill()


def documented() -> Sequence[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / "docs/spark.md").read_text(), re.DOTALL)


def test_a_session_for_a_laptop_is_refused_where_spark_submit_names_a_master__S1(
    cluster: Cluster, tmp_path: Path
) -> None:
    file = tmp_path / "program.py"
    file.write_text("from tickwheel.spark import laptop_session\nlaptop_session()\n")
    driver = cluster.submit(str(file), name="laptop")
    assert driver.wait() == 1, driver.output()
    assert f"the master that is set is {cluster.url}: call spark_session() instead" in driver.output()


def test_options_that_are_wrong_are_found_before_spark_starts__D2(tmp_path: Path, cluster: Cluster) -> None:
    found: dict[str, Any] = {
        "unknown": (["--", "in", "--deliverer", "a:1", "--checkpoint", "c", "--chekpoint", "d"], "No such option"),
        "divided": (["in", "--deliverer", "a:1"], "-- is missing: write tickwheel spark-submit"),
        "topic": (["--", "kafka://broker", "--deliverer", "a:1", "--checkpoint", "c"], "write kafka://BROKERS/TOPIC"),
    }
    for name, (arguments, error) in found.items():
        process = cluster.run([*TICKWHEEL, "spark-submit", *arguments], name=name)
        assert process.wait() == 2
        assert error in process.output()
        assert "WARN" not in process.output(), "no JVM was started"
