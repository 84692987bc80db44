"""`tickwheel cancel`, `reschedule`, `requeue`, `again`, `pause`, `resume`, of a store at rest and of a server (D16)."""

import http.server
import json
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from queue import Queue
from typing import Any

import pytest
from click.testing import CliRunner, Result

from delivery.certificates import authority, signed
from delivery.serve.conftest import Served
from tickwheel.commands import tickwheel as command
from tickwheel.delivery import Delivery, DeliveryQueue, StoreView, Unavailable
from tickwheel.delivery.serve.tls import Certificates, TlsFiles
from tickwheel.delivery.serve.tokens import ALL, Right, Tokens

pytestmark = pytest.mark.timeout(120)

FAR_MS = 4_000_000_000_000
OTHER = "2096-10-02T08:06:40.000Z"
TOKEN = b"one-that-may-do-it-all"


def run(*arguments: object) -> Result:
    return CliRunner().invoke(command, [str(argument) for argument in arguments])


def refuse(_delivery: Delivery) -> None:
    raise ValueError("not now")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """With two dead letters, messages that wait, and one that is overdue."""
    path = tmp_path / "s.db"
    with DeliveryQueue(path, to=refuse, max_attempts=1) as queue:
        queue.put_many([("d1", 100_000_000_000, 1, "k"), ("d2", 100_000_000_000, 1)])
        assert queue.wait_until_empty(10)
        queue.pause()
        queue.put_many([(str(n), FAR_MS + n, n, f"user/{n % 2}") for n in range(100)])
        queue.put("late", due=100_000_000_000)
    return path


def away(_delivery: Delivery) -> None:
    raise Unavailable("not now", retry_after_s=3_600)


def test_the_status_shows_a_hostile_key_and_error_as_text__D14(tmp_path: Path) -> None:
    def hostile(_delivery: Delivery) -> None:
        raise Unavailable("\x1b[2Jgone\nnext try: never", retry_after_s=3_600)

    store = tmp_path / "s.db"
    with DeliveryQueue(store, to=hostile) as queue:
        queue.put("\u202eevil" + "i" * 500, due=100_000_000_000, key="\x1b[31mred" + "k" * 500)
        while not queue.view.status().retrying:
            time.sleep(0.005)
    shown = run("status", store)
    assert shown.exit_code == 0
    assert all(it.isprintable() for it in shown.stdout.splitlines()), (
        "an escape or an order of writing is shown as text"
    )
    (line,) = (line for line in shown.stdout.splitlines() if "31mred" in line)
    assert line.count("k") < 250
    assert "gone" in line
    assert "never" in line


def test_the_status_names_no_key_twice_after_other_keys_came_and_went__D14(tmp_path: Path) -> None:
    is_away = threading.Event()

    def sometimes(_delivery: Delivery) -> None:
        if is_away.is_set():
            raise Unavailable("not now", retry_after_s=3_600)

    with DeliveryQueue(tmp_path / "s.db", to=sometimes) as queue:
        queue.put_many([(f"a{n}", 100_000_000_000, 1, f"k{n}") for n in range(40)])
        assert queue.wait_until_empty(20)
        is_away.set()
        queue.put_many([(f"b{n}", 100_000_000_000 + n, 1, f"k{n}") for n in range(20)])
        while queue.view.status().retrying < 20:
            time.sleep(0.005)
        found = queue.view.status().in_doubt
    assert len({it.key for it in found.longest}) == len(found.longest) == 10
    assert found.is_complete


def test_a_server_of_another_version_is_told_in_one_line__D2(tmp_path: Path) -> None:
    class Older(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"at": "2026-01-01T00:00:00Z"}')

        def log_message(self, *_arguments: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Older) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        seen = run("status", f"http://127.0.0.1:{server.server_port}")
    assert (seen.exit_code, "not as a tickwheel serve of this version" in seen.stderr) == (3, True), seen.output
    assert "Traceback" not in seen.output


def test_a_failing_key_is_tried_at_once_by_the_next_run__D16(tmp_path: Path) -> None:
    store = tmp_path / "s.db"
    with DeliveryQueue(store, to=away) as queue:
        queue.put_many([("a", 100_000_000_000, 1, "k"), ("b", 100_000_000_000, 1), ("c", 100_000_000_000, 1, "other")])
        deadline_s = time.monotonic() + 20
        while queue.view.status().retrying < 3:
            assert time.monotonic() < deadline_s
    longest = json.loads(run("status", store, "--json").stdout)["in_doubt"]["longest"]
    assert {(it["key"], it["id"], it["fails"], it["last_error"]) for it in longest} == {
        ("k", "a", 1, "not now"),
        (None, "b", 1, "not now"),
        ("other", "c", 1, "not now"),
    }
    assert (run("again", store, "--key", "k").stdout, run("again", store, "--id", "b").stdout) == (
        "k: tried\n",
        "b: tried\n",
    )
    unknown = run("again", store, "--key", "none")
    assert unknown.exit_code == 1
    assert unknown.stderr == "none: not tried: nothing of this name waits for its next attempt\n"
    for options in ([], ["--key", "k", "--id", "b"]):
        wrong = run("again", store, *options)
        assert wrong.exit_code == 2
        assert "name what to try: either a key, or the id of a message without a key" in wrong.stderr
    arrived: Queue[str] = Queue()
    with DeliveryQueue(store, to=lambda it: arrived.put(it.message.id)) as queue:
        assert {arrived.get(timeout=20) for _ in range(2)} == {"a", "b"}
        assert queue.state("c", "other").value == "waiting"


def test_a_key_that_fails_and_is_paused_is_shown_so_and_is_not_tried_until_it_is_resumed__D16(tmp_path: Path) -> None:
    store = tmp_path / "s.db"
    with DeliveryQueue(store, to=away) as queue:
        queue.put_many([("a", 100_000_000_000, 1, "k"), ("b", 100_000_000_000, 1, "other")])
        while queue.view.status().retrying < 2:
            time.sleep(0.005)
        queue.pause(key="k")
        assert {it.key: it.is_paused for it in queue.view.status().in_doubt.longest} == {"k": True, "other": False}
    rows = [line.split() for line in run("status", store).stdout.splitlines()[-2:]]
    assert {row[0]: row[5] for row in rows} == {"k": "paused", "other": "in"}, rows
    answer = run("again", store, "--key", "k")
    assert (answer.exit_code, answer.stderr) == (
        1,
        "k: not tried: its key is paused, or all sending is: resume it first\n",
    )
    run("pause", store)
    assert [line.split()[5] for line in run("status", store).stdout.splitlines()[-2:]] == ["paused", "paused"]


@pytest.fixture
def hanging(tmp_path: Path) -> Iterator[tuple[Served, threading.Event]]:
    """A server whose sends hang until the end, and an event that the first one sets."""
    has_begun, is_let_go = threading.Event(), threading.Event()

    def hang(_delivery: Delivery) -> None:
        has_begun.set()
        assert is_let_go.wait(30)

    opened = Served(tmp_path, to=hang)
    yield opened, has_begun
    is_let_go.set()
    opened.close()


def test_a_cancel_of_all_of_a_key_says_what_to_do_about_the_one_that_is_being_sent__D16(
    hanging: tuple[Served, threading.Event],
) -> None:
    served, has_begun = hanging
    for n in range(3):
        served.ask("POST", "/messages", {"id": str(n), "key": "k", "delay_ms": 0})
    assert has_begun.wait(30)
    seen = run("cancel", f"http://127.0.0.1:{served.port}", "--key", "k")
    assert (seen.exit_code, seen.stdout) == (0, "cancelled 2; being sent in that moment: 1\n")
    advice = "If a message that was being sent is not accepted, it waits for its next try: cancel again.\n"
    assert seen.stderr == advice


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    opened = Served(tmp_path, to=refuse)
    for n in range(20):
        opened.ask("POST", "/messages", {"id": str(n), "key": f"user/{n % 2}", "due": FAR_MS + n, "payload": n})
    yield opened
    opened.close()


def test_a_store_that_nothing_delivers_from_is_steered_and_nothing_is_sent__D16(store: Path) -> None:
    assert run("cancel", store, "--id", "0", "--key", "user/0").stdout == "0: cancelled\n"
    again = run("cancel", store, "--id", "0", "--key", "user/0")
    assert (again.exit_code, again.stdout) == (0, "0: cancelled\n"), "it was cancelled before"
    assert run("cancel", store, "--id", "new").stdout == "new: it has not come, and is cancelled when it comes\n"
    moved = run("reschedule", store, "--id", "1", "--key", "user/1", "--due", OTHER)
    assert (moved.exit_code, moved.stdout) == (0, "1: rescheduled\n")
    late = run("reschedule", store, "--id", "0", "--key", "user/0", "--delay", "5")
    assert (late.exit_code, late.stderr) == (1, "0: not rescheduled: it is cancelled\n")
    assert run("cancel", store, "--key", "user/0").stdout == "cancelled 49; being sent in that moment: 0\n"
    assert run("cancel", store, "--key-prefix", "user/", "--due-before", FAR_MS + 50).stdout.startswith("cancelled 24;")
    assert run("requeue", store, "--id", "d1", "--key", "k").stdout == "d1: requeued\n"
    assert run("requeue", store, "--id", "d1").stderr == "d1: not requeued: no message has this name\n"
    assert run("requeue", store, "--all").stdout == "requeued 1\n"
    view = StoreView(store)
    waiting = {it.id for it in view.list().messages}
    assert waiting == {"late", "d1", "d2", "1"} | {str(n) for n in range(51, 100, 2)}
    shown = view.show("1", "user/1")
    assert shown is not None
    assert shown.due == OTHER


def test_a_paused_store_goes_on_once_it_is_resumed__D16(store: Path) -> None:
    assert run("resume", store).stdout == f"{store}: resumed.\n"
    assert StoreView(store).status().paused_since is None
    assert run("pause", store).stdout == f"{store}: paused. To go on: tickwheel resume {store}\n"
    assert StoreView(store).status().paused_since is not None


def test_a_server_is_looked_at_by_its_address_as_its_store_is__D14(served: Served, tmp_path: Path) -> None:
    served.ask("POST", "/messages", {"id": "a//b", "key": "k v", "due": FAR_MS, "payload": {"n": 10**25}})
    served.ask("POST", "/messages", {"id": "refused", "key": "k", "delay_ms": 0})
    while not served.running.view.list("waiting", key="k").messages[0].attempts:
        time.sleep(0.005)
    url = f"http://127.0.0.1:{served.port}"
    looks: list[tuple[str, ...]] = [
        ("list", "--limit", "5"),
        ("list", "--key", "user/1", "--due-from", str(FAR_MS + 5), "--json"),
        ("list", "--state", "dead"),
        ("show", "a//b", "--key", "k v"),
        ("show", "a//b", "--key", "k v", "--json"),
        ("show", "a//b"),
        ("dead",),
        ("dead", "--json"),
    ]
    for name, *more in looks:
        of_file, of_server = run(name, tmp_path / "store.db", *more), run(name, url, *more)
        seen = [(it.exit_code, it.stdout, it.stderr) for it in (of_file, of_server)]
        assert seen[0] == seen[1], name
    assert run("cancel", url, "--id", "a//b", "--key", "k v").stdout == "a//b: cancelled\n"
    assert "with a port" in run("list", "http://127.0.0.1:0").stderr


def test_a_message_that_is_being_sent_is_shown_so_by_the_server_alone__D14(
    hanging: tuple[Served, threading.Event],
) -> None:
    served, has_begun = hanging
    served.ask("POST", "/messages", {"id": "a", "delay_ms": 0})
    assert has_begun.wait(30)
    shown = run("show", f"http://127.0.0.1:{served.port}", "a").stdout
    assert "state:            delivering" in shown.splitlines()


def test_a_server_is_steered_by_its_address__D16(served: Served) -> None:
    url = f"http://127.0.0.1:{served.port}"
    assert run("cancel", url, "--id", "0", "--key", "user/0").stdout == "0: cancelled\n"
    assert run("reschedule", url, "--id", "1", "--key", "user/1", "--due", OTHER).stdout == "1: rescheduled\n"
    assert run("cancel", url, "--key", "user/0").stdout == "cancelled 9; being sent in that moment: 0\n"
    assert run("cancel", url, "--all").stdout == "cancelled 10; being sent in that moment: 0\n"
    assert run("requeue", url, "--id", "1", "--key", "user/1").stderr == "1: not requeued: it is cancelled\n"
    none = run("requeue", url, "--all")
    assert (none.stdout, "a record that could not be read" in none.stderr) == ("requeued 0\n", True)
    assert run("pause", url, "--key", "a b").stdout == (
        f"{url}: the key 'a b' is paused. To go on: tickwheel resume {url} --key 'a b'\n"
    )
    assert run("resume", url, "--key", "a b").stdout == f"{url}: the key 'a b' is resumed.\n"
    assert run("pause", url.upper()).exit_code == 0
    assert served.running.engine.is_paused
    assert run("resume", url + "/").exit_code == 0
    assert not served.running.engine.is_paused


def test_a_server_with_tls_and_tokens_is_steered_with_them__D12_D16(tmp_path: Path) -> None:
    ca = authority(tmp_path)
    served = Served(
        tmp_path,
        tokens=Tokens({TOKEN: ALL, b"one-that-may-only-read": Right.READ, b"one-that-may-only-produce": Right.PRODUCE}),
        certificates=Certificates(TlsFiles(*signed(ca))),
    )
    token = tmp_path / "token"
    token.write_bytes(TOKEN)
    token.chmod(0o600)
    url = f"https://localhost:{served.port}"
    try:
        seen = run("cancel", url, "--id", "a", "--tls-ca", ca.cert, "--token-file", token)
        assert (seen.exit_code, seen.stdout) == (0, "a: it has not come, and is cancelled when it comes\n")
        none = run("cancel", url, "--id", "a", "--tls-ca", ca.cert)
        assert (none.exit_code, "answers 401: no token is given" in none.stderr) == (2, True)
        token.write_bytes(b"one-that-may-only-read")
        weak = run("cancel", url, "--id", "a", "--tls-ca", ca.cert, "--token-file", token)
        assert (weak.exit_code, "the request needs control" in weak.stderr) == (2, True)
        status = run("status", url, "--tls-ca", ca.cert, "--token-file", token)
        assert (status.exit_code, "keys in doubt:    0\n" in status.stdout) == (0, True), status.output
        token.write_bytes(b"one-that-may-only-produce")
        blind = run("status", url, "--tls-ca", ca.cert, "--token-file", token)
        assert (blind.exit_code, "the request needs read" in blind.stderr) == (2, True), blind.output
        other = run("cancel", url, "--id", "a", "--token-file", token)
        assert (
            other.exit_code,
            "by no trusted authority: name its authority's file by --tls-ca" in " ".join(other.stderr.split()),
        ) == (3, True)
    finally:
        served.close()


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("cancel",), "Missing argument 'TARGET'"),
        (("status",), "Missing argument 'TARGET'"),
        (
            ("status", "none.db", "--token-file", __file__),
            "none.db is a file: a token and certificates are for a server",
        ),
        (("status", "localhost:7400"), "an address begins with http:// or https://"),
        (("cancel", "none.db", "--id", "a"), "there is no store none.db"),
        (("cancel", "http://127.0.0.1:1/x?y", "--id", "a"), "is no address of a tickwheel serve"),
        (("cancel", "http://u:p@127.0.0.1:1", "--id", "a"), "has a user, which is not sent"),
        (("cancel", "http://127.0.0.1:99999", "--id", "a"), "with a port from 1 to 65535"),
        (("pause", "http://127.0.0.1:0"), "with a port from 1 to 65535"),
        (("pause", "http://[::1"), "is no address of a tickwheel serve: Invalid IPv6 URL"),
        (("pause", "http://127.0.0.1:x"), "with a port from 1 to 65535"),
        (("cancel", "localhost:7400", "--id", "a"), "an address begins with http:// or https://"),
        (("resume", "ftp://localhost:7400"), "an address begins with http:// or https://"),
        (("cancel", "STORE"), "or --all for every one: neither is given"),
        (("cancel", "STORE", "--due-from", FAR_MS, "--due-before", FAR_MS - 1), "which is earlier"),
        (("list", "STORE", "--key", ""), "'--key': it is empty"),
        (("show", "STORE", "a", "--key", ""), "'--key': it is empty"),
        (("pause", "STORE", "--key", ""), "'--key': it is empty"),
        (("cancel", "STORE", "--id", "a", "--key", ""), "'--key': it is empty"),
        (("requeue", "STORE", "--key-prefix", ""), "'--key-prefix': it is empty"),
        (("reschedule", "STORE", "--id", "", "--delay", "5"), "'--id': it is empty"),
        (("cancel", "STORE", "--id", "a", "--all"), "--id names one message"),
        (("cancel", "STORE", "--due-from", "5"), "looks like seconds"),
        (("reschedule", "STORE", "--id", "a"), "either --due TIME or --delay DURATION"),
        (("reschedule", "STORE", "--id", "a", "--due", "5"), "looks like seconds"),
        (("requeue", "STORE", "--token-file", "STORE"), "a token and certificates are for a server"),
        (("cancel", "http://127.0.0.1:1", "--id", "a", "--tls-key", "STORE"), "need --tls-ca FILE"),
    ],
)
def test_wrong_usage_is_told__D2(store: Path, arguments: tuple[object, ...], error: str) -> None:
    seen = run(*(str(store) if argument == "STORE" else argument for argument in arguments))
    assert (seen.exit_code, error in " ".join(seen.stderr.split())) == (2, True), seen.stderr


def test_a_store_that_is_in_use_is_steered_by_its_server__D9_D16(store: Path) -> None:
    with DeliveryQueue(store, to=refuse):
        seen = run("cancel", store, "--id", "a")
    assert seen.exit_code == 2
    assert "works with" in seen.stderr
    assert "name the address of its tickwheel serve" in " ".join(seen.stderr.split())


def test_letters_that_a_crash_left_stay_for_the_deliverer__D2_D16(store: Path) -> None:
    def written() -> int:
        with closing(sqlite3.connect(store)) as db:
            found: int = db.execute("SELECT value FROM meta WHERE name = 'letters_written'").fetchone()[0]
            return found

    with closing(sqlite3.connect(store)) as db, db:
        db.execute("UPDATE meta SET value = 1 WHERE name = 'letters_written'")
    seen = run("cancel", store, "--id", "0", "--key", "user/0")
    assert (seen.exit_code, "did not write out (1)" in " ".join(seen.stderr.split())) == (2, True), seen.stderr
    assert written() == 1
    told: list[str] = []
    with DeliveryQueue(store, to=refuse, on_dead_letter=lambda letter: told.append(letter.reason)):
        pass
    assert len(told) == 1
    assert run("cancel", store, "--id", "0", "--key", "user/0").exit_code == 0


class _Odd(http.server.BaseHTTPRequestHandler):
    def do_DELETE(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"<html>")

    def log_message(self, *_: Any) -> None:
        pass


def test_what_is_no_server_of_tickwheel_is_told__D16() -> None:
    with http.server.HTTPServer(("127.0.0.1", 0), _Odd) as odd:
        threading.Thread(target=odd.handle_request, daemon=True).start()
        seen = run("cancel", f"http://127.0.0.1:{odd.server_port}", "--id", "a")
    assert (seen.exit_code, "not as a tickwheel serve does" in seen.stderr) == (3, True)
    seen = run("cancel", f"http://127.0.0.1:{odd.server_port}", "--id", "a")
    assert (seen.exit_code, "can't be asked: " in seen.stderr) == (3, True)
