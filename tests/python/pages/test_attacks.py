"""What a reader of the pages found who tried to break them (D12, D14)."""

import http.client
import json
import os
import signal
import socket
import threading
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from delivery.serve.conftest import TOKEN, Served, ask
from tickwheel import SystemTimer, TimerForked
from tickwheel.delivery import Unavailable
from tickwheel.delivery.serve.tokens import ALL, Tokens
from tickwheel.pages import watch
from tickwheel.pages.live import watching
from tickwheel.pages.text import shown_text
from tickwheel.testing import ManualTimer

from .conftest import Open, url

pytestmark = pytest.mark.timeout(120)
FAR = "2090-01-01T00:00:00Z"


def put(served: Served, id_: str, **more: object) -> None:
    assert served.ask("POST", "/messages", {"id": id_, "due": FAR, **more}).status == 201


def put_many(served: Served, count: int, key: str) -> None:
    lines = (json.dumps({"id": f"m{number}", "key": key, "due": 4_000_000_000_000 + number}) for number in range(count))
    while part := [line for line, _ in zip(lines, range(20_000), strict=False)]:
        body = "\n".join(part).encode()
        reply = served.ask("POST", "/messages", body, headers={"content-type": "application/x-ndjson"})
        assert reply.status == 200


def shown(page: Page, name: str) -> None:
    page.locator("#rows").get_by_role("link", name=name, exact=True).click()
    expect(page.locator("#message")).to_be_visible()


def listed(page: Page, **filters: str) -> None:
    for label, value in filters.items():
        page.locator("#list").get_by_label(label.replace("_", " ")).fill(value)
    page.get_by_role("button", name="Show the list").click()


def test_times_without_seconds_are_times(served: Served, open_page: Open) -> None:
    put(served, "a")
    page = open_page(url(served))
    listed(page, due_from="2026-01-01T00:00:00")
    expect(page.locator("#answer")).to_have_text("1 messages.")
    shown(page, "a")
    page.get_by_label("New due time").fill("2090-01-02T09:00")
    page.get_by_role("button", name="Reschedule").click()
    expect(page.locator("#message-answer")).to_have_text("It is rescheduled.")


def test_keys_in_doubt_are_named_as_text(tmp_path: Path, open_page: Open) -> None:
    def send(delivery: object) -> None:
        raise Unavailable("<b>gone</b>", retry_after_s=3_600)

    served = Served(tmp_path, to=send)
    try:
        page = open_page(url(served))
        expect(page.locator("#status")).to_contain_text("Ready")
        expect(page.locator("#doubt")).to_be_hidden()
        assert served.ask("POST", "/messages", {"id": "a", "key": "<i>shop</i>", "delay_ms": 0}).status == 201
        expect(page.locator("#doubt-groups tbody th")).to_have_text("<i>shop</i>")
        expect(page.locator("#doubt-groups summary")).to_contain_text("1 key: <b>gone</b>, first ")
        expect(page.locator("#doubt-words")).to_contain_text("1 in doubt. 0 of 64 spare places are taken.")
    finally:
        served.close()


def test_a_line_separator_in_the_error_of_a_destination_ends_no_stream(tmp_path: Path, open_page: Open) -> None:
    def send(delivery: object) -> None:
        raise Unavailable("one line\u2028another", retry_after_s=0.05)

    served = Served(tmp_path, to=send)
    try:
        page = open_page(url(served))
        for id_ in "abcde":  # of fewer keys each waits by itself
            assert served.ask("POST", "/messages", {"id": id_, "delay_ms": 0}).status == 201
        expect(page.locator("#status")).to_contain_text("The destination is down")
    finally:
        served.close()


def test_the_next_minute_has_what_is_due_in_it_also_of_an_idle_timer(open_page: Open) -> None:
    timer = ManualTimer("idle")
    timer.after(70_000, int)
    timer.after(3_210_000, int)
    with watch(timer) as watched:
        page = open_page(watched.url)
        expect(page.locator("#due")).to_contain_text("next minute\n0", use_inner_text=True)
        timer.advance_to(35_000)
        expect(page.locator("#due")).to_contain_text("next minute\n1\nnext hour\n2", use_inner_text=True)
        timer.advance_to(3_190_000)
        expect(page.locator("#due")).to_contain_text("next minute\n1\nnext hour\n1", use_inner_text=True)


def test_a_page_that_is_not_seen_holds_no_connection(served: Served, open_page: Open) -> None:
    page = open_page(url(served))
    expect(page.locator("#status")).to_contain_text("Ready")
    hide = """(is) => {
        Object.defineProperty(document, 'hidden', {value: is, configurable: true});
        document.dispatchEvent(new Event('visibilitychange'));
    }"""
    frames = served.ports._live._frames
    with page.expect_event("requestfailed", lambda request: request.url.endswith("/events")):
        page.evaluate(hide, True)
    until_none = threading.Event()
    for _ in range(400):
        if frames.pages == 0 or until_none.wait(0.05):
            break
    assert frames.pages == 0
    with page.expect_request("**/events"):
        page.evaluate(hide, False)


def test_a_list_looks_on_where_one_look_finds_nothing(served: Served, open_page: Open) -> None:
    put_many(served, 101_000, "many")
    put(served, "wanted", key="few", due="2110-01-01T00:00:00Z")
    page = open_page(url(served))
    listed(page, of_key="few")
    expect(page.locator("#answer")).to_have_text("1 messages.")


def test_the_page_escapes_what_the_commands_escape(served: Served, open_page: Open) -> None:
    codes = [*range(0xD800), *range(0xE000, 0x10800), *range(0xE0000, 0xE0200)]
    page = open_page(url(served))
    told = page.evaluate("codes => codes.map(code => shown(String.fromCodePoint(code)))", codes)
    assert told == [shown_text(chr(code)) for code in codes]


def test_names_that_differ_look_different(served: Served, open_page: Open) -> None:
    put(served, "order-37")
    put(served, "order-\u202e73\x07")
    page = open_page(url(served))
    shown(page, "order-\\u202e73\u2407")
    page.get_by_role("button", name="Cancel this message").click()
    expect(page.locator("#sure-words")).to_have_text("Cancel the message order-\\u202e73\u2407?")
    page.get_by_role("button", name="Yes").click()
    expect(page.locator("#message-answer")).to_have_text("It is cancelled.")
    page.get_by_role("button", name="Close").click()
    expect(page.locator("#rows tbody tr").nth(1)).to_contain_text("cancelled")
    assert served.ask("GET", "/messages/order-37").body["state"] == "waiting"


def test_a_token_that_is_taken_away_ends_the_stream(tmp_path: Path) -> None:
    served = Served(tmp_path, tokens=Tokens({TOKEN: ALL}))
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=20)
    try:
        connection.request("GET", "/events", headers={"authorization": f"Bearer {TOKEN.decode()}"})
        answer = connection.getresponse()
        assert answer.readline() == b"event: hello\n"
        served.access.tokens = Tokens({b"another-token-of-today": ALL})  # what SIGHUP does
        assert answer.read().count(b"event: figures") <= 2, "it ends"
    finally:
        connection.close()
        served.close()


def test_a_token_that_can_not_be_one_is_asked_for_again(tmp_path: Path, open_page: Open) -> None:
    served = Served(tmp_path, tokens=Tokens({TOKEN: ALL}))
    try:
        page = open_page(url(served))
        dialog = page.locator("#token")
        dialog.get_by_label("Token").fill(f"{TOKEN.decode()}\u200b")
        dialog.get_by_role("button", name="Use it").click()
        expect(dialog).to_contain_text("letters, digits and signs only")
        dialog.get_by_label("Token").fill(TOKEN.decode())
        dialog.get_by_role("button", name="Use it").click()
        expect(page.locator("#answer")).to_have_text("There are no such messages.")
        served.access.tokens = Tokens({b"another-token-of-today": ALL})
        expect(dialog).to_contain_text("the token is wrong")
    finally:
        served.close()


def test_a_payload_is_shown_as_it_is(served: Served, open_page: Open) -> None:
    body = b'{"id": "big", "due": 4000000000000, "payload": {"order": 12345678901234567890, "price": 1.0}}'
    assert ask(served.port, "POST", "/messages", body).status == 201
    put(served, "no", payload=False)
    page = open_page(url(served))
    shown(page, "big")
    expect(page.locator("#details")).to_contain_text("12345678901234567890")
    expect(page.locator("#details")).to_contain_text("1.0")
    page.get_by_role("button", name="Close").click()
    shown(page, "no")
    expect(page.locator("#details pre")).to_have_text("false")


def test_a_late_answer_does_not_come_into_the_next_list(served: Served, open_page: Open) -> None:
    put_many(served, 200, "many")
    assert served.ask("DELETE", "/messages/m0?key=many").status == 200
    page = open_page(url(served))
    expect(page.locator("#rows tbody tr")).to_have_count(20)
    page.locator("#more").dblclick()
    expect(page.locator("#answer")).to_contain_text("messages, and there may be more.")
    expect(page.locator("#rows tbody tr")).to_have_count(40)
    held: list[Any] = []
    page.route("**/messages?state=waiting*", lambda route: held.append(route))
    listed(page)
    page.locator("#list select").select_option("cancelled")
    listed(page)
    expect(page.locator("#answer")).to_have_text("1 messages.")
    with page.expect_response("**/messages?state=waiting*"):
        held[0].continue_()
    expect(page.locator("#rows tbody tr")).to_have_count(1)
    assert page.locator("#answer").text_content() == "1 messages."


def test_what_fails_is_said_where_the_operator_looks(served: Served, open_page: Open) -> None:
    put(served, "a")
    page = open_page(url(served), width=390)
    page.route("**/pause", lambda route: route.fulfill(status=503, json={"reason": "not now", "allowed": "later"}))
    page.locator("#pause").click()
    page.locator("#sure").get_by_role("button", name="Yes").click()
    expect(page.locator("#pause-answer")).to_have_text("not now (allowed: later)")
    place = page.locator("#pause-answer").bounding_box()
    assert place is not None
    assert place["y"] < 800


def test_after_a_cancel_by_keyboard_the_focus_is_in_the_dialog(served: Served, open_page: Open) -> None:
    put(served, "a")
    page = open_page(url(served))
    shown(page, "a")
    page.get_by_role("button", name="Cancel this message").focus()
    for key in ("Enter", "Shift+Tab", "Enter"):
        page.keyboard.press(key)
    expect(page.locator("#message-answer")).to_have_text("It is cancelled.")
    assert page.evaluate("document.activeElement.id") == "close"


@pytest.mark.parametrize("id_", ["..", ".", "a//b"])
def test_a_message_whose_id_a_browser_would_take_for_a_path_is_shown(id_: str, served: Served, open_page: Open) -> None:
    put(served, id_)
    page = open_page(url(served))
    page.locator("#rows").get_by_role("link", name=id_, exact=True).click()
    expect(page.locator("#message-title")).to_have_text(id_)
    expect(page.locator("#details")).to_contain_text("waiting")


def test_what_is_tried_again_is_what_the_list_shows(tmp_path: Path, open_page: Open) -> None:
    def send(delivery: object) -> None:
        raise ValueError("no")

    served = Served(tmp_path, to=send, max_attempts=1)
    try:
        for key in ("mine", "theirs"):
            assert served.ask("POST", "/messages", {"id": "a", "key": key, "delay_ms": 0}).status == 201
        page = open_page(url(served))
        expect(page.locator("#flow")).to_contain_text("dead letters\n2", use_inner_text=True)
        page.locator("#list select").select_option("dead")
        listed(page, of_key="mine")
        expect(page.locator("#answer")).to_have_text("1 dead letters.")
        page.locator("#requeue-all").click()
        expect(page.locator("#sure-words")).to_have_text("Try all messages again that were given up: key mine?")
        with page.expect_request("**/actions") as sent:
            page.locator("#sure").get_by_role("button", name="Yes").click()
        assert json.loads(sent.value.post_data or "") == {"kind": "requeue", "key": "mine"}
    finally:
        served.close()


def test_the_seconds_without_a_connection_are_in_the_chart(open_page: Open, browser: Browser) -> None:
    with watch(ManualTimer("a")) as watched:
        page = open_page(watched.url)
        expect(page.locator("#status")).to_contain_text("Watching")
        said = page.evaluate(
            """() => { lateness.columns = []; lateness.before = null; lateness.at_ms = 0;
            lateness.add(1000, []); lateness.add(2000, [[100, 10]]); lateness.before = null;
            lateness.add(67000, [[100, 10]]);
            return [lateness.columns.length, lateness.words.textContent] }"""
        )
    assert said == [65, "No calls in the last minute."]


def test_another_site_can_not_load_the_stream_either(served: Served) -> None:
    of_a_page = {"sec-fetch-site": "same-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "iframe"}
    assert served.ask("GET", "/status", headers=of_a_page).status == 403
    assert (
        served.ask("GET", "/events", headers={"sec-fetch-site": "cross-site", "sec-fetch-dest": "empty"}).status == 403
    )
    by_a_link = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    assert served.ask("GET", "/", headers=by_a_link).status == 200
    assert served.ask("GET", "/status", headers={"sec-fetch-site": "none"}).status == 200


def test_places_are_taken_before_anything_is_sent(served: Served) -> None:
    visitors = [socket.create_connection(("127.0.0.1", served.port), timeout=20) for _ in range(60)]
    for visitor in visitors:
        visitor.sendall(b"GET /events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    answers = [visitor.recv(12) for visitor in visitors]
    for visitor in visitors:
        visitor.close()
    assert sorted(answers) == [b"HTTP/1.1 200"] * 32 + [b"HTTP/1.1 503"] * 28


# --- The page of a timer -----------------------------------------------------


def visitor(address: str) -> socket.socket:
    port = int(address.rstrip("/").rpartition(":")[2])
    made = socket.create_connection(("127.0.0.1", port), timeout=20)
    made.sendall(f"GET /events HTTP/1.0\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
    return made


def test_a_page_that_left_takes_no_place_of_a_timer_that_is_shut_down() -> None:
    timer = SystemTimer("over")
    timer.shutdown()
    with watch(timer) as watched:
        streams = watched._server.streams
        for _ in range(16):
            with visitor(watched.url) as left:
                assert left.recv(15) == b"HTTP/1.0 200 OK"
        for _ in range(16):
            assert streams.acquire(timeout=20), "it was given back"


def test_a_page_too_many_is_told_why(open_page: Open) -> None:
    with watch(ManualTimer("a")) as watched:
        others = [visitor(watched.url) for _ in range(16)]
        for other in others:
            assert other.recv(15) == b"HTTP/1.0 200 OK"
        page = open_page(watched.url)
        expect(page.locator("#status")).to_contain_text("16 pages are open already")
        for other in others:
            other.close()


def test_many_pages_cost_no_more_looks_than_one(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    timer = ManualTimer("a")
    monkeypatch.setattr(watching, "_FRAME_S", 0.02)
    monkeypatch.setattr(watching, "wheel_frame", lambda timer: looks.append(1) or {"wheel": len(looks)})
    monkeypatch.setattr(watching, "figures_frame", lambda timer: {})
    server = watching._Server(timer, 0)
    pages = [server.events() for _ in range(10)]
    told = [[next(page) for _ in range(2)][1] for page in pages]
    server.server_close()
    assert len({data for _, data in told}) < 10
    assert len(looks) < 10


@pytest.mark.parametrize("port", [70_000, -1, True, "7400"])
def test_a_port_that_is_none_is_refused_in_plain_words(port: object) -> None:
    with pytest.raises(ValueError, match="port must be an int from 0 to 65535"):
        watch(ManualTimer("a"), port=port)  # type: ignore[arg-type]


def test_a_forked_child_can_close_it_and_not_open_one() -> None:
    with SystemTimer("parent") as timer, watch(timer) as watched:
        child = os.fork()
        if not child:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)  # a child that hangs ends by that
            signal.alarm(20)
            watched.close()
            try:
                watch(timer)
            except TimerForked:
                os._exit(0)
            os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
        with visitor(watched.url) as other:
            assert other.recv(15) == b"HTTP/1.0 200 OK", "that of the parent is open"


def test_a_head_and_a_query_have_an_answer() -> None:
    with watch(ManualTimer("a")) as watched:
        port = int(watched.url.rstrip("/").rpartition(":")[2])
        for method, path in (("HEAD", "/"), ("HEAD", "/events"), ("GET", "/?from=a-mail")):
            connection = http.client.HTTPConnection("LOCALHOST", port, timeout=20)
            connection.request(method, path)
            assert connection.getresponse().status == 200
            connection.close()
