"""Nothing but the engine opens a store in the deliverer's process: another SQLite library would drop its locks (D9)."""

import ast
import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

import tickwheel
from tickwheel.delivery import DeliveryQueue, WrongUsage

SOURCES = Path(tickwheel.__file__).parent


def imported(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {name.name.partition(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.partition(".")[0])
    return found


def test_python_s_sqlite_is_used_for_one_destination_an_outbox_and_a_temporary_database_alone__D9() -> None:
    users = {str(path.relative_to(SOURCES)) for path in SOURCES.rglob("*.py") if "sqlite3" in imported(path)}
    of_both = "delivery/sinks/interrupting.py"  # interrupts the statements of the next two
    assert users == {"analysis/local.py", of_both, "delivery/outbox/sqlite.py", "delivery/sinks/sqlite.py"}


LOOK = """
import json, sys
from pathlib import Path

store = Path(sys.argv[1])
opened = []

def hook(event, arguments):
    if event in ("open", "sqlite3.connect", "os.open") and Path(str(arguments[0])).name.startswith(store.name):
        opened.append([event, str(arguments[0])])

from tickwheel.delivery import DeliveryQueue
from tickwheel.delivery.report import write_report
from tickwheel.delivery.serve.metrics import renderer
sys.addaudithook(hook)
with DeliveryQueue(store, to=lambda delivery: None) as queue:
    queue.put("a", due=4_000_000_000_000)
    write_report(store, store.with_name("page.html"), title="while it delivers")
    assert b"tickwheel_accepted_messages_total 1.0" in renderer(queue._running)("")[0]
    queue.summary, len(queue), queue.state("a")
    queue.put("b", due=4_000_000_000_000)
print(json.dumps(opened))
"""


def test_report_and_metrics_read_an_open_store_through_the_engine__D9(tmp_path: Path) -> None:
    command = [sys.executable, "-c", LOOK, str(tmp_path / "store.db")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == []


@pytest.mark.parametrize("to", ["sqlite:{}?table=t", "file:{}"])
@pytest.mark.parametrize("by_link", [False, True])
def test_an_open_store_is_no_destination__D9(tmp_path: Path, to: str, *, by_link: bool) -> None:
    store, name = tmp_path / "store.db", tmp_path / "store.db"
    DeliveryQueue(store, to=lambda delivery: None).close()
    if by_link:
        name = tmp_path / "link.db"
        name.symlink_to(store)
    with pytest.raises(WrongUsage, match="is the store of a queue in this process: name another file"):
        DeliveryQueue(store, to=to.format(name))
    with closing(sqlite3.connect(store)) as db:
        assert db.execute("SELECT count(*) FROM sqlite_master WHERE name = 't'").fetchall() == [(0,)]
    with (
        DeliveryQueue(store, to=lambda delivery: None) as queue,
        pytest.raises(WrongUsage, match="is the store of a queue in this process: name another file"),
    ):
        DeliveryQueue(tmp_path / "other.db", to=to.format(name))
    assert queue.summary.accepted == 0
