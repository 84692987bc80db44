"""Parameters and JSON of a request, and the answer to one that can't be served: JSON with `reason` and `allowed`."""

import json
import re
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from tickwheel.delivery.base.errors import BadRecord

AGAIN: Final = "the same request again, later"
DUPLICATE: Final = f"{AGAIN}: what was accepted answers duplicate"
_FOLDERS: Final = re.compile(r"(?<![\w/.])/(?:[^/\s]+/)*(?=[^/\s])")
CLOSE: Final = {"connection": "close"}

_T = TypeVar("_T")


def problem(status: int, reason: str, allowed: str, headers: Mapping[str, str] | None = None) -> HTTPException:
    """To be raised. The application's handler of `HTTPException` answers with its `detail`."""
    return HTTPException(status, fault(reason, allowed), headers)  # type: ignore[arg-type]  # the handler takes it out


def unavailable(error: BaseException, more: str = "", allowed: str = AGAIN) -> HTTPException:
    """503 with the text of the error, and `more`. Of a path only the name is left: a client learns no folders."""
    return problem(503, without_folders(str(error)) + more, allowed)


async def or_unavailable(asked: Awaitable[_T], more: str = "", allowed: str = AGAIN) -> _T:
    """What was asked of the engine. Errors: `BadRecord`; 503 if it takes nothing, or the commit has failed."""
    try:
        return await asked
    except BadRecord:
        raise
    except Exception as error:
        raise unavailable(error, more, allowed) from error


def without_folders(text: str) -> str:
    """The text, with the last name alone of each absolute path.

    >>> without_folders("the store /var/lib/a.db can't be used: see https://a.example/b/c")
    "the store a.db can't be used: see https://a.example/b/c"
    >>> without_folders("sqlite:/var/lib/a.db?table=t is away")
    'sqlite:a.db?table=t is away'
    """
    return _FOLDERS.sub("", text)


def parameters(request: Request, names: Sequence[str], allowed: str) -> dict[str, str]:
    """The parameters in the address: of these, and each at most once. Errors: 400."""
    try:
        query, most = request.scope["query_string"].decode("ascii"), max(3, len(names))
        given = parse_qsl(
            query, keep_blank_values=True, strict_parsing=bool(query), errors="strict", max_num_fields=most
        )
    except ValueError as error:
        raise problem(400, f"the address can't be read: {error}", allowed) from None
    seen: dict[str, str] = {}
    for name, value in given:
        if name in seen or name not in names:
            other = f"{name} twice" if name in seen else name
            raise problem(400, f"the address has {other!r:.100}", allowed)
        seen[name] = value
    return seen


def decoded(body: bytes | msgspec.Raw, kind: Any, allowed: str) -> Any:
    """The JSON of a body, with each name of an object once. Errors: 400."""
    try:
        found = msgspec.json.decode(body, type=kind)
        json.loads(bytes(body), object_pairs_hook=_each_once)  # msgspec takes the last of two
    except (ValueError, RecursionError) as error:
        raise problem(400, f"the body can't be read: {error}", allowed) from error
    return found


def _each_once(members: list[tuple[str, object]]) -> None:
    if len(dict(members)) < len(members):
        raise ValueError("a name occurs twice in the object")


def refuse_query(request: Request) -> None:
    """For a request that reads nothing from the query. Errors: 400."""
    if request.scope["query_string"]:
        raise problem(400, "the address has parameters, and this request reads none", request.url.path)


def fault(reason: str, allowed: str) -> dict[str, str]:
    """The body of such an answer."""
    return {"reason": reason, "allowed": allowed}


def json_response(status: int, value: object, headers: Mapping[str, str] | None = None) -> Response:
    """An answer in JSON."""
    return Response(msgspec.json.encode(value), status, headers, "application/json")
