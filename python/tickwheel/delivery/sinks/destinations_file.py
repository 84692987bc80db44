"""The file of `--destinations`: TOML with a table for each destination that messages name (rule D23).

    [acme]
    url = "https://acme.example/hooks"
    headers = {Authorization = "env:ACME_TOKEN"}
    secrets = ["file:/run/secrets/acme"]
    rate = "10/s"

The fields are those of `PUT /destinations/{name}`. Headers and secrets may be `env:VARIABLE` or `file:PATH`, because
the operator has written the file.
"""

import tomllib
from collections.abc import Mapping
from math import isfinite
from pathlib import Path
from typing import Any, Final

import msgspec

from tickwheel._native import read_records
from tickwheel.delivery.base.errors import BadRecord, WrongUsage, quoted
from tickwheel.delivery.base.secret_files import read_secret
from tickwheel.delivery.model.entries import SetDestination
from tickwheel.delivery.sinks.webhook import read_value

_OPTION: Final = "--destinations"
_MOST_BYTES: Final = 16 << 20


def read_destinations(path: Path) -> list[SetDestination]:
    """What the file sets. Errors: `WrongUsage` with the file, the destination and the field, which shows no secret."""
    text = read_secret(_OPTION, path, _MOST_BYTES)
    try:
        found = tomllib.loads(text.decode())
    except (ValueError, RecursionError) as error:
        raise WrongUsage(f"{_OPTION} {path} is no TOML: {error}") from error
    return [_destination(f"{_OPTION} {path}: {name[:200]}", name, settings) for name, settings in found.items()]


def _destination(where: str, name: str, settings: object) -> SetDestination:
    if not isinstance(settings, dict):
        raise WrongUsage(f"{where} is no table: write [{name[:200]}], and its settings below it")
    given = {field: _read(f"{where}: {field}", field, value) for field, value in settings.items()}
    url = {"url": given.get("url", "")}
    for field in ("url", *given):
        _checked(f"{where}: {field}", name, url | {field: given.get(field, "")})
    return _checked(where, name, given)


def _read(where: str, field: str, value: object) -> object:
    """The value, with what `env:` and `file:` name."""
    if field == "headers" and isinstance(value, dict):
        return {name: _read(f"{where}: {quoted(name)}", "", text) for name, text in value.items()}
    if field == "secrets" and isinstance(value, list):
        return [_read(where, "", text) for text in value]
    if not isinstance(value, str | int | float | list | dict) or (isinstance(value, float) and not isfinite(value)):
        raise WrongUsage(f"{where} is {value}: write a text, a number, true, false, a list or a table")
    return read_value(where, value) if not field and isinstance(value, str) else value


def _checked(where: str, name: str, settings: Mapping[str, Any]) -> SetDestination:
    asked = SetDestination(name, msgspec.json.encode(settings).decode())
    try:
        read_records(asked, format="item")
    except (BadRecord, WrongUsage) as error:
        raise WrongUsage(f"{where}: {error}") from error
    return asked
