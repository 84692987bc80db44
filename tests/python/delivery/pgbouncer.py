"""pgbouncer between a client and the PostgreSQL server of the tests, on a Unix socket in a folder of its own."""

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import psycopg
import pytest

from delivery.postgres_server import PostgresServer, unprivileged_user

Mode = Literal["session", "transaction"]

_SETTINGS = """
[databases]
postgres = host={server} dbname=postgres user=tick password=not-for-eyes

[pgbouncer]
listen_addr =
listen_port = 6432
unix_socket_dir = {folder}
auth_type = scram-sha-256
auth_file = {folder}/users
pool_mode = {mode}
default_pool_size = 10
{more}
"""


@contextmanager
def pgbouncer(server: PostgresServer, mode: Mode, more: str = "") -> Iterator[str]:
    """Yields `postgresql://...` of the server's database by way of a pooler in this mode."""
    program = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
    if program is None:
        problem = "there is no pgbouncer: install it, or put it on PATH"
        if os.environ.get("CI") == "true":
            pytest.fail(problem)
        pytest.skip(problem)
    user = unprivileged_user()
    folder = Path(tempfile.mkdtemp(prefix="tw-pool-"))  # short: a socket's path may have at most 107 bytes
    (folder / "users").write_text('"tick" "not-for-eyes"\n')
    (folder / "settings").write_text(_SETTINGS.format(server=server.folder, folder=folder, mode=mode, more=more))
    as_user: dict[str, object] = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []} if user else {}
    if user is not None:
        for path in (folder, folder / "users", folder / "settings"):
            os.chown(path, user.pw_uid, user.pw_gid)
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([program, folder / "settings"], cwd=folder, stdout=log, stderr=log, **as_user)  # type: ignore[call-overload]
    try:
        url = f"postgresql://tick:not-for-eyes@/postgres?host={folder}&port=6432"
        until_s = time.monotonic() + 60
        while True:
            try:
                psycopg.connect(url).close()
                break
            except psycopg.OperationalError:
                assert process.poll() is None, (folder / "log").read_text()
                assert time.monotonic() < until_s, (folder / "log").read_text()
                time.sleep(0.01)
        yield url
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(folder)
