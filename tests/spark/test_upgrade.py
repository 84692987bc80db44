"""A checkpoint is exported, and a new one begins with the export: nothing is lost (rules S4, D2)."""

import json
import shutil
import subprocess
import sys
import tarfile
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result

from tickwheel.commands import tickwheel as command
from tickwheel.delivery import DeliveryFailed, DeliveryQueue, WrongUsage
from tickwheel.delivery.model.message import Columns
from tickwheel.delivery.read.sources import find_sources
from tickwheel.spark import HandOff, hold, parse_rows, read_held
from tickwheel.spark.feed import Pipeline
from tickwheel.spark.held import Held, held_of
from tickwheel.spark.packing import VERSION
from tickwheel.spark.query import start
from tickwheel.spark.shape import LocalFolder
from tickwheel.spark.upgrade import export as module
from tickwheel.spark.upgrade.formats import FORMATS as EXPORTED
from tickwheel.spark.upgrade.formats import rows_of, shard_of
from tickwheel.spark.upgrade.kept import Controls, Messages
from tickwheel.spark.upgrade.records import exported
from tickwheel.spark.upgrade.sources import Source, last_done, sources_of
from tickwheel.spark.upgrade.written import Kind, Upgrade

from .interrupted import NoSpark, press_ctrl_c_at
from .make_checkpoint import DATA, FIRST, PLACE
from .ports import port_of

pytestmark = pytest.mark.timeout(600)  # beside other JVMs

FORMATS = sorted(DATA.glob("checkpoint-*.tar.xz"))
NOW = "2026-01-01T00:00:00Z"


@pytest.fixture(autouse=True)
def lent(session: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Gives the commands the session of all tests, and keeps that running; an empty current folder."""

    class Lent:
        def __init__(self, *_: object, **__: object) -> None: ...

        def __getattr__(self, name: str) -> Any:
            return getattr(session, name)

        def stop(self) -> None:
            pass

    monkeypatch.setattr("tickwheel.spark.feed.laptop_session", Lent)
    monkeypatch.setattr("tickwheel.spark.session.laptop_session", lambda *_, **__: Lent())
    monkeypatch.chdir(tmp_path)


@pytest.fixture(params=FORMATS, ids=[path.name.partition(".")[0] for path in FORMATS])
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A checkpoint as it was made, and the store of its deliverer. Spark's metadata have the path where it was made."""
    with tarfile.open(request.param) as archive:
        archive.extractall(tmp_path, filter="data")
    for path in (tmp_path / "checkpoint/query/state/0/_metadata/v2").glob("[0-9]*"):
        path.write_text(path.read_text().replace(str(PLACE), str(tmp_path)))
        path.with_name(f".{path.name}.crc").unlink()
    return tmp_path / "checkpoint"


def upgrade(*args: str | Path) -> Result:
    return CliRunner().invoke(command, ["spark-upgrade", *map(str, args)], catch_exceptions=False)


def records(out: Path, *what: str) -> list[dict[str, Any]]:
    """All records, file by file."""
    files = [path for name in what for path in sorted((out / name).glob("[!.]*.ndjson"))]
    return [json.loads(line) for path in files for line in path.read_text().splitlines()]


def test_ctrl_c_after_the_last_record_tells_what_was_written__S4_D13(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same command again would be refused: the folder is not empty."""
    is_written, session = threading.Event(), NoSpark()

    def export(*_: object) -> Upgrade:
        is_written.set()
        session.wait_for_ctrl_c()
        return Upgrade("0.1.0", "", 6, 0, 38, 3, 1, 0, 0, 0, [], [])

    press_ctrl_c_at(is_written, session, monkeypatch)
    monkeypatch.setattr(module, "export", export)
    ended = upgrade("old", "--out", "out")
    assert ended.exit_code == 0, ended.output
    assert ended.output.splitlines()[1:3] == [
        f"Done: {Path('out').absolute()}",
        "Messages: 38, of which deliverers may have 3. Recurring messages, cancels and reschedules: 1.",
    ]


def test_a_standard_error_that_is_full_fails_no_upgrade__S4_D13(monkeypatch: pytest.MonkeyPatch) -> None:
    """All is written by then, and the same command again would be refused."""

    def export(*_: object) -> Upgrade:
        return Upgrade("0.1.0", "", 6, 0, 38, 3, 1, 0, 0, 0, [], [])

    monkeypatch.setattr("tickwheel.spark.session.laptop_session", lambda _name: NoSpark())
    monkeypatch.setattr(module, "export", export)
    full = Path("/dev/full").open("w", buffering=1)  # noqa: SIM115 - its close fails too
    monkeypatch.setattr("sys.stderr", full)
    command.main(["spark-upgrade", "old", "--out", "out"], standalone_mode=False)
    with suppress(OSError):
        full.close()


def test_there_is_a_checkpoint_of_each_format_that_is_exported__S4() -> None:
    assert {int(path.name.split(".")[0].split("-")[1]) for path in FORMATS} == EXPORTED.keys()
    assert VERSION in EXPORTED


def test_no_query_loads_what_reads_an_old_format__S4() -> None:
    code = "import sys, tickwheel.spark.runner, tickwheel.spark.run; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert "tickwheel.spark.held" in loaded
    assert not [it for it in loaded if "format_" in it and "tickwheel" in it]


def test_all_that_a_checkpoint_holds_is_exported_and_delivered_once_from_a_new_one__S4_D5(
    old: Path, tmp_path: Path
) -> None:
    ended = upgrade(old, "--out", "out")
    assert ended.exit_code == 0, ended.output
    told = msgspec.json.decode((tmp_path / "out" / "upgrade.json").read_bytes(), type=Upgrade)
    assert (told.held, told.given, told.dead_letters, told.left_out, told.other_content) == (38, 3, 1, 0, 0), told
    assert told.sources[0].files == [f"file:///tmp/tickwheel-checkpoint/in/{n}.ndjson" for n in range(3)]
    found = records(tmp_path / "out", "given", "held", "controls")
    by_id = {it["id"]: it for it in found if "op" not in it}
    for given in FIRST:
        if given["id"] != "done" and "op" not in given and "delay_ms" not in given:
            assert times(by_id[given["id"]]) == times(whole(given))
    ops = {(it["id"], it["op"]): it.get("due") for it in found if "op" in it}
    assert ops["m3", "reschedule"] == ops["m6", "reschedule"] == "2200-01-01T00:00:00.000Z"
    assert {id_ for id_, op in ops if op == "cancel"} == {"m4", "m5"}
    assert by_id["stuck by delay"]["delay_ms"] == 1.5
    [letter] = records(tmp_path / "out", "dead-letters")
    assert letter["reason"].startswith("due is not a time")
    assert json.loads(letter["record"])["id"] == "never"

    (tmp_path / "new").mkdir()
    write(tmp_path / "new" / "1.ndjson", [{"id": "new", "due": "2100-01-01T00:00:00Z"}])
    due = [{"id": id_, "key": it.get("key"), "op": "reschedule", "due": NOW} for id_, it in by_id.items()]
    ends = [{"id": id_, "key": by_id[id_].get("key"), "op": "cancel"} for id_ in ("beat", "new year")]
    came: Counter[str] = Counter()
    marked: set[str] = set()

    def arrived(delivery: Any) -> None:
        came.update([delivery.message.id])
        if delivery.redelivered:
            marked.add(delivery.message.id)

    with DeliveryQueue(tmp_path / "store.db", to=arrived) as queue, port_of(queue) as at:
        assert not feed(HandOff([at]), lambda progress: progress is None, held=tmp_path / "out"), "nothing is done"
        hand_off = HandOff([at])
        assert not feed(hand_off, lambda _: hand_off.report.waiting), "the checkpoint knows that it takes it in"
        write(tmp_path / "new" / "2.ndjson", [*ends, *due, due[0] | {"id": "new", "key": None}])
        feed(HandOff([at]), lambda _: came.total() == 37)
        assert queue.wait_until_empty(60)
        counts = queue.summary
    assert came == Counter(by_id.keys() - {"m4", "m5", "beat", "new year"} | {"new"})
    assert marked == {"stuck", "stuck and put off", "stuck by delay"}, "tried before"
    assert (counts.conflicts, counts.dead_letters) == (0, 0)
    # The second query may end before it notes that its hand-off was taken, and the third gives all of it again.
    assert counts.duplicates in (5, 10), "what is stuck or recurs is known"


def test_a_message_that_a_lost_store_may_have_delivered_is_marked__S4_D5(old: Path, tmp_path: Path) -> None:
    assert upgrade(old, "--out", "out").exit_code == 0
    (tmp_path / "new").mkdir()
    write(tmp_path / "new" / "1.ndjson", [{"id": "new", "due": NOW}])
    came: dict[str, bool] = {}
    with (
        DeliveryQueue(tmp_path / "empty.db", to=lambda it: came.update({it.message.id: it.redelivered})) as queue,
        port_of(queue) as at,
    ):
        feed(HandOff([at]), lambda _: len(came) == 4, held=tmp_path / "out")
    assert came == {"stuck": True, "stuck by delay": True, "near": False, "new": False}


def test_a_program_of_its_own_is_exported_and_takes_it_in_once__S4(session: Any, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    ids = session.readStream.schema("id STRING, due BIGINT").json(str(tmp_path / "in"))
    write(tmp_path / "in" / "1.json", [{"id": f"m{n}", "due": 4 * 10**12 + n} for n in range(9)])

    def run(name: str, count: int, held: Any = None) -> None:
        hand_off = HandOff(["127.0.0.1:1"])
        query = start(hold(parse_rows(ids), held=held), hand_off, tmp_path / name)
        try:
            while (progress := query.lastProgress) is None or hand_off.report.waiting < count:
                assert query.isActive, query.exception()
            batch = progress["batchId"]
            while (query.lastProgress or progress)["batchId"] < batch + 2:
                assert query.isActive, query.exception()
        finally:
            query.stop()
            hand_off.close()
        assert hand_off.report.waiting == count

    run("old", 9)
    assert upgrade(tmp_path / "old", "--out", "out").exit_code == 0
    write(tmp_path / "in" / "2.json", [{"id": "new", "due": 4 * 10**12}])
    (tmp_path / "in" / "1.json").unlink()
    held = read_held(session, str(tmp_path / "out"))
    run("new", 10, held)
    run("new", 10, held)
    run("new", 10)


def test_an_export_that_is_not_whole_is_no_export__S4_D2(
    old: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(code: int, why: str) -> None:
        ended = upgrade(old, "--out", "out")
        assert (ended.exit_code, why in " ".join(ended.output.split())) == (code, True), ended.output
        assert not (tmp_path / "out").exists()

    def one_more(index: bytes) -> Any:
        found = shard_of(index)
        return found._replace(messages=found.messages + 1) if found.messages > 5 else found

    with monkeypatch.context() as other:
        other.setattr(module, "shard_of", one_more)
        refused(3, "is damaged: shard")
    with monkeypatch.context() as other:

        def write_and_fail(*args: Any) -> None:
            if not isinstance(args[-1], bytes):
                write_records(*args)
            raise OSError(28, "No space left on device")

        write_records = module._write
        other.setattr(module, "_write", write_and_fail)
        refused(3, "out can't be written: No space left on device; nothing is lost: mend it, or name another folder")
    with monkeypatch.context() as other:
        other.setattr(module.HadoopFolder, "write", write_and_fail)
        other.setattr(module, "_write", write_records)
        refused(3, "out can't be written: No space left on device")
    with monkeypatch.context() as other:
        other.setattr(module, "MAX_RECORD", 100)
        refused(3, "has messages whose records are longer than 100 bytes, the most that is read: ")
    with monkeypatch.context() as other:
        numbers = iter([7, 8])
        other.setattr(module, "last_done", lambda _: next(numbers))
        refused(2, "a program runs on ")
    for path in (old / "query/state/0").rglob("*.changelog"):
        path.write_bytes(b"garbage")
        path.with_name(f".{path.name}.crc").unlink()
    refused(3, "can't be read: Spark failed: ")
    offsets = old / "query/offsets/7"
    offsets.with_name(f".{offsets.name}.crc").unlink()
    for damage, why in (
        (b"\xff", "is damaged ('utf-8' codec"),
        (b"v1\n{}", "is damaged, as it names no input: restore"),
    ):
        offsets.write_bytes(damage)
        refused(2, f"query/offsets/7 {why}")
    offsets.unlink()
    refused(2, "offsets/7 is missing: restore it from a copy")
    shutil.rmtree(old / "query/commits")
    refused(2, "has no complete micro-batch, so it holds nothing")
    (old / "tickwheel.json").write_text('{"format": 9}')
    refused(
        2, "has the format 9, and this version exports the formats 5 and 6: export it with the version that wrote it"
    )
    (old / "tickwheel.json").write_text("{")
    refused(2, "tickwheel.json is damaged")
    (old / "tickwheel.json").unlink()
    refused(2, "is no checkpoint of tickwheel, or damaged")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").touch()
    assert "is not empty: name a new folder" in " ".join(upgrade(old, "--out", "out").output.split())
    assert [it.name for it in (tmp_path / "out").iterdir()] == ["mine"]
    assert "is not empty: name a new folder" in " ".join(upgrade(old, "--out", "out/mine").output.split())
    assert (tmp_path / "out" / "mine").exists()


def test_a_value_of_another_format_or_a_broken_one_is_told_not_misread__S4() -> None:
    for read in (shard_of, rows_of):
        for value, why in (
            (b"\x07", "in the format 7, and this version exports the formats 5 and 6"),
            (b"", "of nothing"),
            (b"\x05\xc1\0", "is damaged"),
            (b"\x06\xc1\0", "is damaged"),
        ):
            with pytest.raises(DeliveryFailed, match=why):
                read(value)


def test_an_export_is_taken_in_once_by_a_new_checkpoint_alone__S4_D2(tmp_path: Path) -> None:
    folder = LocalFolder(tmp_path / "c")
    assert held_of(folder, None) is None
    assert held_of(folder, "/out") == "/out"
    folder.write("tickwheel.json", b'{"held": "/out"}')
    assert held_of(folder, None) == "/out", "a first micro-batch that failed is done again with it"
    (tmp_path / "c/query/commits").mkdir(parents=True)
    folder.write("query/commits/0", b"")
    assert held_of(folder, "/out") is None
    with pytest.raises(WrongUsage, match="began with --held /out, and not with /another"):
        held_of(folder, "/another")
    folder.write("tickwheel.json", b"{}")
    with pytest.raises(WrongUsage, match="--held is for a new checkpoint"):
        held_of(folder, "/out")
    folder.write("tickwheel.json", b"{")
    assert held_of(folder, "/out") is None, "that it is damaged is told in its own words"


def test_what_is_no_export_or_of_another_input_is_wrong_usage__S4_D2(tmp_path: Path) -> None:
    folder = LocalFolder(tmp_path)
    with pytest.raises(WrongUsage, match=r"is no complete export, as it has no upgrade\.json"):
        Held.of(folder, "out")
    folder.write("upgrade.json", b'{"version": 1}')
    with pytest.raises(WrongUsage, match=r"upgrade\.json is damaged"):
        Held.of(folder, "out")
    sources = [Source(offsets={"t": {"0": 7, "1": 0}}), Source(files=["file:///in/a b.ndjson"])]
    held = Held("out", Upgrade("1", "c", 5, 7, 0, 0, 0, 0, 0, 0, [], sources))
    assert held.start_of("t") == '{"t":{"0":7,"1":0}}'
    with pytest.raises(WrongUsage, match="--held out is of the topic t, and INPUT is u: "):
        held.start_of("u")
    held.refuse_read(["/in/b.ndjson"])
    for again in ("/in/a b.ndjson", "file:/in/a b.ndjson"):
        with pytest.raises(WrongUsage, match=r"were read before the export out: /in/a b\.ndjson\. Move them"):
            held.refuse_read(["/in/b.ndjson", again])


def test_how_far_each_source_was_read_is_found_in_spark_s_logs__S4(tmp_path: Path) -> None:
    folder = LocalFolder(tmp_path)
    lines = ["v1", "{}", '{"t":{"0":7}}', '{"offset":64,"timestamp":1000}', '{"logOffset":11}', '{"index":3}', "5-6"]
    for path in ("commits", "offsets", "sources/2"):
        (tmp_path / path).mkdir(parents=True)
    for number in ("0", "9", "10"):
        folder.write(f"commits/{number}", b"")
    assert last_done(folder) == 10
    folder.write("offsets/10", "\n".join(lines).encode())
    entry = '{{"path":"file:///in/{}","timestamp":1,"batchId":9}}'.format
    folder.write("sources/2/9.compact", "\n".join(["v1", entry("a%20b"), entry("c")]).encode())
    for number in (10, 11, 12):
        folder.write(f"sources/2/{number}", f"v1\n{entry(number)}".encode())
    assert sources_of(folder, 10, None) == [
        Source(offsets={"t": {"0": 7}}),
        Source(files=[f"file:///in/{name}" for name in ("10", "11", "a b", "c")]),
        Source(other='{"index":3}'),
        Source(other="5-6"),
    ]
    for damage in (b"v1\n{", b'v1\n{"batchId":9}', b'v1\n"path"', b"\xff"):
        folder.write("sources/2/10", damage)
        with pytest.raises(WrongUsage, match=r"sources/2/10.* is damaged .*: restore it from a copy"):
            sources_of(folder, 10, None)
    folder.write("offsets/10", b'v1\n{}\n{"t":{"0":"x"}}\n{"t":7}')
    assert sources_of(folder, 10, None) == [Source(other='{"t":{"0":"x"}}'), Source(other='{"t":7}')]
    folder.write("offsets/10", "\n".join(lines).encode())
    folder.remove("sources/2/10")
    with pytest.raises(WrongUsage, match="sources/2/10 is missing, which lists files that were read"):
        sources_of(folder, 10, None)


ROW = dict.fromkeys(
    ("id", "key", "delay_ms", "expires_ms", "traceparent", "reason", "recurrence", "payload", "is_json", "moved_to_ms"),
    None,
) | {"id": "a", "due_ms": 10**12, "source": "s", "line": 3}


def test_a_delay_keeps_its_content_and_its_time_and_one_that_could_end_too_late_says_so__S4_D5() -> None:
    given = [Messages(0, 1, None, is_given=True)]
    delayed = ROW | {"delay_ms": 5.0, "payload": b'{"x":\r\n"\\n"}', "is_json": True}
    [row] = exported(Rows([delayed]), given, 0)
    assert row.text.split("\n") == [
        '{"id":"a","delay_ms":5.0,"payload":{"x":  "\\n"}}',
        '{"id":"a","op":"reschedule","due":"2001-09-09T01:46:40.000Z"}',
    ]
    assert (row.kind, row.is_other) == (Kind.GIVEN, False)
    [row] = exported(Rows([delayed | {"expires_ms": 10**12 + 1}]), given, 0)
    assert row.is_other
    assert '"due":"2001-09-09T01:46:40.000Z","expires":"2001-09-09T01:46:40.001Z"' in row.text


def test_a_change_that_may_be_done_is_not_done_to_another_occurrence__S4_D19() -> None:
    moves = ROW | {"due_ms": 1000}
    for is_given, is_taken, is_for_rules, kind in (
        (False, False, True, Kind.CONTROL),
        (True, False, True, Kind.LEFT_OUT),
        (True, False, False, Kind.CONTROL),
        (True, True, False, Kind.DONE),
    ):
        place = Controls(0, 1, is_given, is_taken, is_for_rules, begins_anew=False)
        assert [it.kind for it in exported(Rows([moves]), [place], 1000)] == [kind]
    assert [it.kind for it in exported(Rows([moves]), [Controls(0, 1, True, False, True, False)], 999)] == [
        Kind.CONTROL
    ], "it is yet to come, so it is the same occurrence"


class Rows(list[dict[str, Any]]):
    """Rows as of an Arrow batch."""

    def slice(self, start: int, length: int) -> "Rows":
        return Rows(self[start : start + length])

    def to_pylist(self) -> list[dict[str, Any]]:
        return self


def write(path: Path, records: list[dict[str, Any]]) -> None:
    path.write_text("".join(f"{json.dumps(it)}\n" for it in records))


def whole(given: dict[str, Any]) -> dict[str, Any]:
    """With the payload that a record has without one."""
    return given if "payload" in given or "payload_base64" in given else {**given, "payload": {}}


def times(record: dict[str, Any]) -> dict[str, Any]:
    """A record with its times in one form, and its rule in full."""
    found = {name: it.replace(":00Z", ":00.000Z") if name in ("due", "expires") else it for name, it in record.items()}
    return found | {"missed": record.get("missed", "skip")} if {"cron", "every"} & found.keys() else found


def feed(hand_off: HandOff, is_enough: Callable[[Any], object], held: Path | None = None) -> bool:
    """A run with a new checkpoint, until that is enough."""
    stop = threading.Event()
    pipeline = Pipeline(find_sources(["new"]), Columns(), Path("new-checkpoint").absolute(), 2_000, held)

    def check(progress: Any) -> None:
        if is_enough(progress):
            stop.set()

    return pipeline.feed(hand_off, stop, check)
