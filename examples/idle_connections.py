"""An asyncio server with very many connections, each of which is closed when it was silent for too long.

Each message moves the idle time-out of its connection, in O(1) however many connections there are. For the
demonstration the clients are here too: all of them send some rounds of messages, every second one goes silent then, and
the server closes exactly those.

    python examples/idle_connections.py [connections]
"""

import asyncio
import resource
import sys
import time

from tickwheel import aio

IDLE_S = 2.0
ROUNDS = 5


class Line(asyncio.Protocol):
    """Echoes what comes, and closes a connection after `IDLE_S` without a message."""

    open_count = 0
    closed_idle = 0
    resets = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.idle = aio.timers().call_later(IDLE_S, self.close_idle)
        Line.open_count += 1

    def data_received(self, data: bytes) -> None:
        self.idle.reschedule(IDLE_S)
        Line.resets += 1
        self.transport.write(data)

    def close_idle(self) -> None:
        Line.closed_idle += 1
        self.transport.close()

    def connection_lost(self, _: Exception | None) -> None:
        self.idle.cancel()
        Line.open_count -= 1


async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One message, and its echo."""
    writer.write(b"hello\n")
    await reader.readexactly(6)


async def run(count: int) -> None:
    server = await asyncio.get_running_loop().create_server(Line, "127.0.0.1", 0, backlog=1000)
    port = server.sockets[0].getsockname()[1]
    clients = [await asyncio.open_connection("127.0.0.1", port) for _ in range(count)]
    print(f"{count} connections")
    for _ in range(ROUNDS):
        for client in clients:
            await talk(*client)
    silent_s = time.monotonic()
    alive, silent = clients[::2], clients[1::2]
    print(f"{Line.resets} messages, as many time-outs reset; now {len(silent)} connections are silent")
    while Line.closed_idle < len(silent) and time.monotonic() < silent_s + 10 * IDLE_S:
        for client in alive:
            await talk(*client)
        await asyncio.sleep(IDLE_S / 4)
    await asyncio.gather(*(reader.read() for reader, _ in silent))
    print(f"{Line.closed_idle} were closed, none before {IDLE_S:g} s, and {Line.open_count} are open")
    for _, writer in clients:
        writer.close()
    server.close()


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    open_files = 2 * count + 50  # both ends of each connection are in this process
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < open_files:
        sys.exit(f"{count} connections need {open_files} open files, the hard limit is {hard}: take fewer")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, open_files), hard))
    with asyncio.Runner(loop_factory=aio.new_event_loop) as runner:
        runner.run(run(count))


if __name__ == "__main__":
    main()
