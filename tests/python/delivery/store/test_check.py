"""`tickwheel store check`: what is wrong in a store is found, and nothing else (rule D20)."""

import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tickwheel.delivery import DeliveryQueue, WrongUsage, check_store

pytestmark = pytest.mark.timeout(60)

LATER_MS = 4_000_000_000_000


def refuse_dead(delivery: object) -> None:
    if delivery.message.id.startswith("dead"):  # type: ignore[attr-defined]
        raise ValueError("on purpose")


def made(store: Path) -> Path:
    """1 and 2 are delivered, 3 is a dead letter, 4 and 5 wait, 6 is cancelled; a cancel waits for its message."""
    with DeliveryQueue(store, to=refuse_dead, max_attempts=1) as queue:
        queue.put_many([{"id": "one", "delay_ms": 0}, {"id": "two", "key": "k", "delay_ms": 0}])
        queue.put("dead", delay_ms=0)
        queue.put_many([{"id": "four", "key": "k", "due": LATER_MS}, {"id": "five", "due": LATER_MS}])
        queue.put("six", due=LATER_MS)
        queue.cancel("six")
        queue.cancel("not yet")
        while len(queue) > 2:
            queue.wait_until_empty(0.01)
    with DeliveryQueue(store, to=refuse_dead):  # everything open has its row now
        pass
    return store


@pytest.fixture(scope="module")
def store_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Path]:
    data = made(tmp_path_factory.mktemp("made") / "store.db").read_bytes()

    def copy() -> Path:
        path = tmp_path_factory.mktemp("copy") / "store.db"
        path.write_bytes(data)
        return path

    return copy


def test_a_whole_store_has_no_problem__D20(store_of: Callable[[], Path]) -> None:
    checked = check_store(store_of())
    assert (checked.messages, checked.waiting, checked.problems) == (6, 2, ())


def test_a_message_that_was_given_another_due_time_is_no_problem__D16_D20(tmp_path: Path) -> None:
    store = tmp_path / "store.db"
    with DeliveryQueue(store, to=lambda _: None) as queue:
        queue.put("a", due=LATER_MS, key="k")
        for due_ms in (LATER_MS + 1, LATER_MS - 1):
            assert queue.reschedule("a", due=due_ms, key="k") == "rescheduled"
        checked = check_store(store)
        assert (checked.messages, checked.waiting, checked.problems) == (3, 1, ())
    assert check_store(store).problems == ()


def test_a_store_is_checked_while_it_delivers_and_after__D20(tmp_path: Path) -> None:
    store = tmp_path / "store.db"
    with DeliveryQueue(store, to=lambda _: None) as queue:
        queue.put_many([{"id": str(number), "delay_ms": number} for number in range(500)])
        assert check_store(store).problems == ()
        assert queue.wait_until_empty(20)
        assert check_store(store).problems == ()
    assert check_store(store).messages == 500


DAMAGES = {
    "DELETE FROM waiting WHERE seq = 4": "messages that neither wait nor have an outcome: 1, number 4",
    "INSERT INTO ledger SELECT 90, 4, 1, 0, 0, 1, 0": "messages that wait, and have an outcome: 1, number 4",
    "INSERT INTO ledger SELECT 90, seq, outcome, at_ms, 0, 1, 0 FROM ledger WHERE seq = 1":
        "messages with two outcomes: 1, number 1",
    "INSERT INTO waiting SELECT due_ms + 1, seq, lane, size, 0, NULL FROM waiting WHERE seq = 5":
        "messages that wait twice: 1, number 5",
    "DELETE FROM bodies": "messages that wait without a payload: 2, number 4, 5",
    "INSERT INTO bodies (seq, payload) VALUES (77, '1')": "payloads without a message: 1, number 77",
    "INSERT INTO bodies (seq, payload) VALUES (1, '1')": (
        "payloads that are not needed any more, and are never deleted: 1, number 1"
    ),
    "INSERT INTO waiting VALUES (1, 77, NULL, 9, 0, NULL)": "waiting rows without a message: 1, number 77",
    "INSERT INTO attempts (seq, attempts) VALUES (77, 1)": "attempts without a message: 1, number 77",
    "INSERT INTO attempts (seq, attempts) VALUES (1, 1)": "attempts of messages that do not wait: 1, number 1",
    "INSERT INTO moved VALUES (77, 1, 0)": "first due times without a message: 1, number 77",
    "INSERT INTO moved VALUES (1, 1, 0)": "first due times of messages that do not wait: 1, number 1",
    "INSERT INTO moved SELECT 4, 1, 99": "first due times in the partition of another name: 1, number 4",
    "DELETE FROM messages WHERE seq = 1": "outcomes without a message: 1, number 1",
    "INSERT INTO waits VALUES (77, 1, 'paid', NULL)": "waits for events without a message: 1, number 77",
    "INSERT INTO waits VALUES (1, 1, 'paid', NULL)": "waits for events of messages that do not wait: 1, number 1",
    "INSERT INTO waits VALUES (4, 1, 'paid', NULL)": "messages that wait for events of another key: 1, number 4",
    "UPDATE bodies SET recurrence = '' WHERE seq = 4":
        "messages whose waits for events are not those of their bodies: 1, number 4",
    "INSERT INTO occurrences VALUES (77, 78, 1, NULL, 1, 0)": "occurrences without a message: 2, number 77, 78",
    "INSERT INTO occurrences VALUES (1, 78, 1, NULL, 1, 0)": "occurrences that do not wait: 1, number 1",
    "INSERT INTO occurrences VALUES (5, 4, 1, NULL, 1, 0)": "occurrences of messages that do not recur: 1, number 4",
    "UPDATE messages SET due_ms = 9 WHERE seq = 4":
        "messages that wait for another time than they are due at: 1, number 4",
    "UPDATE waiting SET lane = 9 WHERE seq = 4": "messages that wait in the lane of another key: 1, number 4",
    "UPDATE messages SET name = 9 WHERE seq = 2":
        "messages whose digest is not that of their key and id: 1, number 2",
    "UPDATE messages SET content = x'00' WHERE seq = 4":
        "messages whose content's digest is not of the kind of their payload: 1, number 4",
    "UPDATE messages SET outcome = 2 WHERE seq = 3":
        "messages whose outcome is not that of the ledger: 1, number 3",
    "UPDATE cancels SET name = 9": "cancels whose digest is not that of their key and id: 1, number 1",
    "INSERT INTO messages SELECT 7, name, due_ms, key, id, content, NULL, NULL, NULL FROM messages WHERE seq = 4":
        "messages that were accepted though their key and id were known: 1, number 7",
    "INSERT INTO paused_keys VALUES (9, 'k', 0)": "the key 'k' is paused with a lane that is not its own",
    "UPDATE meta SET value = 'x' WHERE name = 'store_id'": "the store has no id",
    "UPDATE meta SET value = 99 WHERE name = 'near_floor_n'": "near_floor_n is 99, and the last one there is 4",
    "DROP TABLE bodies": "a table can't be read: no such table: bodies",
    "UPDATE messages SET due_ms = 'text' WHERE seq = 4": "a table can't be read: Invalid column type Text",
    "INSERT INTO runs VALUES (1, 1, 6, 6, 5, 0); CREATE TABLE run_1 (first_name INTEGER PRIMARY KEY, pairs BLOB)":
        "runs of names that lack a message: 1, number 1",
    "INSERT INTO runs VALUES (1, 90, 95, 0, 1, 0); CREATE TABLE run_1 (first_name INTEGER PRIMARY KEY, pairs BLOB)":
        "runs of names that count their messages wrong: 1, number 1",
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES)
def test_each_contradiction_is_found_and_named__D20(damage: str, store_of: Callable[[], Path]) -> None:
    store = store_of()
    with closing(sqlite3.connect(store)) as db:
        db.executescript(damage)
    problems = check_store(store).problems
    assert any(problem.startswith(DAMAGES[damage]) for problem in problems), problems


def test_a_finished_message_that_would_come_again_is_found__D20(store_of: Callable[[], Path]) -> None:
    store = store_of()
    with closing(sqlite3.connect(store)) as db:
        db.executescript(
            "UPDATE meta SET value = 1 WHERE name = 'near_floor_seq'; INSERT INTO bodies (seq, payload) VALUES (1, '1')"
        )
    assert check_store(store).problems == ("messages with an outcome that would be delivered again: 1, number 1",)


def test_damaged_pages_are_found__D20(store_of: Callable[[], Path]) -> None:
    store = store_of()
    data = bytearray(store.read_bytes())
    for page in range(4, len(data) // 4096):
        data[page * 4096 : page * 4096 + 200] = b"\xff" * 200
    store.write_bytes(data)
    [*problems] = check_store(store).problems
    assert any("malformed" in problem or "SQLite finds the file damaged" in problem for problem in problems), problems


def test_the_command_says_what_is_wrong_and_ends_with_1__D20(store_of: Callable[[], Path]) -> None:
    store = store_of()
    done = run("check", store)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{store}: messages 6, waiting 2.\nNo problem found.\n"
    with closing(sqlite3.connect(store)) as db:
        db.executescript("DELETE FROM waiting WHERE seq = 4")
    done = run("check", store)
    assert done.returncode == 1
    assert "Problem: messages that neither wait nor have an outcome: 1, number 4\n" in done.stdout
    assert "tickwheel store restore BACKUP STORE --force" in done.stdout


@pytest.mark.parametrize("what", ["check", "compact"])
def test_what_is_no_store_is_wrong_usage_and_left_alone__D20(what: str, tmp_path: Path) -> None:
    missing, other = tmp_path / "missing.db", tmp_path / "other.db"
    with closing(sqlite3.connect(other)) as db:
        db.execute("CREATE TABLE theirs (x)")
    before = other.read_bytes()
    for store, text in ((missing, "there is no store"), (other, "is not a store of tickwheel")):
        done = run(what, store)
        assert done.returncode == 2
        assert text in done.stderr
    assert (missing.exists(), other.read_bytes()) == (False, before)
    with pytest.raises(WrongUsage):
        check_store(missing)


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tickwheel", "store", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=50)
