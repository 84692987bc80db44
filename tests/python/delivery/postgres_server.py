"""A real PostgreSQL server for the session, in a folder of its own, on a Unix socket that no other user can reach."""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


def _program(name: str) -> str | None:
    newest_first = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), reverse=True)
    return str(newest_first[0]) if newest_first else shutil.which(name)


def unprivileged_user() -> pwd.struct_passwd | None:
    """The user that runs the server, which refuses to run as root."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise RuntimeError("root can't run PostgreSQL, and there is neither a user postgres nor nobody")


class PostgresServer:
    """A server with an empty database, where the user has all rights; the password is `not-for-eyes`."""

    def __init__(self, initdb: str, pg_ctl: str) -> None:
        user = unprivileged_user()
        self._as_user: dict[str, object] = (
            {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []} if user else {}
        )
        self.folder = Path(tempfile.mkdtemp(prefix="tw-pg-"))  # short: a socket's path may have at most 107 bytes
        self._pg_ctl = (pg_ctl, "-D", str(self.folder / "data"), "-w")
        self.url = f"postgresql://tick:not-for-eyes@/postgres?host={self.folder}"
        secret = self.folder / "secret"
        secret.write_text("not-for-eyes")
        if user is not None:
            for path in (self.folder, secret):
                os.chown(path, user.pw_uid, user.pw_gid)
        data = str(self.folder / "data")
        self._run(initdb, "-D", data, "-U", "tick", "-A", "scram-sha-256", f"--pwfile={secret}", "-EUTF8", "--no-sync")

    def start(self) -> None:
        """Start it, and return once it answers."""
        options = f"-c listen_addresses='' -k {self.folder} -c fsync=off -c max_connections=20"
        self._run(*self._pg_ctl, "-t", "60", "-l", str(self.folder / "log"), "-o", options, "start")

    def stop(self, how: str = "immediate") -> None:
        """Stop it: `fast`, which ends all connections, or `immediate`, as in a crash."""
        self._run(*self._pg_ctl, "-m", how, "stop")

    def remove(self) -> None:
        """Delete all of it."""
        shutil.rmtree(self.folder)

    def _run(self, *command: str) -> None:
        said = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        done: subprocess.CompletedProcess[str] = subprocess.run(command, cwd=self.folder, **said, **self._as_user)  # type: ignore[call-overload]
        assert done.returncode == 0, done.stdout


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """It runs; a test that stops it starts it again."""
    initdb, pg_ctl = _program("initdb"), _program("pg_ctl")
    if initdb is None or pg_ctl is None:
        problem = "there is no PostgreSQL server: install postgresql, or put initdb and pg_ctl on PATH"
        if os.environ.get("CI") == "true":
            pytest.fail(problem)
        pytest.skip(problem)
    server = PostgresServer(initdb, pg_ctl)
    try:
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        server.remove()


@pytest.fixture(scope="session")
def postgres_url(postgres_server: PostgresServer) -> str:
    """`postgresql://...` of its database."""
    return postgres_server.url
