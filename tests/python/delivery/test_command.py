"""`tickwheel deliver` in this process: its input, output, messages and exit codes."""

import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from click.testing import CliRunner, Result

import tickwheel
from tickwheel import recording
from tickwheel.commands import tickwheel as command

pytestmark = pytest.mark.usefixtures("switch_interval")

Deliver = Callable[..., Result]


@pytest.fixture
def deliver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Deliver:
    """Runs `tickwheel deliver ARGS --to file:out.ndjson` in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def run(*args: str, to: str = "file:out.ndjson") -> Result:
        return CliRunner().invoke(command, ["deliver", *args, "--to", to], catch_exceptions=False)

    return run


def one_line(result: Result) -> str:
    return " ".join(result.stderr.split())


def out(name: str = "out.ndjson") -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(name).read_bytes().splitlines()]


def test_ndjson_is_delivered__D11(deliver: Deliver) -> None:
    Path("in.ndjson").write_text(
        '{"id": "b", "key": "k", "delay_ms": 40}\n{"id": "a", "due": 100000000005, "payload": 1.50}\n'
    )
    result = deliver("in.ndjson", "--summary", "s.json")
    assert result.exit_code == 0
    assert sorted(line["id"] for line in out()) == ["a", "b"]
    assert all(line["lateness_ms"] >= 0 for line in out())
    assert all(line["delivered_at"] >= line["due"] for line in out())
    assert b'"payload":1.50,' in Path("out.ndjson").read_bytes()
    assert result.stdout == "", "standard output is for deliveries"
    summary = json.loads(Path("s.json").read_text())
    assert (summary["accepted"], summary["delivered"], summary["not_delivered"]) == (2, 2, 0)
    assert summary["lateness_ms"]["max"] == max(line["lateness_ms"] for line in out())


def test_csv_is_delivered_by_the_columns_that_are_named__D11(deliver: Deliver) -> None:
    Path("in.csv").write_text("flight,tail,at,body\nUA1,N1,1700000000005,x\n")
    result = deliver("in.csv", "--id", "flight", "--key", "tail", "--due", "at", "--payload", "body")
    assert result.exit_code == 0
    assert [(line["id"], line["key"], line["payload"]) for line in out()] == [("UA1", "N1", "x")]


def test_a_folder_stands_for_its_files__D11(deliver: Deliver) -> None:
    Path("in/deep").mkdir(parents=True)
    Path("in/b.csv").write_text("id,due\nb,100000000005\n")
    Path("in/a.jsonl").write_text('{"id": "a", "due": 100000000005}\n')
    Path("in/deep/c.NDJSON").write_text('{"id": "c", "due": 100000000005}\n')
    Path("in/_SUCCESS").write_text("")
    Path("in/.hidden").write_text("")
    assert deliver("in").exit_code == 0
    assert [line["id"] for line in out()] == ["a", "b", "c"]


def test_bad_records_are_dead_letters_and_the_rest_goes_on__D2(deliver: Deliver) -> None:
    lines = [
        b'{"id": "a", "due": 100000000005}',
        b"nope",
        b'{"id": "\xff"}',
        b'{"id": "a", "due": 100000000006}',
        b'{"id": "b", "due": 100000000005}',
    ]
    Path("in.ndjson").write_bytes(b"\n".join(lines))
    Path("dead.ndjson").write_text('{"line": "of an earlier run"}\n')
    result = deliver("in.ndjson", "--dead-letters", "dead.ndjson")
    assert result.exit_code == 1
    assert [line["id"] for line in out()] == ["a", "b"]
    earlier, *letters = out("dead.ndjson")
    assert earlier == {"line": "of an earlier run"}
    assert [list(letter) for letter in letters] == [["source", "line", "reason", "allowed", "record"]] * 3
    assert [(letter["source"], letter["line"], letter["record"]) for letter in letters] == [
        ("in.ndjson", 2, "nope"),
        ("in.ndjson", 3, {"base64": "eyJpZCI6ICL/In0="}),
        ("in.ndjson", 4, '{"id": "a", "due": 100000000006}'),
    ]
    assert "dead letters 3" in " ".join(result.stderr.split())


def test_without_a_file_dead_letters_go_to_standard_error_whole__D2(deliver: Deliver) -> None:
    record = '{"id": "a", "x": "' + "long " * 200 + '[red]"}'
    Path("in.ndjson").write_text(record)
    result = deliver("in.ndjson")
    assert result.exit_code == 1
    [letter] = [json.loads(line) for line in result.stderr.splitlines() if line.startswith("{")]
    assert (letter["reason"], letter["record"]) == ("due is missing", record)


def test_duplicates_and_cancels_are_counted__D7(deliver: Deliver) -> None:
    Path("in.csv").write_text(
        "id,due,delay_ms,op\na,1700000000005,,\na,1700000000005,,\nb,,86400000,\nb,,,cancel\nc,,,cancel\n"
        "c,1700000000005,,\nd,,,cancel\n"
    )
    assert deliver("in.csv", "--summary", "s.json").exit_code == 0
    assert [line["id"] for line in out()] == ["a"]
    summary = json.loads(Path("s.json").read_text())
    assert (summary["accepted"], summary["duplicates"], summary["cancelled"], summary["cancels_unknown"]) == (
        3,
        1,
        2,
        1,
    )


def test_a_replay_starts_at_the_first_due_time_and_keeps_the_gaps__D11(deliver: Deliver) -> None:
    Path("in.ndjson").write_text(
        '{"id": "b", "due": "2013-11-27T09:00:00Z"}\n{"id": "a", "due": "2013-11-27T08:00:00Z"}\n'
        '{"id": "c", "delay_ms": 5}\n'
    )
    result = deliver("in.ndjson", "--speed", "36000")
    a, b = out()
    assert (a["id"], b["id"], a["due"]) == ("a", "b", "2013-11-27T08:00:00.000Z")
    sent = [float(line["delivered_at"][-7:-1]) - line["lateness_ms"] / 1000 for line in (a, b)]
    assert (sent[1] - sent[0]) % 60 == pytest.approx(0.1, abs=0.01)
    assert result.exit_code == 1, "a delay can't be replayed"


def test_a_replay_from_a_time_begins_there__D11(deliver: Deliver) -> None:
    Path("in.ndjson").write_text('{"id": "a", "due": 100000001000}\n{"id": "b", "due": 100000061000}\n')
    assert deliver("in.ndjson", "--speed", "1000", "--from", "1973-03-03T09:47:40Z").exit_code == 0
    assert [line["id"] for line in out()] == ["a", "b"]
    assert out()[0]["lateness_ms"] >= 30, "59, less the head start"


def test_what_the_timer_did_is_recorded__S6(deliver: Deliver) -> None:
    Path("in.ndjson").write_text("".join(f'{{"id": "{n}", "delay_ms": {n % 50}}}\n' for n in range(200)))
    assert deliver("in.ndjson", "--record", "events.parquet").exit_code == 0
    about = recording.about("events.parquet")
    assert (about.timer, about.lost) == ("deliver", 0)
    counts = recording.replay("events.parquet")
    assert counts["expired"] > 10, "one task for each millisecond in which anything is due, and more"


def test_what_the_timer_did_that_cant_be_written_at_the_end_ends_with_3__S6(
    deliver: Deliver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pyarrow.parquet.ParquetWriter, "write_table", full)
    Path("in.ndjson").write_text('{"id": "a", "due": 100000000005}\n')
    result = deliver("in.ndjson", "--record", "events.parquet")
    assert result.exit_code == 3
    assert "can't be written to events.parquet: No space left on device" in one_line(result)
    assert [line["id"] for line in out()] == ["a"]


def test_other_files_of_a_folder_are_left_out_and_told__D11(deliver: Deliver) -> None:
    Path("in").mkdir()
    Path("in/a.ndjson").write_text('{"id": "a", "delay_ms": 0}\n')
    for name in ("README.md", "b.json", "notes.txt", ".hidden", "_SUCCESS"):
        Path("in", name).write_text("no messages")
    result = deliver("in")
    assert (result.exit_code, [line["id"] for line in out()]) == (0, ["a"])
    assert (
        "Not read in in, as the suffix is none of .ndjson, .jsonl, .csv, .parquet: README.md, b.json, notes.txt\n"
        in (result.stderr)
    )


def test_what_is_no_file_of_a_folder_is_told__D11(deliver: Deliver) -> None:
    Path("in").mkdir()
    Path("other").mkdir()
    for file in ("in/a.ndjson", "other/b.ndjson"):
        Path(file).write_text(json.dumps({"id": Path(file).stem, "delay_ms": 0}))
    Path("in/linked.ndjson").symlink_to(Path("in/a.ndjson").resolve())
    Path("in/nothing.ndjson").symlink_to("gone")
    Path("in/day=2").symlink_to(Path("other").resolve())
    Path("in/round").symlink_to(Path("in").resolve())
    os.mkfifo("in/pipe.csv")
    result = deliver("in")
    assert (result.exit_code, [line["id"] for line in out()]) == (0, ["a"])
    why = "Not read in in, as they are links to folders, links to nothing, or no files"
    assert f"{why}: day=2, nothing.ndjson, pipe.csv, round" in one_line(result)


@pytest.mark.parametrize("name", ["private", "lost+found", ".Trash-0", "_tmp"])
def test_a_folder_that_can_not_be_read_is_refused_unless_it_is_left_out__D11(
    deliver: Deliver, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    Path("in", name).mkdir(parents=True)
    Path("in/a.ndjson").write_text('{"id": "a", "delay_ms": 0}\n')
    scandir = os.scandir

    def refuse(path: str | int) -> object:  # for root every folder can be read
        if isinstance(path, str) and Path(path).name == name:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    result = deliver("in")
    if name != "private":
        assert (result.exit_code, [line["id"] for line in out()]) == (0, ["a"])
        return
    assert (result.exit_code, Path("out.ndjson").exists()) == (2, False)
    assert "the folder in/private can't be read: Permission denied: permit it, or move it away" in one_line(result)


@pytest.mark.parametrize("number", [errno.EACCES, errno.ENOTCONN, errno.ESTALE, errno.EIO])
def test_a_file_that_can_not_be_looked_at_is_refused_unless_it_is_left_out__D11(
    deliver: Deliver, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """As in a folder that may be listed, but not entered, or on a mount that is gone."""
    for name in ("in/a.ndjson", "in/.hidden/b.ndjson", "in/closed/c.ndjson"):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text('{"id": "a", "delay_ms": 0}\n')
    real = Path.stat

    def look(path: Path, *, follow_symlinks: bool = True) -> os.stat_result:
        if path.parent.name in {"closed", ".hidden"}:
            raise OSError(number, os.strerror(number), str(path))
        return real(path, follow_symlinks=follow_symlinks)

    monkeypatch.setattr(Path, "stat", look)
    result = deliver("in")
    assert (result.exit_code, Path("out.ndjson").exists()) == (2, False)
    assert f"in/closed/c.ndjson can't be read: {os.strerror(number)}: mend that, or move it away" in one_line(result)
    shutil.rmtree("in/closed")
    assert deliver("in").exit_code == 0


def test_files_that_have_nothing_new_are_named__D11(deliver: Deliver) -> None:
    """As in a run with the option that an error of the run before has asked for."""
    Path("in").mkdir()
    Path("in/a.csv").write_text("id,due\na,2020-01-01T10:00:00\n")
    Path("in/b.ndjson").write_text('{"id": "b", "due": 100000000005}\n')
    first = deliver("in", "--store", "s.db")
    assert first.exit_code == 1
    assert "Nothing new" not in one_line(first)
    again = deliver("in", "--store", "s.db", "--zone", "Europe/Berlin")
    assert "Nothing new in files that earlier runs have read to the end: in/a.csv, in/b.ndjson" in one_line(again)
    assert "copy it to another name" in one_line(again)
    assert again.exit_code == 0, "the dead letter is one of the first run"
    with Path("in/b.ndjson").open("a") as file:
        file.write('{"id": "c", "due": 100000000005}\n')
    more = deliver("in", "--store", "s.db")
    assert "Nothing new in files that earlier runs have read to the end: in/a.csv" in one_line(more)
    assert more.exit_code == 0
    assert [line["id"] for line in out()] == ["b", "c"]
    shutil.copy("in/a.csv", "again.csv")
    assert deliver("again.csv", "--store", "s.db", "--zone", "Europe/Berlin").exit_code == 0
    assert [line["id"] for line in out()] == ["b", "c", "a"]


def test_nothing_to_deliver_is_fine__D11(deliver: Deliver) -> None:
    Path("in.ndjson").write_text("\n\n")
    assert deliver("in.ndjson").exit_code == 0
    assert deliver("in.ndjson", "--speed", "5").exit_code == 0
    assert out() == []


@pytest.mark.parametrize(
    ("args", "to", "message"),
    [
        ([], "-", "Missing argument 'INPUT...'"),
        (["none.ndjson"], "-", "none.ndjson does not exist"),
        (["in.txt"], "-", "the suffix says the format, and may be .ndjson, .jsonl, .csv"),
        (["in.parquet"], "-", "in.parquet does not exist"),
        (["empty"], "-", "empty holds no files"),
        (["-", "-"], "-", "standard input (-) is given twice"),
        (["in.ndjson"], "out.ndjson", "write file:out.ndjson"),
        (["in.ndjson"], "file:in.ndjson", "--to: in.ndjson is already an input"),
        (["in.ndjson"], "file:empty", "--to: empty is a folder"),
        (["in.ndjson"], "file:none/out", "--to: there is no folder none"),
        (["in.ndjson", "--summary", "none/s.json"], "-", "--summary: there is no folder none"),
        (["in.ndjson", "--dead-letters", "x"], "file:./x", "--dead-letters: x is already the file of --to"),
        (["in.ndjson", "--store", "x"], "sqlite:./x?table=t", "--store: x is already the file of --to"),
        (["in.ndjson", "--from", "1700000000005"], "-", "--from TIME needs --speed N"),
        (["in.ndjson", "--speed", "5", "--from", "5"], "-", "--from is 5, which looks like seconds"),
        (["in.ndjson", "--speed", "5", "--from", "2020-01-01T00:00:00"], "-", "--from has no zone"),
        (["in.ndjson", "--speed", "nan"], "-", "'nan' is not a speed"),
        (["in.ndjson", "--speed", "0"], "-", "'0' is not a speed"),
        (["in.ndjson", "--speed", "fast"], "-", "'fast' is not a speed"),
        (["in.ndjson", "--backoff", "5"], "-", "'5' is not two durations: write FIRST,LONGEST, as 1s,5m"),
        (["in.ndjson", "--backoff", "5,1"], "-", "backoff's longest wait is 1: it may be 5 to 86,400"),
        (["in.ndjson", "--unanswered-for", "0"], "-", "unanswered-for is 0: it may be 0.001 to 31,536,000"),
        (
            ["in.ndjson", "--waits", "5s,soon"],
            "-",
            "a number with ms, s, m, h or d, as 30s; a number alone is seconds. It stands in '5s,soon'",
        ),
        (["in.ndjson", "--waits", "5s,"], "-", "'' is no duration"),
        (["in.ndjson", "--waits", ""], "-", "'' is no duration"),
        (["in.ndjson", "--waits", "-5"], "-", "a wait is -5: it may be 0.001 to 86,400"),
        (["in.ndjson", "--waits", "5 min"], "-", "'5 min' is no duration"),
        (["in.ndjson", "--waits", "5s,0"], "-", "a wait is 0: it may be 0.001 to 86,400"),
        (["in.ndjson", "--waits", "2d"], "-", "a wait is 172800: it may be 0.001 to 86,400"),
        (["in.ndjson", "--waits", "5s", "--backoff", "2,9"], "-", "backoff and waits were both given"),
        (["in.ndjson", "--spare", "-1"], "-", "spare is -1: it may be 0 to 1,000,000"),
        (["in.ndjson", "--dead-letters", "/dev/null"], "-", "/dev/null keeps no dead letters: name a file"),
        (["in.ndjson", "--store", "pipe"], "-", "pipe is a pipe or a device, which can't be a store: name a file"),
        (["in.ndjson", "--store", "/dev/null"], "-", "/dev/null is a pipe or a device"),
        (["in.ndjson"], "file:a\0b", r"--to: 'a\x00b' has a NUL byte"),
        (["in.ndjson", "--record", "none/e"], "-", "--record: there is no folder none"),
        (["in.ndjson", "--dead-letters", "d" * 300], "-", "can't be used: File name too long: name another file"),
        (["in.ndjson", "--store", "s" * 300], "-", "can't be used: File name too long: name another file"),
        (["in.ndjson", "--lead", "5"], "-", "--lead: only with --engine spark"),
        (["in.ndjson", "--checkpoint", "c", "--token-file", "t"], "-", "--checkpoint, --token-file: only with"),
        (["in.ndjson", "--engine", "spark", "--token-file", "t"], "-", "--token-file: only with --deliverer"),
        (["in.ndjson", "--engine", "spark", "--speed", "5"], "-", "--speed is not for --engine spark"),
        (["in.ndjson", "--engine", "spark", "--deliverer", "a:1", "--order", "key"], "-", "--to, --order: not with"),
    ],
)
def test_wrong_usage_says_what_to_do_and_ends_with_2__D2(
    deliver: Deliver, args: list[str], to: str, message: str
) -> None:
    Path("in.ndjson").write_text('{"id": "a", "due": 100000000005}\n')
    Path("empty").mkdir()
    os.mkfifo("pipe")
    result = deliver(*args, to=to)
    assert result.exit_code == 2
    assert message in one_line(result)
    assert not Path("out.ndjson").exists()


def test_a_full_disk_ends_the_run_with_3_and_says_what_is_missing__D2(deliver: Deliver) -> None:
    Path("in.ndjson").write_text('{"id": "a", "due": 100000000005}\n{"id": "b", "delay_ms": 86400000}\n')
    result = deliver("in.ndjson", "--summary", "s.json", to="file:/dev/full")
    assert result.exit_code == 3
    assert "Failed: the destination can't be written: No space left on device" in result.stderr
    assert "Not delivered: 2, not kept, because no --store was given." in result.stderr
    assert json.loads(Path("s.json").read_text())["not_delivered"] == 2


def test_dead_letters_that_can_not_be_written_end_the_run_with_3__D2(deliver: Deliver) -> None:
    Path("in.ndjson").write_text('nope\n{"id": "b", "delay_ms": 86400000}\n')
    result = deliver("in.ndjson", "--dead-letters", "/dev/full")
    assert result.exit_code == 3
    assert "the dead letters can't be written: No space left on device" in result.stderr
    assert "Not delivered: 1, not kept" in result.stderr
    assert "Not all dead letters are written: no --store was given." in result.stderr


def test_the_next_run_writes_them_and_says_so_and_ends_with_1__D2(deliver: Deliver) -> None:
    Path("in.ndjson").write_text("nope\nnor this\n")
    failed = deliver("in.ndjson", "--store", "s.db", "--dead-letters", "/dev/full")
    assert failed.exit_code == 3
    assert "make room for /dev/full, or name another file" in one_line(failed)
    assert "same command" not in one_line(failed)
    assert "Not all dead letters are written: the next run with the store s.db writes them." in one_line(failed)
    Path("dead.ndjson").write_text('{"source": "torn')
    Path("in.ndjson").write_text("")
    again = deliver("in.ndjson", "--store", "s.db", "--dead-letters", "dead.ndjson")
    assert again.exit_code == 1, again.stderr
    assert "Dead letters of earlier runs, written now: 2." in again.stderr
    torn, *letters = Path("dead.ndjson").read_text().splitlines()
    assert torn == '{"source": "torn'
    assert [json.loads(letter)["line"] for letter in letters] == [1, 2]
    assert deliver("in.ndjson", "--store", "s.db", "--dead-letters", "dead.ndjson").exit_code == 0


def test_a_file_of_dead_letters_that_filled_up_goes_on_with_a_fresh_line__D2(
    deliver: Deliver, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("in.ndjson").write_text("nope\nnor this\n")
    write, left = os.write, 100

    def fills_up(fd: int, data: bytes) -> int:
        nonlocal left
        if not left:
            raise OSError(28, "No space left on device")
        written = write(fd, bytes(data)[:left])
        left -= written
        return written

    with monkeypatch.context() as patched:
        patched.setattr("tickwheel.delivery.base.appending.os.write", fills_up)
        assert deliver("in.ndjson", "--store", "s.db", "--dead-letters", "dead.ndjson").exit_code == 3
    again = deliver("in.ndjson", "--store", "s.db", "--dead-letters", "dead.ndjson")
    assert again.exit_code == 1, again.stderr
    torn, *letters = Path("dead.ndjson").read_text().splitlines()
    assert len(torn) == 100
    assert [json.loads(letter)["line"] for letter in letters] == [1, 2]


def test_a_summary_that_can_not_be_written_ends_with_3__D2(deliver: Deliver) -> None:
    Path("in.ndjson").write_text('{"id": "a", "due": 100000000005}\n')
    result = deliver("in.ndjson", "--summary", "/dev/full")
    assert result.exit_code == 3
    assert "the summary can't be written to /dev/full: No space left on device" in result.stderr


def test_the_version_is_told() -> None:
    assert CliRunner().invoke(command, ["--version"]).stdout == f"tickwheel, version {tickwheel.__version__}\n"


@pytest.mark.parametrize("library", ["click", "rich", "msgspec"])
def test_a_missing_library_says_what_to_install(library: str) -> None:
    # In a process of its own: modules that are imported twice here would leave their packages with the second ones.
    program = f"""if True:
        import importlib.abc, sys
        class Missing(importlib.abc.MetaPathFinder):
            def find_spec(self, name, *_):
                if name == {library!r}:
                    raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
        sys.meta_path.insert(0, Missing())
        sys.argv = ["tickwheel", "deliver", "-"]
        from tickwheel import cli
        cli.main()
    """
    seen = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert seen.stderr == f"tickwheel: {library} is not installed: run pip install 'tickwheel[delivery]'\n"
    assert seen.returncode == 1
