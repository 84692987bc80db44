"""The headers of an operator for each request of a webhook, and the secrets that sign it (rules D10, D12).

No secret need be on a command line, where every user of the machine can read it. Like in openssl's options, the value
of a header may be `env:VARIABLE`, for the value of a variable, or `file:PATH`, for the text of a file. A line end after
the value is removed.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tickwheel.delivery.base.errors import WrongUsage
from tickwheel.delivery.base.secret_files import read_secret

_MOST_BYTES: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Webhook:
    """`headers`: names and values. `secrets`: `whsec_...`; each of them signs. They are checked by `open_sink`."""

    headers: Sequence[tuple[str, str]] = field(default=(), repr=False)
    secrets: Sequence[str] = field(default=(), repr=False)

    @classmethod
    def read(cls, headers: Sequence[str], secret_file: Path | None) -> "Webhook | None":
        """From the options; `None` if there are none. Errors: `WrongUsage`, which shows no value."""
        if not headers and secret_file is None:
            return None
        secrets = tuple(_secrets(secret_file)) if secret_file else ()
        return cls(tuple(_header(number, text) for number, text in enumerate(headers, 1)), secrets)


def _header(number: int, text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon:
        raise WrongUsage(f"--webhook-header {number} is no header: write 'NAME: VALUE', as in 'X-Tenant: 17'")
    return name, read_value(f"--webhook-header {name}", value.strip())


def read_value(option: str, value: str) -> str:
    """The value, or what its `env:VARIABLE` or `file:PATH` names. Errors: `WrongUsage`, which shows no value."""
    kind, _, where = value.partition(":")
    if kind == "env":
        found = os.environ.get(where)
        if found is None:
            raise WrongUsage(f"{option}: the environment has no variable {where}: set it, or write file:PATH")
        return found.rstrip("\r\n")
    return _text(option, Path(where)).rstrip("\r\n") if kind == "file" else value


def _secrets(path: Path) -> Iterator[str]:
    lines = [line.strip() for line in _text("--webhook-secret-file", path).splitlines()]
    found = [line for line in lines if line and not line.startswith("#")]
    if not found:
        raise WrongUsage(
            f"--webhook-secret-file {path} has no secret: write one on each line; "
            "echo whsec_$(openssl rand -base64 32) makes one"
        )
    yield from found


def _text(option: str, path: Path) -> str:
    try:
        return read_secret(option, path, _MOST_BYTES).decode()
    except UnicodeDecodeError:
        raise WrongUsage(f"{option}: {path} is not text in UTF-8") from None
