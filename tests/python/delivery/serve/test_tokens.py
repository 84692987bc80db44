"""The file of tokens, and what each token may do (rule D12)."""

import hashlib
import hmac
import logging
from pathlib import Path

import pytest

from tickwheel.delivery import WrongUsage
from tickwheel.delivery.serve.access import Access, Refusal
from tickwheel.delivery.serve.tokens import ALL, Right, Tokens, names_of, read_token, read_tokens

TOKEN = b"not-for-other-eyes"


def token_file(folder: Path, content: bytes, mode: int = 0o600) -> Path:
    path = folder / "token"
    path.write_bytes(content)
    path.chmod(mode)
    return path


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n", b"  \n\n# the shop\n"])
def test_a_token_alone_on_its_line_may_do_everything__D12(end: bytes, tmp_path: Path) -> None:
    path = token_file(tmp_path, TOKEN + end)
    assert read_tokens(path).grant_of(TOKEN) == (ALL, {})
    assert read_token(path) == TOKEN


def test_a_file_may_begin_with_a_byte_order_mark__D12(tmp_path: Path) -> None:
    assert read_tokens(token_file(tmp_path, b"\xef\xbb\xbf" + TOKEN)).grant_of(TOKEN) == (ALL, {})


def test_each_line_has_a_token_and_its_rights__D12(tmp_path: Path) -> None:
    text = b"""# who may what
the-shop-produces  produce       # the shop
the-operators-look\tread, control
spark-hands-off-alone hand-off
the-old-form-of-a-word HAND-OFF,read
everything-is-allowed
#a-comment-of-a-token read
"""
    tokens = read_tokens(token_file(tmp_path, text))
    assert tokens.grant_of(b"the-shop-produces") == (Right.PRODUCE, {})
    assert tokens.grant_of(b"the-operators-look") == (Right.READ | Right.CONTROL, {})
    assert tokens.grant_of(b"spark-hands-off-alone") == (Right.HAND_OFF, {})
    assert tokens.grant_of(b"the-old-form-of-a-word") == (Right.HAND_OFF | Right.READ, {})
    assert tokens.grant_of(b"everything-is-allowed") == (ALL, {})
    assert [tokens.grant_of(each) for each in (b"#a-comment-of-a-token", b"produce", b"", b"# who")] == [None] * 4


@pytest.mark.parametrize(
    "content",
    [b"fifteen-letters", b"x" * 4097, b"\xff" * 20, b"the-shop-produces\nshorter", "the-shöp-produces".encode()],
)
def test_a_token_that_is_none_is_refused_by_its_line__D12(content: bytes, tmp_path: Path) -> None:
    with pytest.raises(WrongUsage, match=r"line [12], has no usable token: write a token of 16 to 4,096") as refused:
        read_tokens(token_file(tmp_path, content))
    assert content.split()[-1].decode(errors="replace") not in str(refused.value)


@pytest.mark.parametrize("content", [b"", b"\n", b"# only-a-comment-here\n"])
def test_a_file_without_a_token_is_refused__D12(content: bytes, tmp_path: Path) -> None:
    with pytest.raises(WrongUsage, match="has no token: write a token"):
        read_tokens(token_file(tmp_path, content))


def test_a_right_that_is_none_is_refused_by_its_place_and_not_shown__D12(tmp_path: Path) -> None:
    path = token_file(tmp_path, TOKEN + b" read,not-for-other-eyes-either")
    with pytest.raises(
        WrongUsage, match=r"line 1: right 2 is not known: .* produce, control, read, hand-off and destinations"
    ) as refused:
        read_tokens(path)
    assert "eyes" not in str(refused.value)


def test_a_token_that_is_there_twice_is_refused_with_both_lines__D12(tmp_path: Path) -> None:
    with pytest.raises(WrongUsage, match="line 3: the token of line 1 again") as refused:
        read_tokens(token_file(tmp_path, TOKEN + b" read\n\n" + TOKEN + b" produce\n"))
    assert "eyes" not in str(refused.value)


def test_a_client_has_one_token__D12(tmp_path: Path) -> None:
    with pytest.raises(WrongUsage, match="has 2 tokens: a client sends one"):
        read_token(token_file(tmp_path, TOKEN + b"\nanother-one-of-them"))


@pytest.mark.parametrize("mode", [0o604, 0o644, 0o601])
def test_a_token_that_every_user_can_read_is_a_warning__D12(
    mode: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = token_file(tmp_path, TOKEN, mode)
    assert read_tokens(path).grant_of(TOKEN) == (ALL, {})
    [record] = caplog.records
    assert (record.name, record.levelno) == ("tickwheel.delivery", logging.WARNING)
    assert record.getMessage() == (
        f"--token-file {path} can be read by every user of this machine: run chmod 600 {path}"
    )


@pytest.mark.parametrize("mode", [0o600, 0o440])
def test_a_token_that_only_some_can_read_is_none__D12(
    mode: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    read_tokens(token_file(tmp_path, TOKEN, mode))
    assert caplog.records == []


def test_a_file_that_every_user_can_write_is_refused__D12(tmp_path: Path) -> None:
    with pytest.raises(WrongUsage, match="can be written by every user of this machine: run chmod 600"):
        read_tokens(token_file(tmp_path, TOKEN, 0o602))


def test_a_token_file_that_is_not_there_is_wrong_usage__D12(tmp_path: Path) -> None:
    with pytest.raises(WrongUsage, match="can't be read: No such file"):
        read_tokens(tmp_path / "token")


def test_a_token_is_compared_with_all_others_in_constant_time__D12(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[bytes, bytes]] = []
    compare_digest = hmac.compare_digest

    def compare(a: bytes, b: bytes) -> bool:
        compared.append((a, b))
        return compare_digest(a, b)

    monkeypatch.setattr(hmac, "compare_digest", compare)
    others = {b"the first of all": Right.READ, TOKEN: ALL, b"the last of all!": Right.READ}
    assert Tokens(others).grant_of(TOKEN) == (ALL, {})
    digest = hashlib.sha256(TOKEN).digest()
    assert compared == [(hashlib.sha256(each).digest(), digest) for each in others]


def test_no_token_can_be_seen_in_what_is_kept__D12() -> None:
    tokens = Tokens({TOKEN: ALL})
    assert "eyes" not in repr(tokens) + repr(vars(tokens)) + repr(vars(Access(tokens)))


@pytest.mark.parametrize("right", [Right.PRODUCE, Right.CONTROL, Right.READ, Right.HAND_OFF])
def test_a_token_without_the_right_is_known_and_refused__D12(right: Right) -> None:
    access = Access(Tokens({TOKEN: ALL & ~right}))
    refusal = access.granted([b"Bearer " + TOKEN], right)
    assert isinstance(refusal, Refusal)
    assert refusal.is_known
    assert f"the request needs {names_of(right)}" in refusal.reason
    for other in ALL & ~right:
        assert access.granted([b"Bearer " + TOKEN], other) == (ALL & ~right, {})
