"""Shows an address in an error without its password (rule D10).

A driver's error quotes the part of an address that the driver does not understand, which may be the password. So its
text goes through `without`.
"""

import re
from collections.abc import Iterable, Mapping
from urllib.parse import unquote

_USER = re.compile(r"^([^:]*:/*)(.*)@", flags=re.DOTALL)  # up to the last @, because a password may contain one
_PASSWORD = re.compile(r"((?:password|_secret|_key)=)([^&]*)", flags=re.IGNORECASE)  # also keys, as of OAuth and SCRAM


def without_secrets(address: str) -> str:
    """The address quoted, shortened, without user and password.

    >>> without_secrets("postgresql://me:secret@db/shop?table=T&sslpassword=more")
    "'postgresql://...@db/shop?table=T&sslpassword=...'"
    >>> without_secrets("postgresql://db/shop?oauth_client_secret=secret&scram_client_key=a%3D&table=T")
    "'postgresql://db/shop?oauth_client_secret=...&scram_client_key=...&table=T'"
    """
    return repr(without_user(address)[:200])


def without_user(address: str) -> str:
    """The address without user and password.

    >>> without_user("kafka://me:secret@one,two/topic")
    'kafka://...@one,two/topic'
    """
    return _PASSWORD.sub(r"\1...", _USER.sub(r"\1...@", address))


def secrets_in(address: str) -> list[str]:
    """Each password in the address, both as written and percent-decoded."""
    users = [user.partition(":")[2] for _, user in _USER.findall(address)]
    raw = [*users, *(password for _, password in _PASSWORD.findall(address))]
    return [secret for part in raw for secret in (part, unquote(part))]


def secrets_of(options: Mapping[str, object]) -> list[str]:
    """The values of the options that hold a password or another secret."""
    return [str(value) for name, value in options.items() if name.endswith(("password", "_secret", "_key")) and value]


def without(secrets: Iterable[str], text: str) -> str:
    """The text with dots in place of each secret.

    >>> without(["secret"], "invalid token: secret%")
    'invalid token: ...%'
    """
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        text = text.replace(secret, "...")
    return text
