"""`kill -9` between a destination's change or removal and its sends: an answered change is true for the next send, and
each accepted message came, or is a dead letter (D5, D23).

The receiver's requests and the store's dead letters decide. Each request has the version of the settings it was sent
with, as a header, and each message the version that was answered when it was put.
"""

import http.client
import json
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from delivery.serve.conftest import Server, start
from delivery.soak import test_kill

__all__ = ["start"]
pytestmark = pytest.mark.timeout(1200)
NAMES = ("a", "b", "c")


class Came(NamedTuple):
    name: str
    version: int
    message: dict[str, Any]


class Customer:
    """What is known of a destination: versions that were answered, and whether the last answer set or removed it."""

    def __init__(self) -> None:
        self.version = 0
        self.is_set = False
        self.is_known = True  # not after a change without an answer

    def changes(self, *, to: bool) -> None:
        self.is_set, self.is_known = to, True


def test_a_change_or_a_removal_that_was_answered_holds_whatever_kills__D5_D23(
    tmp_path: Path, start: Callable[..., Server], size: test_kill.Size, seed: int
) -> None:
    came: list[Came] = []

    class Receiver(test_kill.Taker):
        def takes(self, one: dict[str, Any]) -> None:
            came.append(Came(self.path.strip("/"), int(self.headers["x-version"]), one))

    with test_kill.Server(Receiver) as receiver:
        threading.Thread(target=receiver.serve_forever).start()
        try:
            accepted = live(tmp_path, start, receiver, random.Random(seed), lives=size(8, 100))
        finally:
            receiver.shutdown()
    check(came, *accepted)


def live(
    folder: Path, start: Callable[..., Server], receiver: test_kill.Server, chance: random.Random, lives: int
) -> tuple[set[str], set[str]]:
    """The ids of accepted messages, and of dead letters at the end."""

    def begin() -> Server:
        options = ("--to", "named", "--allow-address", "127.0.0.1", "--dead-letters", str(folder / "dead.ndjson"))
        return start(folder / "store.db", *options).listening()

    customers, accepted, count = {name: Customer() for name in NAMES}, set[str](), 0
    url = f"http://127.0.0.1:{receiver.server_port}"
    for _ in range(lives):
        server = begin()
        ends = threading.Timer(chance.uniform(0.05, 0.6), server.kill)
        ends.start()
        while True:
            name = chance.choice(NAMES)
            it, what = customers[name], chance.random()
            try:
                if what < 0.15 or (not it.is_set and it.is_known):
                    it.is_known = False
                    settings = {"url": f"{url}/{name}", "headers": {"x-version": str(it.version + 1)}}
                    assert server.ask("PUT", f"/destinations/{name}", settings).status in (200, 201)
                    it.version += 1
                    it.changes(to=True)
                elif what < 0.2 and it.is_known:
                    it.is_known = False
                    assert server.ask("DELETE", f"/destinations/{name}?messages=dead").status == 200
                    it.changes(to=False)
                elif it.is_known:
                    count += 1
                    record: dict[str, Any] = {"id": str(count), "key": name, "delay_ms": chance.choice((0, 5, 50, 300))}
                    record |= {"payload": {"answered": it.version}, "destination": name}
                    assert server.ask("POST", "/messages", record).status == 201
                    accepted.add(str(count))
                else:
                    told = server.ask("GET", f"/destinations/{name}")
                    it.is_set, it.is_known = told.status == 200, True
                    if it.is_set:
                        it.version = int(told.body["settings"]["headers"]["x-version"])
            except (http.client.HTTPException, OSError):
                break
        ends.join()
        server.process.wait()
        receiver.settle()
    server = begin()
    while server.ask("GET", "/status").body["waiting"]:
        time.sleep(0.02)
    dead, after = set[str](), ""
    while True:
        page = server.ask("GET", f"/dead?limit=1000{after}").body
        dead |= {json.loads(letter["record"])["id"] for letter in page["letters"]}
        if not page["next"]:
            break
        after = f"&after={page['next']}"
    server.kill()
    receiver.settle()
    return accepted, dead


def check(came: list[Came], accepted: set[str], dead: set[str]) -> None:
    stale = [one for one in came if one.version < one.message["payload"]["answered"]]
    assert stale == [], "sent with settings from before a change that was answered"
    assert [one for one in came if one.name != one.message["key"]] == [], "sent to another destination"
    arrived = {one.message["id"] for one in came}
    assert accepted - arrived - dead == set(), "lost"
    again = [one.message["id"] for one in came if not one.message["redelivered"]]
    assert len(again) == len(set(again)), "came again without the mark"
    print(f"{len(accepted):,} messages, {len(arrived):,} came, {len(dead):,} dead letters")
    assert arrived
    assert dead
