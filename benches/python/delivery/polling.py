"""Delivery as it is usually done: a table with an index on the due time, which is asked every so many milliseconds."""

import json
import sqlite3
import threading
import time
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Self


class Table:
    """Messages go into a table, and out of it into a file; one thread asks it."""

    def __init__(self, folder: Path, every_ms: int) -> None:
        self._db = sqlite3.connect(folder / "store.db", isolation_level=None, check_same_thread=False)
        self._db.executescript("""
            PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
            CREATE TABLE messages (id TEXT PRIMARY KEY, key TEXT, due_ms INTEGER, payload TEXT);
            CREATE INDEX by_due ON messages (due_ms);
        """)
        self._out = (folder / "out").open("ab", buffering=0)
        self._every_s = every_ms / 1000
        self._lock, self._stop = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._deliver)

    def submit(self, lines: bytes) -> "Future[Any]":
        """Accept lines of NDJSON in one transaction."""
        records = [json.loads(line) for line in lines.splitlines()]
        rows = [(it["id"], it["key"], it["due"], json.dumps(it["payload"])) for it in records]
        with self._lock:
            self._db.execute("BEGIN")
            self._db.executemany("INSERT OR IGNORE INTO messages VALUES (?, ?, ?, ?)", rows)
            self._db.execute("COMMIT")
        done: Future[Any] = Future()
        done.set_result(None)
        return done

    def _deliver(self) -> None:
        while not self._stop.wait(self._every_s):
            with self._lock:
                due = "FROM messages WHERE due_ms <= ?"
                now_ms = time.time_ns() // 1_000_000
                rows = self._db.execute(f"SELECT id, key, due_ms, payload {due} ORDER BY due_ms", (now_ms,)).fetchall()
                if not rows:
                    continue
                lines = []
                for id_, key, due_ms, payload in rows:
                    line = {"id": id_, "key": key, "payload": payload}
                    lines.append(json.dumps(line | {"lateness_ms": time.time_ns() / 1e6 - due_ms}))
                self._out.write(("\n".join(lines) + "\n").encode())
                self._db.execute(f"DELETE {due}", (now_ms,))

    def wait_until_empty(self) -> None:
        """Wait until all is delivered."""
        while True:
            with self._lock:
                if self._db.execute("SELECT count(*) FROM messages").fetchone() == (0,):
                    return
            time.sleep(0.01)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._db.close()
        self._out.close()
