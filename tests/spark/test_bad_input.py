"""Bad input to whole queries: each is reported with its reason and what to do, and the rest goes on (D2, S1).

The command runs in this process on the session of all tests, except one run as its own process, as for a user.
"""

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from tickwheel.commands import tickwheel as command
from tickwheel.delivery import DeliveryQueue, Letter, WrongUsage
from tickwheel.delivery.model.message import Columns
from tickwheel.delivery.read.sources import find_sources
from tickwheel.spark import HandOff, hold, parse_files, parse_rows, read_files
from tickwheel.spark.failing import failure
from tickwheel.spark.feed import Pipeline
from tickwheel.spark.packing import VERSION, split_by
from tickwheel.spark.query import start
from tickwheel.spark.same_source import Begun
from tickwheel.spark.shape import LocalFolder, keep_shape

from .ports import port_of

pytestmark = pytest.mark.timeout(180)

DUE_MS = 1_700_000_000_005
DUE = str(DUE_MS)

Deliver = Callable[..., Result]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An empty current folder; restores the interpreter's switch interval, which the command sets for its process."""
    before_s = sys.getswitchinterval()
    monkeypatch.chdir(tmp_path)
    yield
    sys.setswitchinterval(before_s)


@pytest.fixture
def deliver() -> Deliver:
    """Runs `tickwheel deliver in ARGS` in this process, with an absolute store path: the JVM is in another folder."""

    def run(*args: str, store: str = "s.db", engine: str = "spark") -> Result:
        given = ["in", "--engine", engine, "--store", str(Path(store).absolute()), "--to", f"file:{engine}.out"]
        given += ["--dead-letters", f"{engine}.dead", *args]
        return CliRunner().invoke(command, ["deliver", *given], catch_exceptions=False)

    return run


@pytest.fixture
def lent(session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gives the command the session of all tests, and keeps that running."""

    class Lent:
        def __init__(self, **_: object) -> None: ...

        def __getattr__(self, name: str) -> Any:
            return getattr(session, name)

        def stop(self) -> None:
            pass

    monkeypatch.setattr("tickwheel.spark.feed.laptop_session", Lent)


def ids(engine: str) -> Counter[str]:
    out = Path(f"{engine}.out")  # a run that has failed leaves no empty one
    return Counter(json.loads(line)["id"] for line in (out.read_bytes().splitlines() if out.exists() else []))


def letters(engine: str) -> list[tuple[object, ...]]:
    """The dead letters without folders, because Spark names the whole path and the local engine the given one."""
    found = [json.loads(line) for line in Path(f"{engine}.dead").read_bytes().splitlines()]
    return sorted(
        (Path(one["source"]).name, one["line"], one["reason"], one["allowed"], str(one["record"])) for one in found
    )


def everything(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def table(name: str, rows: int = 3) -> Any:
    return pa.table({"id": [f"{name} {n}" for n in range(rows)], "due": [DUE_MS] * rows, "payload": ["1"] * rows})


POISON = {
    b'{"id": "cut off", "due":': "not a JSON object",
    b'{"id": "\xff", "due": 1700000000005}': "byte 9 of the line is not UTF-8",
    b'{"id": "large", "due": 1700000000005, "payload": "%s"}' % (b"x" * (1 << 20)): "the payload has 1,048,578 bytes",
    b'{"id": "longest", "due": 1700000000005, "payload": "%s"}' % (b"x" * (3 << 20)): "the record has 3,145,",
    b'{"id": "never"}': "due is missing",
    b'{"id": "absurd", "due": 99999999999999999999}': "due is 99999999999999999999, which looks like nanoseconds",
    b'{"id": "zoneless", "due": "2026-01-01T00:00:00"}': "due has no zone",
    b'{"id": 7, "due": 1700000000005}': "id is not text",
    b'{"due": 1700000000005}': "id is missing",
    b"\0\0\0": "not a JSON object",
    b'{"id": "\0", "due": 1700000000005}': "not a JSON object",
    b'{"id": "\\ud800", "due": 1700000000005}': "not a JSON object",
    b"[" * 5_000: "the JSON is nested too deep",
}
"""Each line, and the beginning of its reason."""

FILES = {
    "truncated.parquet": "the file can't be read",
    "garbage.parquet": "the file can't be read",
    "empty.parquet": "the file can't be read",
    "page.parquet": "rows 101 to 200 can't be read",
    "no id.parquet": "the schema has no column id",
    "no zone.parquet": "due has no zone",
    "key.parquet": "key is not text",
    "due.parquet": "due is neither a time nor an integer",
    "header.csv": "the header has no column id",
    "no rows.csv": "the header has no column due",
    "no rows.parquet": "the schema has no column due",
}
"""Each bad file, and the beginning of the reason of its dead letters."""


def make_input(folder: Path) -> None:
    around = [b'{"id": "line %d", "due": 1700000000005}' % n for n in range(len(POISON))]
    lines = [line for pair in zip(around, POISON, strict=True) for line in pair]
    (folder / "poison.ndjson").write_bytes(b"\n".join(lines) + b"\n")
    pq.write_table(table("truncated"), folder / "truncated.parquet")
    os.truncate(folder / "truncated.parquet", (folder / "truncated.parquet").stat().st_size - 20)
    (folder / "garbage.parquet").write_bytes(b"PAR1" + bytes(range(256)) * 9)
    (folder / "empty.parquet").touch()
    write_paged(folder / "page.parquet")
    break_page(folder / "page.parquet")
    pq.write_table(table("no id").rename_columns(["name", "due", "payload"]), folder / "no id.parquet")
    pq.write_table(pa.table({"id": ["z"], "due": pa.array([5], pa.timestamp("ms"))}), folder / "no zone.parquet")
    pq.write_table(pa.table({"id": ["k"], "key": [1.5], "due": [DUE_MS]}), folder / "key.parquet")
    pq.write_table(pa.table({"id": ["d"], "due": [True]}), folder / "due.parquet")
    (folder / "header.csv").write_text("name,due\na,5\n")
    (folder / "no rows.csv").write_text("id,when\n")
    pq.write_table(pa.table({"id": pa.array([], pa.string())}), folder / "no rows.parquet")
    (folder / "good.csv").write_text("id,due\ncsv,1700000000005\n")
    Path("elsewhere").write_text('{"id": "linked", "due": 1700000000005}\n')
    (folder / "link.ndjson").symlink_to("../elsewhere")
    (folder / os.fsdecode(b"\xff.ndjson")).write_text('{"id": "oddly named", "due": 1700000000005}\n')
    (folder / "100%41 #?.ndjson").write_text('{"id": "escaped", "due": 1700000000005}\n')


def write_paged(path: Path) -> None:
    pq.write_table(
        table("page", 300), path, row_group_size=100, compression="none", use_dictionary=False, write_page_checksum=True
    )


def break_page(path: Path) -> None:
    data = bytearray(path.read_bytes())
    at = data.index(b"page 150")
    data[at : at + 4] = b"\xff\0\xff\0"
    path.write_bytes(data)


def test_bad_files_and_records_are_told_as_in_one_process_and_the_rest_is_delivered_once__D2_D11_S1(
    deliver: Deliver, lent: None
) -> None:
    Path("in").mkdir()
    pq.write_table(table("good"), "in/good.parquet")
    Path("in", "unreadable.ndjson").symlink_to("/proc/self/mem")  # an error of the operating system, for root too
    seen = subprocess.run(
        [sys.executable, "-m", "tickwheel.cli", "deliver", "in", "--engine", "spark", "--store", "s.db",
         "--to", "file:spark.out", "--dead-letters", "spark.dead"],
        check=False, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert seen.returncode == 3, seen.stderr
    failed = [line for line in seen.stderr.splitlines() if line.startswith("Failed: ")]
    assert len(failed) == 1
    assert (
        "/in/unreadable.ndjson can't be read: Input/output error; make it readable, or put an empty file" in failed[0]
    )
    assert "To go on, run again with the same --store." in seen.stderr
    assert not [line for line in seen.stderr.splitlines() if "Traceback" in line or line.startswith(("\t", "  "))]

    Path("in", "unreadable.ndjson").unlink()
    make_input(Path("in"))
    again = deliver()
    assert again.exit_code == 1, again.output
    alone = deliver(store="local.db", engine="local")
    assert alone.exit_code == 1, alone.output
    gone = [letter for letter in letters("spark") if letter[0] == "unreadable.ndjson"]
    assert [letter[2].partition(": ")[2] for letter in gone if isinstance(letter[2], str)] == [
        "No such file or directory"
    ]
    assert [letter for letter in letters("spark") if letter not in gone] == letters("local")
    assert ids("spark") == ids("local")
    assert set(ids("spark").values()) == {1}
    assert {"linked", "oddly named", "escaped", "csv", "good 0", "page 99", "page 200"} < ids("spark").keys()

    reasons = [str(letter[2]) for letter in letters("spark") if letter[0] == "poison.ndjson"]
    assert len(reasons) == len(POISON)
    assert all(any(reason.startswith(begin) for reason in reasons) for begin in POISON.values())
    for name, begin in FILES.items():
        of_file = [letter for letter in letters("spark") if letter[0] == name]
        assert of_file, name
        assert len(of_file) == 1 or "page" in name, name
        assert all(str(reason).startswith(begin) and allowed for _, _, reason, allowed, _ in of_file), name

    write_paged(Path("in", "page.parquet"))
    pq.write_table(table("truncated"), "in/truncated.parquet")
    mended = deliver()
    assert mended.exit_code == 0, mended.output
    assert set(ids("spark").values()) == {1}
    assert {"page 150", "truncated 0"} < ids("spark").keys()
    assert sum(name.startswith("page") for name in ids("spark")) == 300


def rows_of(session: Any, folder: Path, rows: Any) -> Any:
    """A stream of these rows."""
    folder.mkdir()
    pq.write_table(rows, folder / "rows.parquet")
    return session.readStream.schema(session.read.parquet(str(folder)).schema).parquet(str(folder))


def test_rows_and_names_of_any_kind_are_messages_or_dead_letters_and_end_nothing__D2_S1(
    session: Any, tmp_path: Path
) -> None:
    poison = {
        "good": ("good", DUE, b"1"),
        "id is missing": (None, DUE, b"1"),
        "id is empty": ("", DUE, b"1"),
        "due is missing": ("a", None, b"1"),
        "due is not a time: 'tomorrow'": ("b", "tomorrow", b"1"),
        "due has no zone: '2026-01-01T00:00:00'": ("c", "2026-01-01T00:00:00", b"1"),
        "the payload has 1,048,577 bytes": ("d", DUE, b"\xff" * ((1 << 20) + 1)),
        "nul": ("nul\0", DUE, b"\0"),
    }
    names, dues, payloads = zip(*poison.values(), strict=True)
    texts = rows_of(session, tmp_path / "texts", pa.table({"id": names, "due": dues, "payload": payloads}))
    numbers = rows_of(session, tmp_path / "numbers", pa.table({"id": [7], "due": [DUE_MS], "x": [[{"y": 1}]]}))
    nameless = rows_of(session, tmp_path / "nameless", pa.table({"name": ["a"], "due": [DUE_MS]}))
    with pytest.raises(WrongUsage, match="the schema has no column id"):
        parse_rows(nameless)
    broken = texts.where("id = 'good'").selectExpr("cast(unhex('FFFE') as string) as id", "due", "payload")
    (tmp_path / "files").mkdir()
    for number, name in enumerate(["100%41 #?.ndjson", "a b+é.ndjson"]):
        (tmp_path / "files" / name).write_text(f'{{"id": "file {number}", "due": 1700000000005}}\n')
    parsed = [parse_rows(rows) for rows in (texts, numbers, broken)]
    messages = parse_files(read_files(session, tmp_path / "files"))
    for one in parsed:
        messages = messages.union(one)
    near = hold(messages)

    arrived: list[str] = []
    dead: list[Letter] = []
    with (
        DeliveryQueue("s.db", to=lambda it: arrived.append(it.message.id), on_dead_letter=dead.append) as queue,
        port_of(queue) as at,
    ):
        hand_off = HandOff([at])
        query = start(near, hand_off, tmp_path / "checkpoint")
        try:
            while not (hand_off.report.sent and hand_off.report.is_empty):
                assert query.isActive, query.exception()
                time.sleep(0.05)
        finally:
            query.stop()
            hand_off.close()
    assert sorted(arrived) == ["file 0", "file 1", "good", "nul\0"]
    of_rows = {letter.reason for letter in dead}
    assert of_rows >= poison.keys() - {"good", "nul"}
    assert of_rows >= {"id is not text", "id is not UTF-8"}
    assert len(dead) == len(poison) - 2 + 2
    assert all(letter.allowed for letter in dead)


def test_what_belongs_to_one_store_is_a_dead_letter_that_says_where_to_put_it__S2_D2_D19_D22(
    deliver: Deliver, lent: None
) -> None:
    Path("in").mkdir()
    due_ms = time.time_ns() // 1_000_000 + 1_000
    beat = f'{{"id": "beat", "key": "k", "every": 60000, "due": {due_ms}, "payload": 1}}'
    Path("in", "a.ndjson").write_text(f'{{"id": "a", "due": {DUE}}}\n{beat}\n')
    Path("in", "b.csv").write_text("id,cron,tz\nat nine,0 9 * * *,UTC\n")
    waits = f'{{"id": "waits", "key": "k", "due": {due_ms}, "until_event": ["paid"], "payload": 1}}'
    event = '{"id": "e", "key": "k", "op": "event", "event": "paid"}'
    Path("in", "c.ndjson").write_text(f"{waits}\n{event}\n")
    ended = deliver()
    assert ended.exit_code == 1, ended.output
    assert ids("spark") == Counter(["a"])
    allowed = (
        "messages with due or delay_ms; give others to the store of a deliverer, by POST /messages of tickwheel serve"
    )
    found = sorted(letters("spark"), key=lambda it: it[:2])
    recurring, waiting = "a recurring message", "a message with until_event"
    told = (("a.ndjson", 2, recurring), ("b.csv", 2, recurring), ("c.ndjson", 1, waiting), ("c.ndjson", 2, "an event"))
    for letter, (source, line, what) in zip(found, told, strict=True):
        assert letter[:4] == (source, line, f"{what} does not go through Spark", allowed)
    for place, record in (0, beat), (2, waits), (3, event):
        assert json.loads(str(found[place][4])) == json.loads(record)


def shaped(**other: object) -> Callable[[Path], object]:
    """A change of a checkpoint's shape."""

    def make(checkpoint: Path) -> None:
        keep_shape(LocalFolder(checkpoint))
        path = checkpoint / "tickwheel.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | other))

    return make


def with_text(text: bytes) -> Callable[[Path], object]:
    def make(checkpoint: Path) -> None:
        checkpoint.mkdir()
        (checkpoint / "tickwheel.json").write_bytes(text)

    return make


def without_shape(checkpoint: Path) -> None:
    """Makes it look like another program's folder, or a checkpoint that has lost a part."""
    (checkpoint / "query").mkdir(parents=True)
    (checkpoint / "query" / "metadata").write_text("{}")


def without_query(checkpoint: Path) -> None:
    """As after some micro-batches."""
    keep_shape(LocalFolder(checkpoint))
    Begun(LocalFolder(checkpoint))({"batchId": 1})


OTHERS = {
    **{
        f"the format {other}": (
            shaped(format=other),
            f"has the format {other}, and this version of tickwheel reads only {VERSION}: let the version that wrote "
            "it deliver all that it holds, then name a new checkpoint",
        )
        for other in (6, VERSION + 1)
    },
    "other partitions": (shaped(partitions=32), "has the partitions 32, and this version of tickwheel reads only 64:"),
    "half a file": (with_text(b'{"format": 1'), "is damaged: restore it from a copy, or name another checkpoint"),
    "no object": (with_text(b"3"), "is damaged: restore it from a copy, or name another checkpoint"),
    "no text": (with_text(b"\xff\0"), "is damaged: restore it from a copy, or name another checkpoint"),
    "not ours": (without_shape, "holds files, but no tickwheel.json, so it is no checkpoint of tickwheel, or damaged"),
    "lost": (without_query, "query has lost offsets, and without them Spark begins anew: what the checkpoint"),
}


@pytest.mark.parametrize("given", [False, True], ids=["beside the store", "named"])
@pytest.mark.parametrize("kind", OTHERS)
def test_a_checkpoint_that_is_not_for_this_is_refused_before_anything_is_written__D2_S4_S5(
    deliver: Deliver, kind: str, given: bool
) -> None:
    Path("in").mkdir()
    Path("in", "a.ndjson").write_text('{"id": "a", "due": 1700000000005}\n')
    make, words = OTHERS[kind]
    checkpoint = Path("c") if given else Path("s.db.checkpoint")
    make(checkpoint)
    before = everything(checkpoint)
    result = deliver(*(["--checkpoint", "c"] if given else []))
    assert result.exit_code == 2, result.output
    assert words in " ".join(result.output.split())
    assert str(checkpoint) in result.output
    assert everything(checkpoint) == before
    assert Path("spark.out").read_bytes() == b"" if Path("spark.out").exists() else True
    assert not (given and Path("s.db").exists())
    assert deliver(engine="local").exit_code == 0, "the store is no longer in use"


def test_a_folder_that_is_new_or_holds_a_disk_s_own_alone_becomes_a_checkpoint__S4(tmp_path: Path) -> None:
    (tmp_path / "c" / "lost+found").mkdir(parents=True)
    (tmp_path / "c" / ".tickwheel.json").write_text("{")  # of an interrupted start
    keep_shape(LocalFolder(tmp_path / "c"))
    keep_shape(LocalFolder(tmp_path / "new" / "c"))


def test_a_store_of_another_format_is_refused_in_the_same_words_by_both_engines__D2_S1(deliver: Deliver) -> None:
    Path("in").mkdir()
    Path("in", "a.ndjson").write_text('{"id": "a", "due": 1700000000005}\n')
    with DeliveryQueue("s.db", to=lambda _: None):
        pass
    with sqlite3.connect("s.db") as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    before = Path("s.db").read_bytes()
    results = [deliver(engine=engine) for engine in ("local", "spark")]
    assert [result.exit_code for result in results] == [2, 2]
    assert results[0].output == results[1].output
    words = " ".join(results[0].output.split())
    assert "s.db is a store of format 99, and this tickwheel reads and writes format 13 alone: deliver its" in words
    assert Path("s.db").read_bytes() == before
    assert not Path("s.db.checkpoint").exists()


def later(log: str) -> Callable[[Path], object]:
    """Spark's own log as a later Spark may write it."""

    def damage(query: Path) -> None:
        for path in (query / log).glob("[0-9]*"):
            path.write_text("v9\n" + path.read_text().partition("\n")[2])
            path.with_name(f".{path.name}.crc").unlink()

    return damage


def garbage_metadata(query: Path) -> None:
    (query / "metadata").write_text("{garbage")


def garbage_state(query: Path) -> None:
    for path in [*(query / "state").rglob("*.changelog"), *(query / "state").rglob("*.zip")]:
        path.write_bytes(b"garbage")
        path.with_name(f".{path.name}.crc").unlink()


DAMAGES = {
    "no metadata": (lambda query: (query / "metadata").unlink(), "the metadata file is missing"),
    "garbage in the metadata": (garbage_metadata, "JsonParseException: Unexpected character"),
    "offsets of a later Spark": (later("offsets"), "was produced by a newer version of Spark"),
    "commits of a later Spark": (later("commits"), "was produced by a newer version of Spark"),
    "no state": (lambda query: shutil.rmtree(query / "state"), "the state directory is empty or missing"),
    "garbage in the state": (garbage_state, "loading state"),
}


def test_a_damaged_checkpoint_is_told_and_goes_on_once_it_is_brought_back__D2_D11_S4(
    deliver: Deliver, lent: None
) -> None:
    Path("in").mkdir()
    due_ms = time.time_ns() // 1_000_000 + 3_600_000
    records = [{"id": f"m{n}", "key": f"k{n % 5}", "due": due_ms + n * 10} for n in range(100)]
    Path("in", "a.ndjson").write_text("\n".join(map(json.dumps, records)))
    checkpoint, stop = Path("s.db.checkpoint").absolute(), threading.Event()

    def stop_once_held(progress: Any) -> None:
        # Not after the first micro-batch: Spark does not begin that again where there is a state.
        if hand_off.report.waiting and progress and progress["batchId"] > 1:
            stop.set()

    hand_off = HandOff(["127.0.0.1:1"])
    assert not Pipeline(find_sources(["in"]), Columns(), checkpoint, 1_000).feed(hand_off, stop, stop_once_held)
    shutil.copytree(checkpoint, "copy")
    for kind, (damage, words) in DAMAGES.items():
        damage(checkpoint / "query")
        done = everything(checkpoint / "query" / "commits")
        result = deliver()
        assert result.exit_code == 3, (kind, result.output)
        failures = [line for line in result.output.splitlines() if line.startswith("Failed: ")]
        assert len(failures) == 1, kind
        assert failures[0].startswith(f"Failed: Spark can't go on from the checkpoint {checkpoint}: "), failures
        assert words in failures[0], kind
        assert "restore it from a copy" in failures[0]
        assert everything(checkpoint / "query" / "commits") == done, kind
        assert not ids("spark"), kind
        shutil.rmtree(checkpoint)
        shutil.copytree("copy", checkpoint)
    for log in ("offsets", "commits"):
        last = max(int(it.name) for it in checkpoint.glob(f"query/{log}/[0-9]*"))
        (checkpoint / "query" / log / f"{last}").write_bytes(b"")
        result = deliver()
        words = " ".join(result.output.split())
        assert (result.exit_code, f"{log}/{last} is empty, as after a loss of power: " in words) == (2, True), words
        for each in {log, "commits"}:
            for name in f"{last}", f".{last}.crc":
                (checkpoint / "query" / each / name).unlink(missing_ok=True)
        stop.clear()
        hand_off = HandOff(["127.0.0.1:1"])
        assert not Pipeline(find_sources(["in"]), Columns(), checkpoint, 1_000).feed(hand_off, stop, stop_once_held)
        assert hand_off.report.waiting == 100, "the advice loses nothing"
    shutil.rmtree(checkpoint / "query" / "sources")
    result = deliver()
    assert result.exit_code == 2, result.output
    assert "has lost the list of the files that were read" in " ".join(result.output.split())
    shutil.rmtree(checkpoint)
    shutil.copytree("copy", checkpoint)
    due = [{"id": it["id"], "key": it["key"], "op": "reschedule", "due": 100_000_000_000} for it in records]
    Path("in", "due.ndjson").write_text("\n".join(map(json.dumps, due)))
    result = deliver("--lead", "2")
    assert result.exit_code == 0, result.output
    assert ids("spark") == Counter(f"m{n}" for n in range(100))


def split_as_another(batch: Any, column: str) -> Iterator[tuple[int, bytes]]:
    """In a worker: pieces of another format."""
    return ((number, b"\x0b" + piece[1:]) for number, piece in split_by(batch, column))


def test_what_is_held_in_another_format_is_told_not_misread__S4(
    deliver: Deliver, lent: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("in").mkdir()
    Path("in", "a.ndjson").write_text('{"id": "a", "due": 1700000000005}\n')
    monkeypatch.setattr(sys.modules["tickwheel.spark.hold"], "split_by", split_as_another)
    result = deliver()
    assert result.exit_code == 3, result.output
    words = (
        f"Failed: the state of the checkpoint has the format 11, and this version of tickwheel reads only {VERSION}: "
        "let the version that wrote it deliver all that it holds, then name a new checkpoint"
    )
    assert words in result.output
    assert not ids("spark")


def test_an_error_of_the_topic_is_told_as_the_topic_s_also_when_a_query_goes_on__S4() -> None:
    away = "[STREAM_FAILED] terminated with exception: org.apache.kafka.common.errors.TimeoutException: timed out"
    assert str(failure(away, Path("c"), is_resuming=True)).startswith("the topic can't be read: ")
    lost = "[KAFKA_DATA_LOSS.COULD_NOT_READ_OFFSET_RANGE] Could not read records. SQLSTATE: 1"
    found = str(failure(lost, Path("c"), is_resuming=True))
    assert found == "the topic has lost records: Could not read records; the next start tells their offsets"
    state = "[CANNOT_LOAD_STATE_STORE.X] An error occurred during loading state. SQLSTATE: 1"
    assert "can't go on from the checkpoint c" in str(failure(state, Path("c"), is_resuming=True))


@pytest.mark.parametrize("is_resuming", [False, True])
def test_a_full_disk_is_told_also_where_spark_says_only_that_a_part_of_it_ended__S4(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_resuming: bool
) -> None:
    said = f"a disk is full, that of the checkpoint {tmp_path} or of SPARK_LOCAL_DIRS: "
    told = "org.apache.hadoop.fs.FSError: java.io.IOException: No space left on device\n\tat a"
    assert str(failure(told, tmp_path, is_resuming=is_resuming)).startswith(said)
    hidden = TRACEBACK + "EOFError\n\tat a"
    assert said not in str(failure(hidden, tmp_path, is_resuming=is_resuming))
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage._replace(free=4096))
    assert str(failure(hidden, tmp_path, is_resuming=is_resuming)).startswith(said + "EOFError; nothing is lost")


TRACEBACK = "x\nTraceback (most recent call last):\n  File\n    y\n"
SAID = {
    TRACEBACK + "tickwheel.delivery.base.errors.DeliveryFailed: in our words\n\n\tat a": "in our words",
    TRACEBACK + "ValueError: a worker's\n\tat a": "Spark failed: ValueError: a worker's",
    "[STREAM_FAILED] Query [id = 1] terminated with exception: why === Streaming Query ===\nplan": "Spark failed: why",
    "[A_B] Why.\nWhat to\ndo. SQLSTATE: 1\n\tat a\nCaused by: b.CException\n": "Spark failed: Why. What to do",
    "failed.\n: java.lang.OutOfMemoryError: why\n\tat a": "Spark failed: java.lang.OutOfMemoryError: why",
}


@pytest.mark.parametrize("said", SAID)
def test_the_reason_of_a_failure_is_one_line__D2(said: str) -> None:
    assert str(failure(said, Path("c"), is_resuming=False)) == SAID[said]
