"""Access control (rule D12): the addresses to listen on, who may send what, and protection against web pages.

- On loopback no token is needed. On any other address every request needs a token, and the ports have TLS, unless the
  operator turns TLS off with `--no-tls`. A host name is resolved once. Without a token all its addresses must be
  loopback. The port is opened on an address found then, so a later change of the name exposes nothing.
- Without a token, a web page in a browser on this machine could send requests: a page may post to loopback, and its own
  host name may resolve to loopback. Therefore a server without tokens refuses a request if its `Host` is not loopback,
  or if its `Origin` is not this server.
"""

import ipaddress
import socket
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from tickwheel.delivery.base.errors import WrongUsage
from tickwheel.delivery.serve.tokens import ALL, Grant, Right, Tokens, names_of

_FORM: Final = "write HOST:PORT, such as 127.0.0.1:7400 or [::1]:7400; port 0 takes any free port"


class Address(NamedTuple):
    """An address to listen on: `host` as given, and `ip`, the address it resolves to."""

    option: str
    host: str
    ip: str
    port: int
    is_loopback: bool

    @classmethod
    def of(cls, option: str, text: str) -> "Address":
        """From HOST:PORT, the value of `option`. A host name is resolved. Errors: `WrongUsage`."""
        host, colon, digits = text.rpartition(":")
        if host.startswith("[") and host.endswith("]"):
            host = host[1:-1]
        elif ":" in host:
            raise WrongUsage(f"{option} {text}: an IPv6 address needs brackets: {_FORM}")
        if not colon or not host or not (digits.isascii() and digits.isdigit()) or int(digits) > 65_535:
            raise WrongUsage(f"{option} {text} is no address: {_FORM}")
        try:
            found = socket.getaddrinfo(host, int(digits), type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise WrongUsage(f"{option} {text}: {host} can't be resolved: {error}; {_FORM}") from error
        ips = sorted({str(address[0]) for *_, address in found}, key=lambda ip: (":" in ip, ip))
        return cls(option, host, ips[0], int(digits), all(map(is_loopback, ips)))

    def url(self, scheme: str, port: int) -> str:
        """The URL for clients. `port` is the port in use."""
        return f"{scheme}://{f'[{self.ip}]' if ':' in self.ip else self.ip}:{port}"


class Fetched(NamedTuple):
    """The headers `sec-fetch-site` and `sec-fetch-dest` of a browser; empty without them."""

    site: bytes
    dest: bytes


_BY_A_PROGRAM: Final = Fetched(b"", b"")
_NOTHING: Final[Mapping[str, list[str]]] = MappingProxyType({})


class Refusal(NamedTuple):
    """Why a request is refused. `is_known`: its token is known, but lacks the right."""

    reason: str
    allowed: str
    is_known: bool


class Access:
    """Accepts requests whose token has the right; without tokens, all requests except those from web pages. `tokens`
    may be replaced at any time, but not taken away.
    """

    def __init__(self, tokens: Tokens | None, *addresses: Address) -> None:
        self.tokens = tokens
        self._names = {"localhost", *(address.host.lower() for address in addresses)}

    def granted(
        self, authorization: list[bytes], right: Right, named: Mapping[str, list[str]] | None = _NOTHING
    ) -> Grant | Refusal:
        """What a request with these `authorization` headers may do, or why it is refused. It needs one of the rights.
        `named`: each `destination` and `tenant` in its address; `None`: its body names them.
        """
        if self.tokens is None:
            return Grant(ALL)
        if len(authorization) != 1:
            is_none = not authorization
            return _unknown("no token is given" if is_none else "there is more than one authorization header")
        scheme, _, given = authorization[0].partition(b" ")
        grant = self.tokens.grant_of(given.strip(b" "))
        if scheme.lower() != b"bearer" or grant is None:
            return _unknown("the token is wrong")
        if not right & grant.rights:
            needed = names_of(right).replace(",", " or ")
            reason = f"this token may {names_of(grant.rights)}, and the request needs {needed}"
            return Refusal(reason, f"a token with the right {needed} in the server's --token-file", True)
        for kind, names in grant.limits.items():
            if named is not None and not (named.get(kind) and names.issuperset(named[kind])):
                own = ", ".join(sorted(names))
                reason = f"this token is limited to {kind}s, and the request names none of them"
                return Refusal(reason, f"requests that name one of {own}: GET /messages?{kind}=NAME and others", True)
        return grant

    def rights_of(self, authorization: list[str]) -> Right:
        """The rights of an accepted request with these headers; none at all if they are limited."""
        if self.tokens is None:
            return ALL
        grant = self.tokens.grant_of(authorization[0].partition(" ")[2].strip().encode("latin-1"))
        return Right(0) if grant is None or grant.limits else grant.rights

    def why_foreign(self, host: list[bytes], origin: list[bytes], fetched: Fetched = _BY_A_PROGRAM) -> str | None:
        """Why a browser may have sent these headers for a page of another site; `None`: it has not.

        The origin of this server's page is the very host that the request names. If a page of another site loads a
        part of itself from here, the request has no origin, but its `sec-fetch-site` shows this. A link to this server
        is allowed: it loads a document.
        """
        if self.tokens is not None:
            return None
        own = {b"%b://%b" % (scheme, each) for scheme in (b"http", b"https") for each in host}
        is_loaded = fetched.site in (b"cross-site", b"same-site") and fetched.dest != b"document"
        if is_loaded or not own.issuperset(origin):
            return "the sender is a web page of another site"
        other = next((each for each in host if not self._is_own_host(each)), None)
        if other is None:
            return None
        return f"the Host is {other.decode('latin-1')!r:.200}, and not this machine: a web page may be the sender"

    def _is_own_host(self, host: bytes) -> bool:
        name = host.decode("latin-1").lower()
        if not name.endswith("]") and ":" in name:
            name = name.rpartition(":")[0]
        name = name.removeprefix("[").removesuffix("]")
        return name in self._names or is_loopback(name)


def is_loopback(ip: str) -> bool:
    """Whether this is an address that only this machine can reach. A name is not one.

    >>> [is_loopback(ip) for ip in ("127.0.0.1", "127.9.9.9", "::1", "0.0.0.0", "::", "10.0.0.1", "localhost")]
    [True, True, True, False, False, False, False]
    """
    try:
        return ipaddress.ip_address(ip).is_loopback
    except ValueError:
        return False


def check_addresses(*addresses: Address, has_tokens: bool, is_tls: bool, without_tls: bool) -> None:
    """Errors: `WrongUsage` for an address that other machines can reach without a token, or without TLS."""
    for address in addresses:
        if address.is_loopback:
            continue
        where = f"{address.option} {address.host}:{address.port} can be reached from other machines"
        if not has_tokens:
            raise WrongUsage(
                f"{where}: use --token-file FILE with a token that every request must have, or listen on 127.0.0.1"
            )
        if not is_tls and not without_tls:
            raise WrongUsage(
                f"{where}, and a token would be sent there for all to read: use --tls-cert FILE and --tls-key FILE, or "
                "say --no-tls where a proxy or the network encrypts"
            )
    if is_tls and without_tls:
        raise WrongUsage("--no-tls and --tls-cert contradict each other: leave one out")


def _unknown(reason: str) -> Refusal:
    return Refusal(reason, "authorization: Bearer TOKEN, with a token of the server's --token-file", False)
