"""A folder as others leave it: each file that is not read is named, with the way to read it (rules D2, D11)."""

import gzip
import subprocess
import sys
from pathlib import Path

import pytest

from tickwheel.delivery.base.errors import WrongUsage
from tickwheel.delivery.read.sources import find_sources

pytestmark = pytest.mark.timeout(60)
ROW = b"id,due\na,1700000000005\n"


def found(*inputs: object) -> tuple[list[str], list[str]]:
    """The files that are read, and the lines about others."""
    said: list[str] = []
    sources = find_sources([str(each) for each in inputs], said.append)
    return [source.name for source in sources], said


def test_a_file_that_is_skipped_by_its_name_is_named__D2(tmp_path: Path) -> None:
    for name in ("a.csv", "_b.csv", ".c.ndjson", "_temporary/d.csv", "_SUCCESS", ".a.csv.crc"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(ROW)
    read, said = found(tmp_path)
    assert read == [str(tmp_path / "a.csv")]
    assert said == [f"Not read in {tmp_path}, as the name begins with . or _: .c.ndjson, _b.csv, _temporary/d.csv"]


def test_a_folder_named_by_the_user_may_begin_with_an_underscore__D2(tmp_path: Path) -> None:
    (tmp_path / "_in").mkdir()
    (tmp_path / "_in/a.csv").write_bytes(ROW)
    assert found(tmp_path / "_in") == ([str(tmp_path / "_in/a.csv")], [])


def test_folders_with_values_in_their_names_are_read_and_the_values_named__D2(tmp_path: Path) -> None:
    for country in ("de", "fr"):
        (tmp_path / f"country={country}").mkdir()
        (tmp_path / f"country={country}/a.csv").write_bytes(ROW)
    read, said = found(tmp_path)
    assert len(read) == 2
    assert said == [
        f"Folders in {tmp_path} are no columns, and no message has their values: country=de, country=fr",
    ]


WAYS = [
    ("a.csv.gz", "pipe zcat {} into the same command, with - --format csv"),
    ("a b.ndjson.zst", "pipe zstdcat '{}' into the same command, with - --format ndjson"),
    ("a.jsonl.xz", "pipe xzcat {} into the same command, with - --format ndjson"),
    ("a.parquet.gz", "unpack it: zcat {} >a.parquet"),
]


@pytest.mark.parametrize(("name", "way"), WAYS)
def test_a_compressed_file_is_refused_with_the_way_to_read_it__D2(name: str, way: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(b"compressed")
    with pytest.raises(WrongUsage) as refused:
        found(path)
    assert str(refused.value).endswith(": " + way.format(path))
    (tmp_path / "b.csv").write_bytes(ROW)
    [line] = found(tmp_path)[1]
    assert line.endswith(f": {name}. Compressed: {way.format(path)}")


def deliver(*given: str, stdin: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
    command = [sys.executable, "-m", "tickwheel.cli", "deliver", *given]
    return subprocess.run(command, input=stdin, capture_output=True, timeout=50)


def test_the_way_to_read_a_compressed_file_works__D11(tmp_path: Path) -> None:
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress(b'id;due;text\na;1700000000005;"two\nlines"\nb;x;\n'))
    _, _, way = deliver(str(path)).stderr.decode().partition("pipe ")
    again = f"| {sys.executable} -m tickwheel.cli deliver"
    command = way.replace("\n", " ").replace("into the same command, with", again)
    done = subprocess.run(command, shell=True, capture_output=True, timeout=50)
    assert (done.returncode, done.stdout.count(b'"payload":{"text":"two\\nlines"}')) == (1, 1), done.stderr
    assert b'"source":"-","line":4' in done.stderr


def test_a_format_is_for_standard_input_alone__D2(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(ROW)
    done = deliver(str(tmp_path / "a.csv"), "--format", "csv")
    assert (done.returncode, b"--format is for standard input (-) only" in done.stderr) == (2, True)
    assert deliver("-", stdin=b'{"id": "a", "due": 1700000000005}\n').returncode == 0


def test_the_index_of_pandas_stays_in_the_payload__D2() -> None:
    done = deliver("-", "--format", "csv", stdin=b",id,due,text\n0,a,1700000000005,x\n")
    assert (done.returncode, b'"payload":{"":"0","text":"x"}' in done.stdout) == (0, True), done.stderr
