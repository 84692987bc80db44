"""SIGHUP reads the headers and secrets of a webhook again (rule D12)."""

import base64
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from delivery.webhook_receiver import Receiver, signature

from .conftest import Server

pytestmark = pytest.mark.timeout(60)
Start = Callable[..., Server]
OLD, NEW = (f"whsec_{base64.b64encode(bytes([n]) * 32).decode()}" for n in (7, 8))


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """The secrets and the token."""
    secrets, token = tmp_path / "secrets", tmp_path / "token"
    for path, text in ((secrets, OLD), (token, "Bearer old")):
        path.touch(0o600)
        path.write_text(text)
    return secrets, token


def served(start: Start, folder: Path, url: str, files: tuple[Path, Path]) -> Server:
    more = ["--webhook-secret-file", str(files[0]), "--webhook-header", f"Authorization: file:{files[1]}"]
    return start(folder / "s.db", "--to", url, *more).listening()


def delivered(server: Server, receiver: Receiver, id_: str) -> tuple[bool, bool, str]:
    """Whether it was signed by the old secret, and the new one; and its token."""
    before = len(receiver.requests)
    assert server.ask("POST", "/messages", {"id": id_, "due": 1700000000005}).status == 201
    while len(receiver.requests) == before:
        pass
    headers, body = receiver.requests[-1]
    signed = headers["webhook-signature"].split(" ")
    return signature(OLD, headers, body) in signed, signature(NEW, headers, body) in signed, headers["authorization"]


def test_what_is_read_again_is_for_the_next_delivery__D12(
    tmp_path: Path,
    receiver: Receiver,
    start: Start,
    files: tuple[Path, Path],
) -> None:
    server = served(start, tmp_path, receiver.url, files)
    assert delivered(server, receiver, "a") == (True, False, "Bearer old")
    files[0].write_text(f"{NEW}\n{OLD}\n")
    files[1].write_text("Bearer new\n")
    assert delivered(server, receiver, "b") == (True, False, "Bearer old")
    server.process.send_signal(signal.SIGHUP)
    assert server.says() == "the webhook's headers and secrets were read again\n"
    assert delivered(server, receiver, "c") == (True, True, "Bearer new")


@pytest.mark.parametrize(
    ("which", "text", "told"),
    [
        (0, "whsec_s3cret", "a secret of webhooks is whsec_ and 24 to 64 bytes in base64"),
        (0, "", "has no secret"),
        (0, None, "can't be read: No such file or directory"),
        (1, "s3cret\x00", "the header 'Authorization' has a value with a line end"),
    ],
)
def test_a_file_that_is_broken_when_it_is_read_again_changes_nothing__D12(
    which: int,
    text: str | None,
    told: str,
    tmp_path: Path,
    receiver: Receiver,
    start: Start,
    files: tuple[Path, Path],
) -> None:
    server = served(start, tmp_path, receiver.url, files)
    files[1 - which].write_text("Bearer new" if which == 0 else NEW)
    files[which].unlink() if text is None else files[which].write_text(text)
    server.process.send_signal(signal.SIGHUP)
    line = server.says()
    assert told in line
    assert line.endswith("the webhook's headers and secrets that were read before are still in use\n")
    assert "s3cret" not in line
    assert delivered(server, receiver, "a") == (True, False, "Bearer old")
