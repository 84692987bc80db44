"""Access control (rule D12): the addresses to listen on, the token, and protection against web pages.

- On loopback no token is needed; on any other address every request needs one. A host name is resolved once. Without a
  token all its addresses must be loopback, and the port is opened on one of them, so a later change of the name exposes
  nothing.
- Without a token, a web page in a browser on this machine could send requests: a page may post to loopback, and its own
  host name may resolve to loopback. So then a request with an `Origin` or a `Host` that is not loopback is refused.
- The token is in a file that other users can't read, and never in an option or an error. It is compared in constant
  time. It is sent unencrypted: between machines, put a TLS proxy in front.
"""

import hmac
import ipaddress
import os
import socket
import stat
from pathlib import Path
from typing import Final, NamedTuple

from tickwheel.delivery.errors import WrongUsage

_LEAST: Final = 16
_MOST: Final = 4096
_OTHERS: Final = stat.S_IRWXO
_FORM: Final = "write HOST:PORT, such as 127.0.0.1:7400 or [::1]:7400; port 0 takes any free port"


class Address(NamedTuple):
    """Where to listen: `host` as given, and `ip`, the address it resolves to."""

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


class Access:
    """Accepts requests with the token; without a token, all requests but those of web pages."""

    def __init__(self, token: bytes | None, *addresses: Address) -> None:
        for address in addresses:
            if token is None and not address.is_loopback:
                raise WrongUsage(
                    f"{address.option} {address.host}:{address.port} can be reached from other machines: use "
                    "--token-file FILE with a token that every request must have, or listen on 127.0.0.1"
                )
        self._token = token
        self._names = {"localhost", *(address.host.lower() for address in addresses)}

    def why_not(self, authorization: list[bytes]) -> str | None:
        """Why a request with these `authorization` headers is refused, or `None`."""
        if self._token is None:
            return None
        if len(authorization) != 1:
            return "no token is given" if not authorization else "there is more than one authorization header"
        scheme, _, given = authorization[0].partition(b" ")
        if scheme.lower() != b"bearer" or not hmac.compare_digest(given.strip(b" "), self._token):
            return "the token is wrong"
        return None

    def is_web_page(self, host: list[bytes], origin: list[bytes]) -> bool:
        """Whether these are headers of a browser, from a page of another site."""
        if self._token is not None:
            return False
        return bool(origin) or any(not self._is_own_host(each) for each in host)

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


def read_token(path: Path) -> bytes:
    """The token in this file, without the newline. Errors: `WrongUsage`."""
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_mode & _OTHERS:
                raise WrongUsage(f"--token-file {path} is open to every user of this machine: run chmod 600 {path}")
            token = file.read(_MOST + 1).rstrip(b"\r\n")
    except OSError as error:
        raise WrongUsage(f"--token-file {path} can't be read: {error.strerror}") from error
    if not _LEAST <= len(token) <= _MOST or any(not 0x21 <= byte <= 0x7E for byte in token):
        raise WrongUsage(
            f"--token-file {path} has no usable token: it must have {_LEAST} to {_MOST} letters, digits and signs, on "
            "one line and without spaces; openssl rand -hex 32 makes one"
        )
    return token
