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


def _user() -> pwd.struct_passwd | None:
    """The user that runs the server, which refuses to run as root."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise RuntimeError("root can't run PostgreSQL, and there is neither a user postgres nor nobody")


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """`postgresql://...` of an empty database, where the user has all rights; the password is `not-for-eyes`."""
    initdb, pg_ctl = _program("initdb"), _program("pg_ctl")
    if initdb is None or pg_ctl is None:
        problem = "there is no PostgreSQL server: install postgresql, or put initdb and pg_ctl on PATH"
        if os.environ.get("CI") == "true":
            pytest.fail(problem)
        pytest.skip(problem)
    user = _user()
    as_user: dict[str, object] = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []} if user else {}
    folder = Path(tempfile.mkdtemp(prefix="tw-pg-"))  # short, because a socket's path may have at most 107 bytes
    data = folder / "data"
    secret = folder / "secret"

    def run(*command: str) -> None:
        said = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        done: subprocess.CompletedProcess[str] = subprocess.run(command, cwd=folder, **said, **as_user)  # type: ignore[call-overload]
        assert done.returncode == 0, done.stdout

    try:
        secret.write_text("not-for-eyes")
        if user is not None:
            for path in (folder, secret):
                os.chown(path, user.pw_uid, user.pw_gid)
        run(initdb, "-D", str(data), "-U", "tick", "-A", "scram-sha-256", f"--pwfile={secret}", "-EUTF8", "--no-sync")
        options = f"-c listen_addresses='' -k {folder} -c fsync=off -c max_connections=20"
        run(pg_ctl, "-D", str(data), "-w", "-t", "60", "-l", str(folder / "log"), "-o", options, "start")
        try:
            yield f"postgresql://tick:not-for-eyes@/postgres?host={folder}"
        finally:
            run(pg_ctl, "-D", str(data), "-w", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder)
