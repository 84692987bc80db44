"""How a request is answered that can't be served: JSON with `reason` and `allowed`."""

import re
from collections.abc import Mapping
from typing import Final

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

AGAIN: Final = "the same request again, later"
_FOLDERS: Final = re.compile(r"(?<![\w/.])/(?:[^/\s]+/)*(?=[^/\s])")
CLOSE: Final = {"connection": "close"}


def problem(status: int, reason: str, allowed: str, headers: Mapping[str, str] | None = None) -> HTTPException:
    """To be raised. The application's handler of `HTTPException` answers with its `detail`."""
    return HTTPException(status, fault(reason, allowed), headers)  # type: ignore[arg-type]  # the handler takes it out


def unavailable(error: BaseException, more: str = "", allowed: str = AGAIN) -> HTTPException:
    """503 with the text of the error, and `more`. Of a path only the name is left: a client learns no folders."""
    return problem(503, without_folders(str(error)) + more, allowed)


def without_folders(text: str) -> str:
    """The text, with the last name alone of each absolute path.

    >>> without_folders("the store /var/lib/a.db can't be used: see https://a.example/b/c")
    "the store a.db can't be used: see https://a.example/b/c"
    >>> without_folders("sqlite:/var/lib/a.db?table=t is away")
    'sqlite:a.db?table=t is away'
    """
    return _FOLDERS.sub("", text)


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
