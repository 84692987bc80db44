"""A server that gives the answers it is told to, and knows what was asked."""

import socket
import threading
from collections.abc import Callable
from contextlib import suppress

Answers = Callable[[int, bytes], bytes | None]
"""From the number of a request, from 0, and its body to an answer; `None`: the connection is closed without one."""


def answer(status: int, body: bytes, *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status} X", f"content-length: {len(body)}", "connection: close", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


def accepted(body: bytes) -> bytes:
    """As `serve` answers lines."""
    count = body.count(b"\n") + 1
    return answer(200, b"".join(b'{"line":%d,"status":201,"state":"accepted"}\n' % n for n in range(1, count + 1)))


class Scripted:
    def __init__(self, answers: Answers, port: int = 0) -> None:
        self._answers = answers
        self.asked: list[bytes] = []
        self._socket = socket.create_server(("127.0.0.1", port))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._socket.accept()
                threading.Thread(target=self._answer, args=(near,), daemon=True).start()

    def _answer(self, near: socket.socket) -> None:
        with near, near.makefile("rb") as stream, suppress(OSError):
            if not (line := stream.readline()):
                return
            size = 0
            while (header := stream.readline().strip()) != b"":
                name, _, value = header.partition(b":")
                size = int(value) if name.lower() == b"content-length" else size
            body = stream.read(size)
            self.asked.append(line.strip())
            if (given := self._answers(len(self.asked) - 1, body)) is not None:
                near.sendall(given)

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def __enter__(self) -> "Scripted":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
