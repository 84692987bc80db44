"""The servers that the queues need, each in a folder of its own on the disk, with what its installation sets.

PostgreSQL syncs each commit, Redis its log of commands as it is asked to. Both answer on this machine alone.
"""

import os
import pwd
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Literal

WITHIN_S: Final = 30

Sync = Literal["everysec", "always"]


def program(name: str) -> str | None:
    """The path of a program of PostgreSQL, which Debian keeps off PATH, or of Redis."""
    newest_first = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), reverse=True)
    return str(newest_first[0]) if newest_first else shutil.which(name)


def missing(name: str) -> str:
    """What of a server is not installed; empty if nothing."""
    needed = {"postgresql": ("initdb", "pg_ctl"), "redis": ("redis-server",)}[name]
    return " and ".join(one for one in needed if program(one) is None)


@contextmanager
def postgresql(folder: Path) -> Iterator[str]:
    """The URL of an empty database. It does not run as root, so root lends it the folder."""
    user: dict[str, Any] = {}
    folder.mkdir()
    if os.geteuid() == 0:
        account = pwd.getpwnam("postgres")
        user = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
        os.chown(folder, account.pw_uid, account.pw_gid)
    data, port = folder / "data", free_port()
    run(program("initdb"), "-D", data, "-U", "queue", "-A", "trust", "-EUTF8", "--no-sync", **user)
    options = f"-c listen_addresses=127.0.0.1 -p {port} -k ''"
    control = (program("pg_ctl"), "-D", data, "-w", "-t", WITHIN_S)
    run(*control, "-l", folder / "log", "-o", options, "start", **user)
    try:
        yield f"postgresql://queue@127.0.0.1:{port}/postgres"
    finally:
        run(*control, "-m", "immediate", "stop", **user)


@contextmanager
def redis(folder: Path, sync: Sync) -> Iterator[int]:
    """The port of an empty one."""
    folder.mkdir()
    port = free_port()
    options = ("--bind", "127.0.0.1", "--port", port, "--dir", folder, "--appendonly", "yes", "--appendfsync", sync)
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([str(program("redis-server")), *map(str, options)], stdout=log, stderr=log)
    try:
        end_s = time.monotonic() + WITHIN_S
        while not answers(port):
            if time.monotonic() > end_s or process.poll() is not None:
                raise RuntimeError(f"Redis does not answer: {(folder / 'log').read_text()}")
            time.sleep(0.02)
        yield port
    finally:
        process.kill()
        process.wait()


def answers(port: int) -> bool:
    """Whether somebody listens."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def free_port() -> int:
    """One that nobody uses now."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def run(*command: object, **how: Any) -> None:
    """Run to the end, where every user may be. Raises RuntimeError with what was printed."""
    done = subprocess.run([*map(str, command)], cwd="/", capture_output=True, text=True, check=False, **how)
    if done.returncode:
        raise RuntimeError(f"{command[0]} failed: {done.stdout}{done.stderr}")
