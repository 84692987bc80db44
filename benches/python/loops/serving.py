"""The works with sockets: a server on the measured loop, and clients in another process that keep it busy."""

import asyncio
import subprocess
import sys
import time
from typing import Final, cast

from .works import Figures, Plan

CONNECTIONS: Final = 100
IDLE_S: Final = 30.0
ECHO_CLIENT: Final = """
import selectors, socket, sys
port, connections, rounds = map(int, sys.argv[1:])
sockets = [socket.create_connection(("127.0.0.1", port), timeout=20) for _ in range(connections)]
for _ in range(rounds):
    for it in sockets:
        it.sendall(b"x" * 64)
    for it in sockets:
        left = 64
        while left:
            left -= len(it.recv(left))
"""
HTTP_CLIENT: Final = """
import socket, sys
port, connections, rounds = map(int, sys.argv[1:])
request = b"GET / HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n"
sockets = [socket.create_connection(("127.0.0.1", port), timeout=20) for _ in range(connections)]
for _ in range(rounds):
    for it in sockets:
        it.sendall(request)
    for it in sockets:
        found = b""
        while not found.endswith(b"hello"):
            found += it.recv(65536)
"""


class Echo(asyncio.Protocol):
    """Sends back what comes, and closes what is silent for long: the time-out is renewed with each message."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the loop."""
        self.transport = cast(asyncio.Transport, transport)  # uvloop's are no subclass
        self.loop = asyncio.get_running_loop()
        self.idle = self.loop.call_later(IDLE_S, transport.close)

    def data_received(self, data: bytes) -> None:
        """Called by the loop."""
        self.idle.cancel()
        self.idle = self.loop.call_later(IDLE_S, self.transport.close)
        self.transport.write(data)

    def connection_lost(self, _: Exception | None) -> None:
        """Called by the loop."""
        self.idle.cancel()


async def echo(plan: Plan) -> Figures:
    """The server's CPU for each message, with a hundred connections."""
    server = await asyncio.get_running_loop().create_server(Echo, "127.0.0.1", 0)
    messages = max(200, int(60_000 * plan.pace))
    cpu_us = await cpu_per_message(server.sockets[0].getsockname()[1], ECHO_CLIENT, messages)
    return {"echo server with idle time-outs, CPU per message": cpu_us}


async def http(plan: Plan) -> Figures:
    """The server's CPU for each request; aiohttp renews a keep-alive time-out with each."""
    from aiohttp import web

    async def hello(_: web.Request) -> web.Response:
        return web.Response(text="hello")

    application = web.Application()
    application.router.add_get("/", hello)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    [address] = runner.addresses
    cpu_us = await cpu_per_message(address[1], HTTP_CLIENT, max(200, int(20_000 * plan.pace)))
    return {"aiohttp, CPU per request": cpu_us}


async def cpu_per_message(port: int, client: str, messages: int) -> float:
    """In microseconds, once it is warm."""
    spent_s = 0.0
    for rounds in (max(1, messages // CONNECTIONS // 5), messages // CONNECTIONS):
        command = [sys.executable, "-c", client, str(port), str(CONNECTIONS), str(rounds)]
        started_s = time.process_time()
        process = await asyncio.to_thread(subprocess.run, command, check=False)
        if process.returncode:
            raise RuntimeError("the clients failed")
        spent_s = time.process_time() - started_s
    return spent_s / (rounds * CONNECTIONS) * 1e6
