"""Which addresses may be opened, what a token is, which requests are accepted (rule D12)."""

import socket
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tickwheel.commands import tickwheel
from tickwheel.delivery import WrongUsage
from tickwheel.delivery.serve.access import Access, Address, Refusal, check_addresses
from tickwheel.delivery.serve.tokens import ALL, Right, Tokens

TOKEN = b"not-for-other-eyes"
TOKENS = Tokens({TOKEN: ALL})


def check(*addresses: Address, has_tokens: bool = False, is_tls: bool = False, without_tls: bool = False) -> None:
    check_addresses(*addresses, has_tokens=has_tokens, is_tls=is_tls, without_tls=without_tls)


def why_not(access: Access, *authorization: bytes, right: Right = Right.READ) -> str | None:
    found = access.granted([*authorization], right, None)
    return found.reason if isinstance(found, Refusal) else None


@pytest.mark.parametrize(
    ("text", "ip", "port"),
    [
        ("127.0.0.1:7400", "127.0.0.1", 7400),
        ("127.1:0", "127.0.0.1", 0),
        ("[::1]:7400", "::1", 7400),
        ("localhost:65535", "127.0.0.1", 65535),
    ],
)
def test_loopback_is_loopback_however_it_is_written__D12(text: str, ip: str, port: int) -> None:
    address = Address.of("--listen", text)
    assert (address.ip, address.port, address.is_loopback) == (ip, port, True)
    check(address)


@pytest.mark.parametrize("text", ["0.0.0.0:1", "[::]:1", "192.0.2.1:1", "[2001:db8::1]:1", "[::ffff:0.0.0.0]:1", "0:1"])
def test_what_others_can_reach_needs_a_token_and_tls__D12(text: str) -> None:
    address = Address.of("--metrics", text)
    for is_tls, without_tls in ((False, False), (True, False), (False, True)):
        with pytest.raises(WrongUsage, match=r"--metrics .* other machines: use --token-file"):
            check(address, is_tls=is_tls, without_tls=without_tls)
    with pytest.raises(WrongUsage, match=r"--metrics .* other machines, and a token .*--tls-cert .*--no-tls"):
        check(address, has_tokens=True)
    check(address, has_tokens=True, is_tls=True)
    check(address, has_tokens=True, without_tls=True)


def test_tls_and_no_tls_contradict_each_other__D12() -> None:
    with pytest.raises(WrongUsage, match="leave one out"):
        check(Address.of("--listen", "127.0.0.1:1"), is_tls=True, without_tls=True)


def test_one_address_that_others_can_reach_is_enough__D12() -> None:
    with pytest.raises(WrongUsage, match="--metrics"):
        check(Address.of("--listen", "127.0.0.1:1"), Address.of("--metrics", "0.0.0.0:1"))


@pytest.mark.parametrize("ips", [["10.0.0.1"], ["127.0.0.1", "10.0.0.1"], ["::1", "2001:db8::1"]])
def test_a_name_is_loopback_only_if_all_its_addresses_are__D12(ips: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def found(*_: Any, **__: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (ip, 1)) for ip in ips]

    monkeypatch.setattr(socket, "getaddrinfo", found)
    with pytest.raises(WrongUsage, match="--token-file"):
        check(Address.of("--listen", "trusty.example:7400"))


def test_it_is_the_address_that_is_listened_on_that_was_looked_at__D12(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.7", 1))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    address = Address.of("--listen", "trusty.example:7400")
    monkeypatch.undo()
    assert address.url("http", 7400) == "http://127.0.0.7:7400"


@pytest.mark.parametrize(
    "text", ["7400", ":7400", "localhost", "localhost:", "localhost:http", "localhost:65536", "::1:7"]
)
def test_an_address_that_is_none_is_refused_with_the_form_of_one__D12(text: str) -> None:
    with pytest.raises(WrongUsage, match=r"--listen .*127\.0\.0\.1:7400 or \[::1\]:7400"):
        Address.of("--listen", text)


def test_the_command_refuses_a_public_address_without_a_token__D12(tmp_path: Path) -> None:
    result = CliRunner().invoke(tickwheel, ["serve", "--store", str(tmp_path / "s.db"), "--listen", "0.0.0.0:0"])
    assert result.exit_code == 2
    assert "--listen 0.0.0.0:0 can be reached from other machines: use --token-file FILE" in result.output
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("more", [["--max-payload", "0"], ["--max-payload", "16777217"], ["--horizon", "0"]])
def test_the_command_refuses_what_is_out_of_range_before_it_makes_a_store__D11(more: list[str], tmp_path: Path) -> None:
    result = CliRunner().invoke(tickwheel, ["serve", "--store", str(tmp_path / "s.db"), *more])
    assert (result.exit_code, list(tmp_path.iterdir())) == (2, [])
    assert "it may be" in result.output


@pytest.mark.parametrize("given", [b"Bearer " + TOKEN, b"bearer " + TOKEN, b"BEARER  " + TOKEN])
def test_the_token_is_accepted__D12(given: bytes) -> None:
    assert why_not(Access(TOKENS), given) is None


@pytest.mark.parametrize(
    "given",
    [
        b"Bearer " + TOKEN[:-1],
        b"Bearer " + TOKEN + b"x",
        b"Bearer " + TOKEN.upper(),
        b"Bearer ",
        b"",
        TOKEN,
        b"Basic " + TOKEN,
        b"Bearer \xff",
    ],
)
def test_any_other_header_is_refused__D12(given: bytes) -> None:
    assert why_not(Access(TOKENS), given) == "the token is wrong"


def test_no_token_and_two_tokens_are_refused__D12() -> None:
    assert why_not(Access(TOKENS)) == "no token is given"
    assert why_not(Access(TOKENS), *[b"Bearer " + TOKEN] * 2) == "there is more than one authorization header"


@pytest.mark.parametrize(
    "host", [b"127.0.0.1:7400", b"localhost", b"LOCALHOST:1", b"[::1]:7400", b"[::1]", b"mine:7400"]
)
def test_a_program_on_this_machine_is_no_web_page__D12(host: bytes) -> None:
    listen = Address("--listen", "mine", "127.0.0.1", 7400, is_loopback=True)
    assert not Access(None, listen).why_foreign([host], [])
    assert Access(None, listen).why_foreign([host], [b"https://evil.example"])


@pytest.mark.parametrize(
    "host", [b"evil.example", b"evil.example:7400", b"10.0.0.1:7400", b"localhost.evil.example", b""]
)
def test_a_foreign_name_that_resolves_to_loopback_is_refused__D12(host: bytes) -> None:
    assert Access(None).why_foreign([host], [])
    assert not Access(TOKENS).why_foreign([host], [b"https://fine.example"])


@pytest.mark.parametrize("name", ["starlette", "uvicorn", "prometheus_client"])
def test_a_library_that_is_missing_is_named_with_what_to_install__D11(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    result = CliRunner().invoke(tickwheel, ["serve", "--store", str(tmp_path / "s.db")])
    assert (result.exit_code, list(tmp_path.iterdir())) == (2, [])
    assert name in result.output
    assert "pip install 'tickwheel[serve]'" in " ".join(result.output.split())
