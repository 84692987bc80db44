"""`tickwheel deliver --report PAGE`: checked before anything is read, written at the end of every run (D11, D13)."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tickwheel.commands import tickwheel as command

pytestmark = [pytest.mark.usefixtures("switch_interval"), pytest.mark.timeout(60)]

Deliver = Callable[..., Result]


@pytest.fixture
def deliver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Deliver:
    monkeypatch.chdir(tmp_path)
    Path("in.ndjson").write_text(
        '{"id": "<a>", "key": "k", "due": 100000000005}\n{"id": "<a>", "key": "k", "due": 100000000005}\nnope\n'
    )

    def run(*args: str) -> Result:
        return CliRunner().invoke(command, ["deliver", *args, "--to", "file:out.ndjson"], catch_exceptions=False)

    return run


def test_a_run_ends_with_its_page_also_without_a_store_of_its_own__D11(deliver: Deliver) -> None:
    result = deliver("in.ndjson", "--report", "page.html")
    assert result.exit_code == 1
    page = Path("page.html").read_text(encoding="utf-8")
    assert "Delivery of in.ndjson" in page
    rows = [row.split("</tr>")[0] for row in page.split("<tr>")]
    [duplicates] = [row for row in rows if ">duplicates<" in row]
    assert ">1<" in duplicates
    assert "<bdi>nope</bdi>" in page
    assert "Making the report page.html." in result.stderr
    assert list(Path().glob("*.db*")) == []


def test_the_page_tells_of_the_run_and_of_all_runs_on_the_store__D11(deliver: Deliver) -> None:
    deliver("in.ndjson", "--store", "s.db")
    Path("more.ndjson").write_text('{"id": "b", "due": 100000000005}\n')
    assert deliver("more.ndjson", "--store", "s.db", "--report", "page.html").exit_code == 0
    rows = Path("page.html").read_text(encoding="utf-8").split("<tr>")
    [accepted] = [row for row in rows if ">accepted<" in row]
    assert accepted.index(">2<") < accepted.index(">1<")


@pytest.mark.parametrize(
    ("page", "message"),
    [
        ("nowhere/page.html", "there is no folder nowhere"),
        ("in.ndjson", "an input"),
        ("out.ndjson", "the file of --to"),
    ],
)
def test_a_page_that_cant_be_is_wrong_usage_before_anything_is_read__D2(
    deliver: Deliver, page: str, message: str
) -> None:
    before = Path("in.ndjson").read_bytes()
    result = deliver("in.ndjson", "--store", "s.db", "--report", page)
    assert result.exit_code == 2
    assert "--report" in result.stderr
    assert message in " ".join(result.stderr.split())
    assert not Path("out.ndjson").exists()
    assert not Path("s.db").exists()
    assert Path("in.ndjson").read_bytes() == before


@pytest.mark.parametrize("library", ["jinja2", "matplotlib"])
def test_a_missing_library_is_wrong_usage_before_anything_is_read__D2(
    deliver: Deliver, monkeypatch: pytest.MonkeyPatch, library: str
) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == library]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, library, None)
    result = deliver("in.ndjson", "--report", "page.html")
    assert result.exit_code == 2
    said = " ".join(result.stderr.split())
    assert f"--report: {library} is not installed: run pip install 'tickwheel[report]'" in said
    assert not Path("out.ndjson").exists()


def test_without_the_option_no_library_is_loaded__D11(tmp_path: Path) -> None:
    (tmp_path / "in.ndjson").write_text('{"id": "a", "due": 100000000005}\n')
    script = (
        "import sys; from tickwheel.commands import tickwheel\n"
        "try: tickwheel(['deliver', 'in.ndjson', '--to', 'file:out.ndjson'])\n"
        "finally: print(sorted({'matplotlib', 'jinja2', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=50)
    assert done.stdout == "[]\n", done.stderr


def test_a_page_that_cant_be_written_ends_the_run_with_3__D2(deliver: Deliver) -> None:
    result = deliver("in.ndjson", "--report", "/dev/full", "--summary", "s.json")
    assert result.exit_code == 3
    assert "Failed: the report can't be written to /dev/full: No space left on device." in result.stderr
    assert json.loads(Path("s.json").read_text())["delivered"] == 1


def test_the_page_is_written_after_ctrl_c_too__D13(tmp_path: Path) -> None:
    args = [sys.executable, "-m", "tickwheel.cli", "deliver", "-", "--report", "page.html"]
    with subprocess.Popen(
        args, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b'{"id": "waits", "delay_ms": 86400000}\n{"id": "now", "due": 100000000005}\n')
        process.stdin.flush()
        assert b'"now"' in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=50)
    assert process.returncode == 130, err
    assert b"Traceback" not in err
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "1 message waiting" in page
    assert "<bdi>waits</bdi>" in page


def test_the_report_of_a_store_needs_no_run__D14(deliver: Deliver) -> None:
    deliver("in.ndjson", "--store", "s.db")
    before = Path("s.db").read_bytes()
    result = CliRunner().invoke(command, ["report", "s.db"])
    assert (result.exit_code, result.stderr) == (0, "Done: s.db.html\n")
    assert "The store s.db" in Path("s.db.html").read_text(encoding="utf-8")
    assert CliRunner().invoke(command, ["report", "s.db", "--out", "page.html"]).exit_code == 0
    assert Path("page.html").exists()
    assert Path("s.db").read_bytes() == before
    for args, text in ((["none.db"], "there is no store none.db"), (["s.db", "--out", "s.db-wal"], "file of --store")):
        result = CliRunner().invoke(command, ["report", *args])
        assert (result.exit_code, text in result.stderr) == (2, True), result.stderr
    assert not Path("none.db.html").exists()


@pytest.mark.parametrize("most", [4, 7])
@pytest.mark.parametrize("span_ms", [610, 4_000, 61_000, 3_600_000, 86_400_000, 40 * 86_400_000])
def test_the_ticks_of_time_are_few_and_say_their_unit__D11(span_ms: int, most: int) -> None:
    pytest.importorskip("matplotlib")
    from tickwheel.pages.plots import time_ticks

    start_ms = 1_700_000_123_456
    ticks, labels = time_ticks(start_ms, start_ms + span_ms, most)
    assert 1 <= len(ticks) == len(set(labels)) <= most
    assert all(start_ms <= tick <= start_ms + span_ms for tick in ticks)
    assert all(re.fullmatch(r"\d\d:\d\d(:\d\d(\.\d)?)?|\d\d-\d\d", label) for label in labels)
