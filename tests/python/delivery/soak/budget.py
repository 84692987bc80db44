"""How much memory a process that delivers takes for large payloads: by `put`, and over HTTP (rule D8).

    PYTHONPATH=tests/python python -m delivery.soak.budget [put | put-bytes | http=CLIENTS]... [--count N] [--after S]

Each load runs in a process of its own: COUNT messages of 1 MiB go to a webhook that takes 2 s, in 50 keys. Numbers are
resident memory in MiB above that of the same process before the first message: the peak, and when all has been
delivered for `--after` seconds.
"""

import asyncio
import contextlib
import http.client
import json
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

MIB = 1 << 20
KEYS = 50
TEXT = "x" * (MIB - 2)  # with its quotes 1 MiB
TAKES_S = 2.0


def memory(pid: int | str, what: str) -> int:
    """`VmRSS`, or the peak `VmHWM`, in bytes."""
    [kib] = re.findall(rf"{what}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(kib) * 1024


def forget_peak(pid: int | str) -> None:
    """From now on the peak is that of what follows."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


async def receive() -> None:
    """Answers each request after `TAKES_S`; the first line of the output is the port."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                [size] = re.findall(rb"content-length: (\d+)", head.lower())
                await reader.readexactly(int(size))
                await asyncio.sleep(TAKES_S)
                writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, limit=2 * MIB)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


@contextlib.contextmanager
def receiver() -> Iterator[str]:
    """The URL of one, in a process of its own."""
    with subprocess.Popen([sys.executable, __file__, "receive"], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/hook"
        finally:
            process.kill()


def put(kind: str, store: str, url: str, count: str, after_s: str) -> None:
    """In a process of its own; its output is what it found."""
    from tickwheel.delivery import DeliveryQueue

    with DeliveryQueue(store, to=url) as queue:
        queue.put("first", "text", delay_ms=0)
        assert queue.wait_until_empty(60)
        payload = TEXT if kind == "put" else TEXT.encode()  # which is base64 in a request
        empty = memory("self", "VmRSS")
        forget_peak("self")
        for number in range(int(count)):
            queue.put(f"{number}", payload, delay_ms=0, key=f"key {number % KEYS}")
        assert queue.wait_until_empty(600)
        peak = memory("self", "VmHWM") - empty
        time.sleep(float(after_s))
        print(json.dumps({"empty": empty, "peak": peak, "after": memory("self", "VmRSS") - empty}))


def by_put(kind: str, count: int, after_s: float) -> dict[str, int]:
    """One after the other, in a process with a queue."""
    with receiver() as url, tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, "put-here", kind, f"{folder}/store.db", url, str(count), str(after_s)]
        found: dict[str, int] = json.loads(
            subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=600).stdout
        )
        return found


def by_http(clients: int, count: int, after_s: float) -> dict[str, int]:
    """`tickwheel serve`, and clients that wait for each answer, and try again after a 503."""
    with receiver() as url, tempfile.TemporaryDirectory() as folder:
        options = ["--store", f"{folder}/store.db", "--to", url, "--listen", "127.0.0.1:0"]
        command = [sys.executable, "-m", "tickwheel", "serve", *options]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as serve:
            assert serve.stderr is not None
            [port] = next(
                found for line in serve.stderr if (found := re.findall(r"listening on http://.*:(\d+)", line))
            )
            threading.Thread(target=serve.stderr.read, daemon=True).start()
            try:
                ask(int(port), "GET", "/status")
                ask(int(port), "POST", "/messages", json.dumps({"id": "first", "delay_ms": 0, "payload": 1}))
                ask(int(port), "GET", "/status")
                return load(serve.pid, int(port), clients, count, after_s)
            finally:
                serve.terminate()
                serve.wait(60)


def load(pid: int, port: int, clients: int, count: int, after_s: float) -> dict[str, int]:
    """What the process takes while these clients send this."""
    empty, numbers, again = memory(pid, "VmRSS"), iter(range(count)), []
    forget_peak(pid)
    lock = threading.Lock()

    def send() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port)
        while True:
            with lock:
                if (number := next(numbers, None)) is None:
                    connection.close()
                    return
            body = b'{"id": "%d", "key": "key %d", "delay_ms": 0, "payload": "%s"}' % (
                number,
                number % KEYS,
                TEXT.encode(),
            )
            while True:
                try:
                    connection.request("POST", "/messages", body)
                    answer = connection.getresponse()
                    answer.read()
                except ConnectionError:  # the answer came before the end of the body
                    answer = None
                    connection.close()
                if answer is not None and answer.status in (200, 201, 202):
                    break
                assert answer is None or answer.status == 503, answer.status
                again.append(number)
                time.sleep(0.2)

    threads = [threading.Thread(target=send) for _ in range(clients)]
    started_s = time.monotonic()
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    accepted_s = time.monotonic() - started_s
    while is_waiting(port):
        time.sleep(0.1)
    delivered_s = time.monotonic() - started_s
    peak = memory(pid, "VmHWM") - empty
    time.sleep(after_s)
    found = {"empty": empty, "peak": peak, "after": memory(pid, "VmRSS") - empty, "again": len(again)}
    return found | {"accepted_s": round(accepted_s), "delivered_s": round(delivered_s)}


def is_waiting(port: int) -> bool:
    """Whether messages have no outcome yet."""
    text = ask(port, "GET", "/metrics").decode()
    return any(float(found) for found in re.findall(r"^tickwheel_messages\{.*\} (\S+)$", text, re.MULTILINE))


def ask(port: int, method: str, path: str, body: str | None = None) -> bytes:
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port)) as connection:
        connection.request(method, path, body)
        return connection.getresponse().read()


def main() -> None:
    given = sys.argv[1:]
    if given[:1] == ["receive"]:
        asyncio.run(receive())
    elif given[:1] == ["put-here"]:
        put(*given[1:])
    else:
        count = int(given[given.index("--count") + 1]) if "--count" in given else 0
        after_s = float(given[given.index("--after") + 1]) if "--after" in given else 60.0
        for name in [it for it in given if it.partition("=")[0] in ("put", "put-bytes", "http")] or [
            "put",
            "put-bytes",
            "http=4",
            "http=16",
        ]:
            _, _, clients = name.partition("=")
            found = by_http(int(clients), count or 900, after_s) if clients else by_put(name, count or 600, after_s)
            shown = {what: round(n / MIB) if n > MIB else n for what, n in found.items()}
            print(f"{name}: {shown}", flush=True)


if __name__ == "__main__":
    main()
