"""`tickwheel outbox sql` and `tickwheel serve --outbox`."""

import json
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from tickwheel.commands import tickwheel
from tickwheel.delivery.outbox import enqueue

pytestmark = pytest.mark.timeout(60)
EXAMPLE = Path(__file__).parents[4] / "examples/outbox_sqlalchemy.py"


def test_the_statement_for_a_migration_makes_a_table_that_can_be_written(tmp_path: Path) -> None:
    done = CliRunner().invoke(tickwheel, ["outbox", "sql", "--dialect", "sqlite", "--table", "mine"])
    assert done.exit_code == 0
    connection = sqlite3.connect(tmp_path / "app.db")
    connection.executescript(done.output)
    enqueue(connection, {"id": "a", "delay_ms": 0}, table="mine")
    assert connection.execute("SELECT count(*) FROM mine").fetchone() == (1,)
    connection.close()


def test_a_wrong_name_is_wrong_usage() -> None:
    done = CliRunner().invoke(tickwheel, ["outbox", "sql", "--dialect", "sqlite", "--table", "a b"])
    assert done.exit_code == 2
    assert "is no name of a table" in done.output


def test_no_password_of_an_outbox_is_shown__D12() -> None:
    address = "postgresql://me:s3cret@h/d?table=t"
    done = CliRunner().invoke(tickwheel, ["serve", "--store", "s", "--outbox", address, "--show-config"])
    assert "postgresql://...@h/d?table=t" in done.output
    assert "s3cret" not in done.output


def test_serve_delivers_what_outboxes_have(tmp_path: Path) -> None:
    addresses = []
    for name in ("one", "two"):
        connection = sqlite3.connect(tmp_path / f"{name}.db")
        connection.executescript(CliRunner().invoke(tickwheel, ["outbox", "sql", "--dialect", "sqlite"]).output)
        enqueue(connection, {"id": name, "delay_ms": 10, "payload": name})
        connection.commit()
        connection.close()
        addresses += ["--outbox", f"sqlite:{tmp_path / name}.db"]
    command = [sys.executable, "-m", "tickwheel.cli", "serve", "--store", str(tmp_path / "store.db"), *addresses]
    command += ["--to", f"file:{tmp_path / 'out'}", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            until_s = time.monotonic() + 30
            while not (tmp_path / "out").exists() or (tmp_path / "out").read_bytes().count(b"\n") < 2:
                assert time.monotonic() < until_s
                time.sleep(0.02)
        finally:
            process.send_signal(signal.SIGTERM)
            _, said = process.communicate(timeout=20)
    assert process.returncode == 0, said
    assert {json.loads(line)["id"] for line in (tmp_path / "out").read_bytes().splitlines()} == {"one", "two"}


def test_serve_refuses_its_own_store_as_an_outbox__D9(tmp_path: Path) -> None:
    store = tmp_path / "store.db"
    command = [
        sys.executable,
        "-m",
        "tickwheel.cli",
        "serve",
        "--store",
        str(store),
        "--to",
        f"file:{tmp_path / 'out'}",
    ]
    command += ["--listen", "127.0.0.1:0", "--outbox", f"sqlite:{store}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == 2
    assert "is the store of a queue in this process: name another file" in done.stderr


def test_the_example_reminds_of_what_was_stored_and_of_nothing_else() -> None:
    done = subprocess.run([sys.executable, "-W", "error", str(EXAMPLE)], capture_output=True, text=True, timeout=50)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[1] == "rolled back: Bob has not so much money"
    assert sorted(lines[3:5]) == ['reminder 1 of Ada: {"pay":1500}', 'reminder 2 of Cem: {"pay":700}']
    assert lines[5] == "orders: Ada, Cem"
