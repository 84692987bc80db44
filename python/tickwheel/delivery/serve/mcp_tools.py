"""The tools of `tickwheel mcp`, by which a program that a model steers schedules messages, and keeps them when it dies.

Each tool asks a `tickwheel serve`, which knows the tokens and the rights (D12). No tool reads a file or sets an
address. Answers are short texts, so that a model can follow them, and bounded.
"""

from collections.abc import Callable
from contextlib import closing
from typing import Annotated, Any, Final, Literal, TypeAlias

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.tools import Tool
from mcp.server.mcpserver.utilities.func_metadata import FuncMetadata
from mcp_types import ToolAnnotations
from pydantic import Field, ValidationError

from tickwheel import __version__
from tickwheel.delivery.base.errors import BadRecord, DeliveryFailed, WrongUsage
from tickwheel.delivery.model.entries import Answer
from tickwheel.delivery.model.operations import reply
from tickwheel.delivery.queue.client import Client
from tickwheel.delivery.sight import Details, Seen

_MOST_LISTED: Final = 20
_LONGEST_SHOWN: Final = 4_000  # characters of a payload
_LONGEST_NAME: Final = 200
_INSTRUCTIONS: Final = (
    "Reminders and other messages that are kept on disk and sent at their due time, also if this program has ended by"
    " then. A message is known by its id, and by its key if it has one. A key groups messages: they are sent in order,"
    " and an event of the key can make them due early. Times are RFC 3339 with an offset, such as 2027-01-31T08:00:00Z."
)

Connect: TypeAlias = Callable[[str | None], Client]
"""Makes a client with the token of a request; `None`: it has none."""

_Id = Annotated[str, Field(description="The id of the message. Choose one that says what it is.")]
_Key = Annotated[str | None, Field(description="The key of the message, if it has one.")]
_Due = Annotated[str | None, Field(description="When, in RFC 3339 with an offset. Or give delay_seconds.")]
_Delay = Annotated[float | None, Field(description="Seconds from now. Or give due.", ge=0, le=1e10)]


class _Arguments(FuncMetadata):
    def validate_arguments(self, arguments_to_validate: dict[str, Any]) -> dict[str, Any]:
        """As they are, and no others. A text stays one, also if it is JSON."""
        return self.arg_model.model_validate(arguments_to_validate, extra="forbid").model_dump_one_level()


class _Tool(Tool):
    async def run(self, *given: Any, **how: Any) -> Any:
        try:
            return await super().run(*given, **how)
        except ToolError as error:
            if not isinstance(error.__cause__, ValidationError):
                raise
            wrong = error.__cause__.errors(include_url=False)
            told = "; ".join(f"{'.'.join(map(str, it['loc']))!r:.{_LONGEST_NAME}}: {it['msg']}" for it in wrong)
            raise ToolError(f"{told}. The arguments are {', '.join(self.parameters['properties'])}") from None


def tools(connect: Connect) -> MCPServer[Any]:
    """The server with its tools. `connect` is called for each call of a tool."""
    made = list[Tool]()

    def ask(context: Context[Any, Any], question: Callable[[Client], str]) -> str:
        scheme, _, token = ((context.headers or {}).get("authorization") or "").partition(" ")
        try:
            with closing(connect(token.strip() if scheme.lower() == "bearer" else None)) as client:
                return question(client)
        except (BadRecord, WrongUsage, DeliveryFailed, UnicodeError) as error:
            raise ToolError(str(error)) from error

    def tool(name: str | None = None, *, reads: bool = False) -> Callable[[Any], Any]:
        def add(function: Any) -> Any:
            is_alike = function.__name__ != "reschedule"  # of a rule: each call moves another occurrence
            noted = ToolAnnotations(read_only_hint=reads, idempotent_hint=is_alike, open_world_hint=False)
            tool = _Tool.from_function(function, name, annotations=noted, structured_output=False)
            tool.fn_metadata = _Arguments(arg_model=tool.fn_metadata.arg_model)
            tool.parameters["additionalProperties"] = False
            made.append(tool)
            return function

        return add

    @tool()
    def schedule(
        context: Context[Any, Any],
        id: _Id,  # noqa: A002
        payload: Annotated[Any, Field(description="What the receiver gets: text, or any JSON.")],
        due: _Due = None,
        delay_seconds: _Delay = None,
        key: _Key = None,
        until_event: Annotated[
            list[str] | None,
            Field(description="Names of events of the key, of which the first makes it due early."),
        ] = None,
        destination: Annotated[
            str | None, Field(description="The name of a destination that the operator has set, if one is needed.")
        ] = None,
    ) -> str:
        """Schedule a message. The same call again changes nothing; another payload or time needs another id."""

        def put(client: Client) -> str:
            when = _when(due, delay_seconds) | {"until_event": until_event, "destination": destination}
            return _said("put", client.put(id, payload, key=key, **when))

        return ask(context, put)

    @tool("list", reads=True)
    def list_(
        context: Context[Any, Any],
        state: Annotated[
            Literal["waiting", "delivered", "dead", "cancelled", "expired", "recurring"],
            Field(description="waiting: in order of their due times; the others: the last one first."),
        ] = "waiting",
        key: Annotated[str | None, Field(description="Only messages of this key.")] = None,
        cursor: Annotated[str | None, Field(description="From the answer before, for the next page.")] = None,
    ) -> str:
        """List messages, twenty in an answer, without their payloads."""

        def look(client: Client) -> str:
            page = client.view.list(state=state, key=key, limit=_MOST_LISTED, cursor=cursor)
            more = "" if page.next is None else f"\nThere may be more: give the cursor {page.next}"
            return ("\n".join(map(_line, page.messages)) or f"No message is {state}.") + more

        return ask(context, look)

    @tool(reads=True)
    def show(context: Context[Any, Any], id: _Id, key: _Key = None) -> str:  # noqa: A002
        """Show a message: its state, its due time, its payload, and why it failed, if it did."""
        return ask(context, lambda client: _shown(client.view.show(id, key)))

    @tool()
    def cancel(context: Context[Any, Any], id: _Id, key: _Key = None) -> str:  # noqa: A002
        """Cancel a message, so that it is not sent."""
        return ask(context, lambda client: _said("cancel", client.cancel(id, key)))

    @tool()
    def reschedule(
        context: Context[Any, Any],
        id: _Id,  # noqa: A002
        due: _Due = None,
        delay_seconds: _Delay = None,
        key: _Key = None,
    ) -> str:
        """Give a message that waits another due time, earlier or later."""
        when = _when(due, delay_seconds)
        return ask(context, lambda client: _said("reschedule", client.reschedule(id, **when, key=key)))

    @tool()
    def event(
        context: Context[Any, Any],
        key: Annotated[str, Field(description="The key of the messages that wait.")],
        name: Annotated[str, Field(description="The name of the event, as until_event has it.")],
        id: Annotated[str, Field(description="Your id of this event: the same one again counts once.")],  # noqa: A002
        payload: Annotated[Any, Field(description="What the receivers get with it.")] = None,
    ) -> str:
        """Say that something has happened to a key: the messages that wait for this event are due now."""
        return ask(context, lambda client: f"It let go {client.event(key, name, id=id, payload=payload):,} messages.")

    how: Any = {"version": __version__, "log_level": "WARNING", "subscriptions": False, "tools": made}
    return MCPServer("tickwheel", instructions=_INSTRUCTIONS, **how)


def _when(due: str | None, delay_seconds: float | None) -> dict[str, Any]:
    if (due is None) == (delay_seconds is None):
        raise ToolError("give either due or delay_seconds")
    return {"due": due} if delay_seconds is None else {"delay_ms": delay_seconds * 1_000}


def _said(operation: str, answer: Answer) -> str:
    return f"{answer.value}: {reply(operation, answer).sentence}."


def _line(it: Seen) -> str:
    key = "" if it.key is None else f", key {it.key!r:.{_LONGEST_NAME}}"
    error = "" if it.last_error is None else f", failed: {it.last_error:.{_LONGEST_NAME}}"
    return f"id {it.id!r:.{_LONGEST_NAME}}{key}, due {it.due}{'' if it.ended is None else f', ended {it.ended}'}{error}"


def _shown(found: Details | None) -> str:
    if found is None:
        return "No message has this name. A message with a key is known by both."
    payload = found.payload_base64 if found.payload is None else bytes(found.payload).decode()
    cut = "" if payload is None or len(payload) <= _LONGEST_SHOWN else f"... ({len(payload):,} characters in all)"
    return f"{found.state}: {_line(found)}\npayload: {(payload or '')[:_LONGEST_SHOWN]}{cut}"
