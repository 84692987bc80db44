"""Debian's nginx with a prefix in front of `serve`, by the lines of `docs/operations.md` (D12)."""

import http.client
import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import expect

from delivery.serve.conftest import TOKEN, Served, ask
from tickwheel.delivery.queue.server_view import ServerView
from tickwheel.delivery.serve.tokens import ALL, Tokens

from .conftest import Open

pytestmark = pytest.mark.timeout(120)
PAGE = Path(__file__).parents[3] / "docs/operations.md"
FAR_MS = 4_000_000_000_000
HEADERS = {"authorization": f"Bearer {TOKEN.decode()}"}
SITE = """
user root; # of the folder; another user who starts nginx is not changed
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
    server {{
        listen 127.0.0.1:{port};
        {locations}
    }}
}}
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    opened = Served(tmp_path_factory.mktemp("served"), tokens=Tokens({TOKEN: ALL}))
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def proxy(served: Served, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of nginx, which has the lines of the page."""
    nginx = shutil.which("nginx") or shutil.which("/usr/sbin/nginx")
    if nginx is None and os.environ.get("CI") == "true":
        pytest.fail("there is no nginx: apt-get install nginx")
    if nginx is None:
        pytest.skip("there is no nginx: apt-get install nginx")
    [locations] = re.findall(r"```nginx\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    folder = tmp_path_factory.mktemp("nginx")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    text = SITE.format(
        folder=folder, port=port, locations=locations.replace("127.0.0.1:7400", f"127.0.0.1:{served.port}")
    )
    (folder / "nginx.conf").write_text(text)
    with subprocess.Popen([nginx, "-c", folder / "nginx.conf", "-g", "daemon off;"]) as process:
        until_s = time.monotonic() + 20
        while not (folder / "nginx.pid").exists() and time.monotonic() < until_s:
            assert process.poll() is None, (folder / "error.log").read_text()
        yield port
        process.terminate()


@pytest.mark.parametrize("id_", ["a//b", "//", "a/../b", "..", ".", "a%2Fb", "a?b", "a b+c", "ü\n"])
def test_every_id_is_found_moved_and_cancelled_through_a_proxy__D11(id_: str, proxy: int) -> None:
    one = f"/timers/message?id={quote(id_, safe='')}"
    put = ask(proxy, "POST", "/timers/messages", {"id": id_, "due": FAR_MS}, headers=HEADERS)
    assert (put.status, put.body["id"]) == (201, id_)
    assert ask(proxy, "GET", one, headers=HEADERS).body["id"] == id_
    assert ask(proxy, "PATCH", one, {"due": FAR_MS + 1}, headers=HEADERS).body["state"] == "rescheduled"
    shown = ServerView(f"http://127.0.0.1:{proxy}/timers", TOKEN).show(id_)
    assert shown is not None
    assert shown.id == id_
    assert ask(proxy, "DELETE", one, headers=HEADERS).body == {"id": id_, "key": None, "state": "cancelled"}


def test_an_event_passes_a_proxy_at_once__D14(proxy: int) -> None:
    stream = http.client.HTTPConnection("127.0.0.1", proxy, timeout=20)
    stream.request("GET", "/timers/events", headers=HEADERS)
    answer = stream.getresponse()
    assert answer.status == 200
    assert answer.readline() == b"event: hello\n"
    stream.close()


def test_a_body_of_the_largest_payload_passes_a_proxy__D12(proxy: int) -> None:
    put = ask(
        proxy,
        "POST",
        "/timers/messages",
        {"id": "large", "due": FAR_MS, "payload": "x" * ((1 << 20) - 2)},
        headers=HEADERS,
    )
    assert put.status == 201


def test_health_passes_a_proxy_without_a_token__D12(proxy: int) -> None:
    assert ask(proxy, "GET", "/timers/readyz").status == 200
    assert ask(proxy, "GET", "/timers/status").status == 401


def test_the_page_works_below_a_prefix__D14(proxy: int, open_page: Open) -> None:
    put = ask(proxy, "POST", "/timers/messages", {"id": "x//b", "due": FAR_MS}, headers=HEADERS)
    assert put.status == 201
    page = open_page(f"http://127.0.0.1:{proxy}/timers")
    asked = page.locator("#token").get_by_label("Token")
    asked.fill(TOKEN.decode())
    asked.press("Enter")
    expect(page.locator("#status")).to_contain_text("Ready.")
    expect(page.locator("#front")).to_contain_text("pending")
    form = page.locator("#find")
    form.get_by_label("Id").fill("x//b")
    form.get_by_role("button").click()
    expect(page.locator("#message-title")).to_contain_text("x//b")
    expect(page.locator("#details")).to_contain_text("2096-10-02")
