"""`tickwheel analyze LEDGER... --out DIR` (rule S6): whole runs, and errors before Spark starts."""

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from pyspark.errors import PySparkException

from analysis.stores import fill
from tickwheel.analysis.ledgers import look
from tickwheel.commands.analyze import analyze
from tickwheel.commands.spark_job import _interruptible
from tickwheel.delivery import DeliveryFailed
from tickwheel.spark.analytics.ledgers import read_ledgers
from tickwheel.spark.failing import reason

from ..interrupted import NoSpark, press_ctrl_c_at
from .conftest import fill_nothing

pytestmark = pytest.mark.timeout(240)

RUN = "from tickwheel.commands.analyze import analyze; analyze(prog_name='analyze')"


def invoke(*args: object) -> Result:
    return CliRunner().invoke(analyze, [*(str(arg) for arg in args), "--engine", "spark"], catch_exceptions=False)


def said(result: Result) -> str:
    return " ".join(result.stderr.split())


@pytest.fixture
def store(tmp_path: Path) -> Path:
    fill(tmp_path / "s.db", seed=1, messages=50)
    return tmp_path / "s.db"


def test_a_run_writes_the_figures_and_the_page_and_says_where__S6(store: Path, tmp_path: Path) -> None:
    fill_nothing(tmp_path / "empty.db")
    args = [sys.executable, "-c", RUN, "s.db", "empty.db", "--out", "out"]
    done = subprocess.run(args, cwd=tmp_path, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert done.stderr.endswith("Making index.html.\nDone: out/index.html\n")
    assert "Traceback" not in done.stderr
    assert pq.read_table(tmp_path / "out" / "ledgers.parquet")["path"].to_pylist() == ["s.db", "empty.db"]
    assert sum(pq.read_table(tmp_path / "out" / "outcomes.parquet")["messages"].to_pylist()) == 53


def test_ctrl_c_leaves_what_was_there__D13(store: Path, tmp_path: Path) -> None:
    args = [sys.executable, "-c", RUN, "s.db", "--out", "out", "--engine", "spark"]
    with subprocess.Popen(args, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line == "Making outcomes.parquet.\n":
                process.send_signal(signal.SIGINT)
                break
        output = process.stderr.read()
        assert process.wait(100) == 130, output
    assert output.endswith("Stopped by Ctrl-C: out has not changed. Run the same command again.\n")
    assert "Traceback" not in output
    assert {path.name for path in tmp_path.iterdir()} == {"s.db"}


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["none.db", "--out", "out"], "there is no store none.db"),
        (["page.txt", "--out", "out"], "page.txt is not a store of tickwheel"),
        (["s.db", "s.db", "--out", "out"], "the same store as s.db"),
        (["s.db", "--out", "."], "--out: . holds other things (page.txt)"),
        (["s.db", "--out", "page.txt"], "is not a folder"),
        (["s.db", "--out", "none/out"], "there is no folder none"),
        (["s.db"], "Missing option '--out'"),
        (["--out", "out"], "Missing argument 'LEDGER...'"),
    ],
)
def test_wrong_usage_is_told_before_spark_starts__D2(
    store: Path, monkeypatch: pytest.MonkeyPatch, args: list[str], message: str
) -> None:
    monkeypatch.chdir(store.parent)
    Path("page.txt").write_text("no database")
    result = invoke(*args)
    assert result.exit_code == 2
    assert message in said(result)
    assert "Starting Spark" not in result.stderr
    assert {path.name for path in Path().iterdir()} == {"page.txt", "s.db"}


@pytest.mark.parametrize("library", ["pyspark", "matplotlib", "jinja2"])
def test_a_missing_library_is_wrong_usage__D2(store: Path, library: str) -> None:
    # The command's own package imports pyspark.
    missing = "pyspark.errors" if library == "pyspark" else library
    script = f"import sys, tickwheel.spark; sys.modules[{missing!r}] = None; {RUN}"
    done = subprocess.run(
        [sys.executable, "-c", script, store, "--out", store.parent / "out", "--engine", "spark"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2, done.stderr
    assert "pip install 'tickwheel[" in " ".join(done.stderr.split())
    assert library in done.stderr
    assert library == "pyspark" or f"tickwheel analyze: {library} is not installed" in " ".join(done.stderr.split())
    assert not (store.parent / "out").exists()


def test_without_java_it_says_so__D2(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    result = invoke(store, "--out", tmp_path / "out")
    assert result.exit_code == 2
    assert "Java 17 is needed for Spark" in said(result)
    assert not (tmp_path / "out").exists()


def test_what_a_task_says_is_told_in_its_own_words__D2(session: Any, store: Path) -> None:
    ledgers = look([store])
    store.unlink()
    with pytest.raises(PySparkException) as caught:
        read_ledgers(session, ledgers).collect()
    assert reason(caught.value) == f"there is no store {store}: name the file that was given to --store"
    assert reason(PySparkException("some\n words")) == "Spark failed: some words"


def test_ctrl_c_ends_the_work_also_at_the_moment_in_which_it_begins__D13(monkeypatch: pytest.MonkeyPatch) -> None:
    """The work has begun, and the main thread does not wait for it yet, as on a busy machine."""
    has_begun, session, steps = threading.Event(), NoSpark(), 0

    def work(_module: object, _session: object, say: Callable[[str], None]) -> str:
        nonlocal steps
        has_begun.set()
        for _ in range(200):
            say("a step")
            steps += 1
            time.sleep(0.01)
        return "it was done"

    press_ctrl_c_at(has_begun, session, monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        _interruptible("test", sys, work, lambda _line: None)  # type: ignore[arg-type]
    assert session.is_stopped.is_set()
    assert steps < 200


def test_ctrl_c_after_the_last_step_does_not_say_that_nothing_has_changed__D13(monkeypatch: pytest.MonkeyPatch) -> None:
    is_made = threading.Event()

    class Gone(NoSpark):
        def stop(self) -> None:
            is_made.set()
            self.wait_for_ctrl_c()
            raise ConnectionError("the JVM has gone")  # it may have got the signal too

    session = Gone()
    press_ctrl_c_at(is_made, session, monkeypatch)
    assert _interruptible("test", sys, lambda *_: "it was done", lambda _line: None) == "it was done"
    assert session.ctrl_c.is_set()


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (OSError("no space"), OSError),
        (DeliveryFailed("no space"), DeliveryFailed),
        (PySparkException("a job was cancelled"), KeyboardInterrupt),
    ],
)
def test_after_ctrl_c_an_error_of_the_work_itself_is_told__D13(
    error: Exception, raised: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have changed something by then."""
    is_made, session = threading.Event(), NoSpark()

    def work(*_: object) -> str:
        is_made.set()
        session.wait_for_ctrl_c()
        raise error

    press_ctrl_c_at(is_made, session, monkeypatch)
    with pytest.raises(raised):
        _interruptible("test", sys, work, lambda _line: None)
    assert session.ctrl_c.is_set()
