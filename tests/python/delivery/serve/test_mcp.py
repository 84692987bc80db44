"""The tools of `tickwheel mcp`, by the package's own client: in this process, over stdio, and over streamable HTTP."""

import asyncio
import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx2
import pytest
from click.testing import CliRunner
from mcp.client import Client as ModelClient
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from tickwheel.commands import tickwheel as command
from tickwheel.delivery import Client
from tickwheel.delivery.serve.mcp_tools import tools
from tickwheel.delivery.serve.tokens import Right, Tokens

from .conftest import Served

pytestmark = [pytest.mark.timeout(60), pytest.mark.filterwarnings("ignore::DeprecationWarning")]
FAR = "2096-10-02T07:06:40Z"
PRODUCES, READS = b"the-model-schedules", b"the-model-looks-on"
MCP = [sys.executable, "-m", "tickwheel.cli", "mcp"]
Call = Callable[..., Coroutine[Any, Any, tuple[bool, str]]]


def call_of(client: ModelClient) -> Call:
    async def call(tool: str, **arguments: Any) -> tuple[bool, str]:
        answer = await client.call_tool(tool, arguments)
        [text] = answer.content
        return not answer.is_error, text.text  # type: ignore[union-attr]

    return call


def play(server: Any, scenario: Callable[[Call], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        async with ModelClient(server) as client:
            await scenario(call_of(client))

    asyncio.run(main())


def inside(served: Served) -> Any:
    return tools(lambda token: Client(f"http://127.0.0.1:{served.port}", token, retry_s=0))


def test_a_model_schedules_looks_moves_and_cancels__D11(served: Served) -> None:
    async def scenario(call: Call) -> None:
        reminder = {"id": "tea", "payload": {"text": "ready"}, "due": FAR, "key": "kitchen"}
        assert await call("schedule", **reminder) == (True, "accepted: it is on disk, and will be delivered.")
        assert (await call("schedule", **reminder))[1].startswith("duplicate: ")
        is_done, text = await call("schedule", **reminder | {"payload": "other"})
        assert (is_done, "other content" in text) == (False, True)
        assert await call("list", key="kitchen") == (True, "id 'tea', key 'kitchen', due 2096-10-02T07:06:40.000Z")
        assert (await call("show", id="tea"))[1].startswith("No message has this name.")
        assert (await call("show", id="tea", key="kitchen"))[1].splitlines()[1] == 'payload: {"text":"ready"}'
        assert (await call("reschedule", id="tea", key="kitchen", delay_seconds=90_000))[1].startswith("rescheduled: ")
        assert (await call("cancel", id="tea", key="kitchen")) == (True, "cancelled: it is cancelled.")
        assert (await call("list", state="cancelled", key="kitchen"))[1].startswith("id 'tea'")
        assert (await call("list", key="nothing"))[1] == "No message is waiting."

    play(inside(served), scenario)


def test_an_event_lets_go_what_waits_for_it__D22(served: Served) -> None:
    async def scenario(call: Call) -> None:
        await call("schedule", id="remind", payload=1, due=FAR, key="ann", until_event=["answered"])
        event = {"key": "ann", "name": "answered", "id": "mail 1", "payload": {"by": "mail"}}
        assert await call("event", **event) == (True, "It let go 1 messages.")
        assert served.arrived.get(timeout=10).message.id == "remind"

    play(inside(served), scenario)


def test_answers_are_bounded_and_faults_are_told__D8(served: Served) -> None:
    async def scenario(call: Call) -> None:
        with Client(f"http://127.0.0.1:{served.port}") as client:
            client.put_many([(f"many {n}", FAR, "x", "bounded") for n in range(45)])
            client.put("long", "y" * 100_000, due=FAR)
        first = (await call("list", key="bounded"))[1].splitlines()
        assert (len(first), first[-1].startswith("There may be more: give the cursor ")) == (21, True)
        cursor = first[-1].removeprefix("There may be more: give the cursor ")
        assert (await call("list", key="bounded", cursor=cursor))[1].startswith("id 'many 20'")
        assert len((await call("show", id="long"))[1]) < 5_000
        for wrong in ({"due": "soon"}, {}, {"due": FAR, "destination": "nobody"}, {"due": FAR, "until_event": ["a"]}):
            assert not (await call("schedule", id="wrong", payload=1, **wrong))[0]
        assert not (await call("list", state="all"))[0]

    play(inside(served), scenario)


def test_arguments_are_taken_as_they_are_and_no_others__D8(served: Served) -> None:
    texts = ("null", "[1, 2]", '{"a": 1, "a": 2}', "12", "true", '"quoted"', "")

    async def scenario(call: Call) -> None:
        for n, text in enumerate(texts):
            assert (await call("schedule", id=f"text {n}", payload=text, due=FAR))[0]
        assert (await call("schedule", id="list", payload=[1, None], due=FAR))[0]
        for wrong, named in (
            ({"delay_ms": 5}, "'delay_ms'"),
            ({"due": FAR, "cron": "* * * * *"}, "'cron'"),
            ({"delay_seconds": -1}, "'delay_seconds'"),
            ({"delay_seconds": "soon"}, "'delay_seconds'"),
            ({"due": FAR, "until_event": "paid", "key": "k"}, "'until_event'"),
        ):
            is_done, said = await call("schedule", id="wrong", payload=1, **wrong)
            assert (is_done, named in said) == (False, True)
            assert "pydantic" not in said
            assert "The arguments are id, payload, due, delay_seconds, key, until_event, destination" in said
        for when in ({}, {"due": FAR, "delay_seconds": 5}):
            for tool, more in (("schedule", {"payload": 1}), ("reschedule", {})):
                is_done, said = await call(tool, id="wrong", **more, **when)
                assert (is_done, "give either due or delay_seconds" in said, "delay_ms" in said) == (False, True, False)
        assert not (await call("list", limit=5))[0]

    play(inside(served), scenario)
    with Client(f"http://127.0.0.1:{served.port}") as client:
        shown = [client.view.show(f"text {n}") for n in range(len(texts))]
        assert [json.loads(bytes(it.payload)) for it in shown if it and it.payload] == [*texts]

    async def main() -> None:
        async with ModelClient(inside(served)) as client:
            assert all(it.input_schema["additionalProperties"] is False for it in (await client.list_tools()).tools)

    asyncio.run(main())


def test_no_tool_reads_a_file_or_sets_an_address__D12(served: Served) -> None:
    async def main() -> None:
        async with ModelClient(inside(served)) as client:
            listed = (await client.list_tools()).tools
            assert {it.name for it in listed} == {"schedule", "list", "show", "cancel", "reschedule", "event"}
            given = {name for it in listed for name in it.input_schema["properties"]}
            assert given == {
                *("id", "payload", "due", "delay_seconds", "key", "until_event", "destination"),
                *("state", "cursor", "name"),
            }

    asyncio.run(main())


def ask_over_http(port: int) -> None:
    end_s = time.monotonic() + 30
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=5).close()
            break
        except OSError:
            assert time.monotonic() < end_s
            time.sleep(0.05)

    async def told(token: bytes | None, tool: str, **arguments: Any) -> tuple[bool, str]:
        headers = {} if token is None else {"authorization": f"Bearer {token.decode()}"}
        async with AsyncExitStack() as stack:
            http = await stack.enter_async_context(httpx2.AsyncClient(headers=headers))
            transport = streamable_http_client(f"http://127.0.0.1:{port}/mcp", http_client=http)
            return await call_of(await stack.enter_async_context(ModelClient(transport)))(tool, **arguments)

    async def main() -> None:
        reminder = {"id": "a", "payload": 1, "due": FAR}
        assert (await told(PRODUCES, "schedule", **reminder))[0]
        assert (await told(READS, "show", id="a"))[0]
        for token, tool, given in ((READS, "schedule", reminder), (PRODUCES, "cancel", {"id": "a"})):
            is_done, text = await told(token, tool, **given)
            assert (is_done, "403" in text) == (False, True)
        assert "401" in (await told(None, "show", id="a"))[1]

    asyncio.run(main())
    for origin in ("https://evil.example", f"http://127.0.0.1:{port}", "http://localhost:3000", "null"):
        page = {"origin": origin, "content-type": "application/json"}
        assert httpx2.post(f"http://127.0.0.1:{port}/mcp", content=b"{}", headers=page).status_code == 403


def test_over_http_each_request_has_the_rights_of_its_token__D12(tmp_path: Path) -> None:
    served = Served(tmp_path, tokens=Tokens({PRODUCES: Right.PRODUCE, READS: Right.READ}))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    target = f"http://127.0.0.1:{served.port}"
    with subprocess.Popen([*MCP, target, "--listen", f"127.0.0.1:{port}"], stderr=subprocess.DEVNULL) as process:
        try:
            ask_over_http(port)
        finally:
            process.terminate()
    served.close()


def test_over_standard_input_and_output_the_token_is_that_of_the_file__D12(tmp_path: Path) -> None:
    served = Served(tmp_path, tokens=Tokens({READS: Right.READ}))
    token = tmp_path / "token"
    token.write_bytes(READS)
    token.chmod(0o600)
    arguments = [*MCP[1:], f"http://127.0.0.1:{served.port}", "--token-file", str(token)]

    async def scenario(call: Call) -> None:
        assert (await call("list"))[0]
        assert "403" in (await call("schedule", id="a", payload=1, due=FAR))[1]

    play(StdioServerParameters(command=MCP[0], args=arguments), scenario)
    served.close()


def test_wrong_usage_is_a_sentence__D13(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_bytes(READS)
    token.chmod(0o600)
    server = "http://127.0.0.1:1"
    for given, said in (
        ([str(tmp_path / "s.db")], "is a file, from which nothing is delivered"),
        ([server, "--listen", "0.0.0.0:7401"], "is not on loopback"),
        ([server, "--listen", "127.0.0.1:0", "--token-file", str(token)], "over HTTP each request has its own token"),
    ):
        seen = CliRunner().invoke(command, ["mcp", *given])
        assert (seen.exit_code, said in " ".join(seen.stderr.split())) == (2, True), seen.stderr
