"""The tokens of requests, and what each may do (rule D12).

A token file has a token per line, and after it the rights, separated by commas; without any, the token has all. A line
that begins with `#` is a comment, and so is what follows a space and a `#`:

    f2c9...e1  produce          # the shop
    07ab...94  control,read     # operators
    95d0...3b  hand-off         # Spark
    c41b...08  destinations     # the shop's settings
    77ab...15  produce,read destination=acme,zenith     # two customers

`destination=` limits a token to these named destinations, and `tenant=` to these tenants: `guard.py` says to which
requests.
A token is compared in constant time with every token of the file. Only digests of tokens are kept.
"""

import enum
import hashlib
import hmac
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

from tickwheel.delivery.base.errors import WrongUsage
from tickwheel.delivery.base.secret_files import read_secret

_LEAST: Final = 16
_MOST: Final = 4096
_MOST_BYTES: Final = 1 << 20
LIMITS: Final = ("destination", "tenant")
"""What a token can be limited to. With both, a request names one of each."""


class Right(enum.Flag):
    """The rights: a request needs one of them, and a token may have several."""

    PRODUCE = enum.auto()
    """Messages come in, and records that cancel one: `POST /messages`."""
    CONTROL = enum.auto()
    """Changes of messages that have come: `DELETE`, and every request that needs no other right."""
    READ = enum.auto()
    """`GET`."""
    HAND_OFF = enum.auto()
    """Messages of a keeper, as Spark's hold, and how far their outcomes are on disk: `/hand-off`."""
    DESTINATIONS = enum.auto()
    """Where messages go: `/destinations`. No other right can send a payload to another address."""


ALL: Final = ~Right(0)


def names_of(rights: Right) -> str:
    """The rights as a token file writes them.

    >>> names_of(Right.READ | Right.PRODUCE)
    'produce,read'
    """
    return ",".join(_name(right) for right in Right if right in rights)


def _name(right: Right) -> str:
    return str(right.name).lower().replace("_", "-")


_RIGHTS: Final = {_name(right): right for right in Right}


class Grant(NamedTuple):
    """What a token may do. `limits`: for these of `LIMITS` alone; else for all, and for what names none."""

    rights: Right
    limits: Mapping[str, frozenset[str]] = MappingProxyType({})


class Tokens:
    """Tokens by their digests."""

    def __init__(self, grants: Mapping[bytes, Right | Grant]) -> None:
        """What each token may do."""
        self._grants = {
            _digest(token): each if isinstance(each, Grant) else Grant(each) for token, each in grants.items()
        }

    def grant_of(self, given: bytes) -> Grant | None:
        """What this token may do; `None` if it is unknown. Takes the same time in both cases."""
        digest, found = _digest(given), None
        for each, grant in self._grants.items():
            if hmac.compare_digest(each, digest):
                found = grant
        return found


def read_tokens(path: Path) -> Tokens:
    """The tokens in this file. Errors: `WrongUsage`, which names the line and never shows a token."""
    return Tokens(dict(_entries(path)))


def read_token(path: Path) -> bytes:
    """The one token in the file of a client. Errors: `WrongUsage`."""
    (token, _), *more = _entries(path)
    if more:
        raise WrongUsage(f"--token-file {path} has {len(more) + 1} tokens: a client sends one; keep its line only")
    return token


def _entries(path: Path) -> list[tuple[bytes, Grant]]:
    text = read_secret("--token-file", path, _MOST_BYTES)
    found = list(_parsed(path, text))
    if not found:
        raise WrongUsage(f"--token-file {path} has no token: {_FORM}")
    lines: dict[bytes, int] = {}
    for token, _, line in found:
        if lines.setdefault(token, line) != line:
            raise WrongUsage(f"--token-file {path}, line {line}: the token of line {lines[token]} again; keep one line")
    return [(token, grant) for token, grant, _ in found]


_FORM: Final = (
    f"write a token of {_LEAST} to {_MOST:,} letters, digits and signs on a line, and after a space its rights, of "
    "produce, control, read, hand-off and destinations, separated by commas, and destination=NAME,... or "
    "tenant=NAME,... to limit it to these; openssl rand -hex 32 makes a token"
)


def _parsed(path: Path, text: bytes) -> Iterator[tuple[bytes, Grant, int]]:
    for line, whole in enumerate(text.splitlines(), 1):
        words = whole.split()
        comment = next((place for place, word in enumerate(words) if word.startswith(b"#")), len(words))
        if not (words := words[:comment]):
            continue
        token, *words = words
        starts = {kind: f"{kind}=".encode() for kind in LIMITS}
        rights = b"".join(word for word in words if not word.startswith((*starts.values(),)))
        where = f"--token-file {path}, line {line}"
        if not _LEAST <= len(token) <= _MOST or any(not 0x21 <= byte <= 0x7E for byte in token):
            raise WrongUsage(f"{where}, has no usable token: {_FORM}")
        limits = {}
        for kind, start in starts.items():
            if given := [word.removeprefix(start) for word in words if word.startswith(start)]:
                limits[kind] = frozenset(b",".join(given).decode("ascii", "replace").split(","))
                if "" in limits[kind]:
                    raise WrongUsage(f"{where}: {kind}= has no name, or a comma too many: {_FORM}")
        yield token, Grant(_rights(where, rights) if rights else ALL, limits), line


def _rights(where: str, text: bytes) -> Right:
    rights = Right(0)
    for number, name in enumerate(text.split(b","), 1):
        try:
            rights |= _RIGHTS[name.decode("ascii").lower()]
        except (KeyError, UnicodeDecodeError):  # it is not shown, because it may be a part of a token
            raise WrongUsage(f"{where}: right {number} is not known: {_FORM}") from None
    return rights


def _digest(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()
