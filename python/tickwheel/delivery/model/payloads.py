"""Payloads of a program as JSON (rule D1). The engine calls `json_of` for each payload that is no bytes."""

import math
from typing import Any

import msgspec

from tickwheel.delivery.base.errors import WrongUsage


def json_of(payload: Any) -> bytes:
    """The payload as JSON. Errors: `WrongUsage` if JSON can't hold it."""
    try:
        data = msgspec.json.encode(payload)
        is_lost = b"null" in data and _has_no_json_number(payload)
    except UnicodeEncodeError as error:
        why = "it has half of a surrogate pair, which is no text"
        raise WrongUsage(f"the payload can't be written as JSON: {why}; give bytes instead") from error
    except RecursionError as error:
        why = "it is nested too deep, or contains itself"
        raise WrongUsage(f"the payload can't be written as JSON: {why}; give bytes instead") from error
    except (TypeError, ValueError, OverflowError) as error:
        raise WrongUsage(f"the payload can't be written as JSON: {error}; give bytes instead") from error
    if is_lost:
        raise WrongUsage("the payload can't be written as JSON, which has no NaN and no infinity: give None or a text")
    return data


def _has_no_json_number(payload: Any) -> bool:
    """Whether there is a NaN or an infinity in it, for which msgspec writes `null`."""
    left = [msgspec.to_builtins(payload, enc_hook=lambda _raw: None)]  # a `msgspec.Raw` is JSON already
    while left:
        value = left.pop()
        if isinstance(value, float) and not math.isfinite(value):
            return True
        if isinstance(value, dict):
            left += value.values()
        elif isinstance(value, list | tuple):
            left += value
    return False
