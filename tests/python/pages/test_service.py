"""The page of `tickwheel serve` in a real browser (D14): what it shows, and what an operator does with it."""

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from delivery.serve.conftest import TOKEN, Served
from tickwheel.delivery import Delivery, Unavailable
from tickwheel.delivery.serve.tokens import ALL, Right, Tokens
from tickwheel.delivery.sight import messages

from .conftest import Open, url

pytestmark = pytest.mark.timeout(120)
READER = b"only-for-looking-at"
MARKUP = "<img src=x onerror=alert(1)>"


def put(served: Served, id_: str, delay_ms: float = 3_600_000, **more: object) -> None:
    assert served.ask("POST", "/messages", {"id": id_, "delay_ms": delay_ms, **more}).status == 201


def listed(page: Page, state: str) -> None:
    page.locator("#list select").select_option(state)
    page.get_by_role("button", name="Show the list").click()


def test_what_waits_is_counted_and_listed(served: Served, open_page: Open):
    put(served, "soon", 30_000)
    put(served, "tomorrow", 80_000_000, key="k")
    page = open_page(url(served))
    expect(page.locator("#status")).to_have_text("Ready.")
    expect(page.locator("#minutes-words")).to_have_text("The next hour: 1, at most 1 in a minute")
    expect(page.locator("#hours-words")).to_have_text("The next day: 2, at most 1 in an hour")
    expect(page.locator("#rows tbody tr")).to_have_count(2)
    expect(page.locator("#rows tbody tr").nth(1)).to_contain_text("tomorrow")
    expect(page.locator("#front")).to_contain_text("pending")


@pytest.mark.parametrize("count", [0, 10])
def test_it_fits_a_narrow_screen(served: Served, open_page: Open, count):
    for number in range(count):
        put(served, f"{number} {'wide ' * 30}", key="unbroken" * 30)
    page = open_page(url(served), width=390, dark=True)
    expect(page.locator("#answer")).to_contain_text("10 messages." if count else "There are no such messages.")
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    if count:
        page.locator("#rows a").first.click()
        expect(page.locator("#message")).to_be_visible()
        assert page.evaluate("document.querySelector('#message').getBoundingClientRect().right") <= 390


def test_a_message_is_found_moved_and_cancelled(served: Served, open_page: Open):
    put(served, "a/b?c", key="k#1", payload={"text": MARKUP})
    page = open_page(url(served))
    form = page.locator("#find")
    form.get_by_label("Id").fill("a/b?c")
    form.get_by_label("Key").fill("k#1")
    form.get_by_role("button").click()
    expect(page.locator("#details")).to_contain_text(MARKUP)
    page.get_by_label("New due time").fill("2090-01-02T03:04:05.678")
    page.get_by_role("button", name="Reschedule").click()
    expect(page.locator("#message-answer")).to_have_text("It is rescheduled.")
    expect(page.locator("#details")).to_contain_text("2090-01-02T03:04:05.678Z")
    page.get_by_role("button", name="Cancel this message").click()
    page.get_by_role("button", name="No").click()
    assert served.ask("GET", "/messages/a%2Fb%3Fc?key=k%231").body["state"] == "waiting"
    page.get_by_role("button", name="Cancel this message").click()
    page.get_by_role("button", name="Yes").click()
    expect(page.locator("#message-answer")).to_have_text("It is cancelled.")
    assert served.ask("GET", "/messages/a%2Fb%3Fc?key=k%231").body["state"] == "cancelled"
    expect(page.get_by_role("button", name="Cancel this message")).to_be_hidden()


def test_everything_can_be_done_by_keyboard(served: Served, open_page: Open):
    put(served, "only one")
    page = open_page(url(served))
    expect(page.locator("#rows a")).to_be_visible()  # with the first figures
    reached = []
    for _ in range(40):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.textContent.trim()"))
        if reached[-1] == "only one":
            break
    assert (reached[0], reached[-1]) == ("To the figures", "only one")
    page.keyboard.press("Enter")
    expect(page.locator("#message")).to_be_visible()
    page.get_by_role("button", name="Cancel this message").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#sure")).to_be_visible()
    assert page.evaluate("document.activeElement.textContent") == "No", "the safe answer has the focus"
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Enter")
    expect(page.locator("#message-answer")).to_have_text("It is cancelled.")
    page.keyboard.press("Escape")
    expect(page.locator("#message")).to_be_hidden()


def test_sending_is_paused_and_resumed(served: Served, open_page: Open):
    page = open_page(url(served))
    page.get_by_role("button", name="Pause sending").click()
    page.get_by_role("button", name="Yes").click()
    expect(page.locator("#status")).to_contain_text("Paused")
    put(served, "held", 0)
    page.get_by_role("button", name="Resume sending").click()
    assert served.arrived.get(timeout=20).message.id == "held"
    expect(page.locator("#status")).to_contain_text("Delivering")
    expect(page.locator("#late-words")).to_contain_text("1 messages in the last minute")


def test_what_was_given_up_is_shown_and_tried_again(tmp_path: Path, open_page: Open):
    works: list[bool] = []

    def send(delivery: object) -> None:
        if not works:
            raise ValueError(f"not today {MARKUP}")

    served = Served(tmp_path, to=send, max_attempts=1)
    try:
        put(served, "refused", 0)
        page = open_page(url(served))
        expect(page.locator("#flow")).to_contain_text("new dead letters\n1", use_inner_text=True)
        expect(page.locator("#tile-dead")).to_contain_text(
            "Dead letters\n1\n1 new since the start", use_inner_text=True
        )
        listed(page, "dead")
        expect(page.locator("#rows tbody tr")).to_contain_text(f"not today {MARKUP}")
        works.append(True)
        page.get_by_role("link", name="refused").click()
        page.get_by_role("button", name="Try it again").click()
        expect(page.locator("#message-answer")).to_contain_text("requeued")
        expect(page.locator("#flow")).to_contain_text("delivered\n1", use_inner_text=True)
        expect(page.locator("#tile-dead")).to_contain_text(
            "Dead letters\n0\n1 new since the start", use_inner_text=True
        )
    finally:
        served.close()


def test_a_list_of_which_one_look_finds_few_is_whole(tmp_path: Path, open_page: Open, monkeypatch: pytest.MonkeyPatch):
    def send(delivery: Delivery) -> None:
        if delivery.message.id.startswith("bad"):
            raise ValueError("not today")

    monkeypatch.setattr(messages, "LOOKED_AT", 5)
    served = Served(tmp_path, to=send, max_attempts=1)
    try:
        for number in range(12):
            put(served, f"{'bad' if number % 4 == 0 else 'good'} {number}", 0)
        assert served.running.wait(20)
        page = open_page(url(served))
        expect(page.locator("#status")).to_contain_text("Delivering")
        listed(page, "dead")
        expect(page.locator("#answer")).to_have_text("3 dead letters.")
    finally:
        served.close()


def test_a_next_try_that_is_past_is_soon_while_the_destination_is_down(tmp_path: Path, open_page: Open):
    def send(delivery: object) -> None:
        raise Unavailable("the cable is out", retry_after_s=0.05)

    served = Served(tmp_path, to=send)
    try:
        for id_ in "abcdefgh":
            put(served, id_, 0)
        page = open_page(url(served))
        expect(page.locator("#status")).to_contain_text("The destination is down since")
        expect(page.locator("#doubt-groups")).to_contain_text("soon")
        expect(page.locator("#doubt-groups td[data-name='next try']").filter(has_text="ago")).to_have_count(0)
    finally:
        served.close()


def test_a_destination_that_is_down_is_said_at_once(tmp_path: Path, open_page: Open):
    def send(delivery: object) -> None:
        raise Unavailable("the cable is out", retry_after_s=0.05)

    served = Served(tmp_path, to=send)
    try:
        page = open_page(url(served))
        expect(page.locator("#status")).to_contain_text("Ready")
        for id_ in "abcde":  # of fewer keys each waits by itself
            put(served, id_, 0)
        expect(page.locator("#status")).to_contain_text("The destination is down since")
        expect(page.locator("#status")).to_contain_text("the cable is out")
    finally:
        served.close()


def test_a_token_is_asked_for_and_only_its_rights_are_offered(tmp_path: Path, open_page: Open):
    served = Served(tmp_path, tokens=Tokens({TOKEN: ALL, READER: Right.READ}))
    try:
        assert (
            served.ask(
                "POST", "/messages", {"id": "a", "delay_ms": 9e6}, headers={"authorization": f"Bearer {TOKEN.decode()}"}
            ).status
            == 201
        )
        page = open_page(url(served))
        dialog = page.locator("#token")
        expect(dialog).to_contain_text("no token is given")
        dialog.get_by_label("Token").fill("a-wrong-token-that-is-long")
        dialog.get_by_role("button", name="Use it").click()
        expect(dialog).to_contain_text("the token is wrong")
        dialog.get_by_label("Token").fill(READER.decode())
        dialog.get_by_role("button", name="Use it").click()
        expect(page.locator("#rows tbody tr")).to_have_count(1)
        assert page.get_by_role("button", name="Pause sending").is_hidden()
        page.get_by_role("link", name="a", exact=True).click()
        expect(page.locator("#details")).to_contain_text("waiting")
        assert page.get_by_role("button", name="Cancel this message").is_hidden()
        assert TOKEN.decode() not in page.content()
        page.reload()
        expect(page.locator("#rows tbody tr")).to_have_count(1)
    finally:
        served.close()


def test_without_a_token_the_page_shows_nothing_and_its_stream_is_refused(tmp_path: Path):
    served = Served(tmp_path, tokens=Tokens({TOKEN: ALL}))
    try:
        reply = served.ask("GET", "/")
        assert reply.status == 200
        assert "frame-ancestors 'none'" in reply.headers["content-security-policy"]
        assert str(tmp_path) not in reply.body
        assert served.ask("GET", "/events").status == 401
        assert served.ask("POST", "/").status == 401
    finally:
        served.close()


def test_a_page_of_another_site_changes_nothing(served: Served):
    own = f"http://127.0.0.1:{served.port}"
    put(served, "a")
    for origin in (
        "http://evil.example",
        "null",
        "http://127.0.0.1:1",
        f"https://127.0.0.1:{served.port}.evil.example",
    ):
        assert served.ask("DELETE", "/messages/a", headers={"origin": origin}).status == 403
    assert (
        served.ask("DELETE", "/messages/a", headers={"origin": own, "host": f"evil.example:{served.port}"}).status
        == 403
    )
    assert served.ask("DELETE", "/messages/a", headers={"origin": own}).status == 200


def test_an_open_page_does_not_hold_up_the_end_and_says_it(
    tmp_path: Path, open_page: Open, caplog: pytest.LogCaptureFixture
):
    served = Served(tmp_path)
    page = open_page(url(served))
    expect(page.locator("#status")).to_contain_text("Ready")
    served.close()
    assert not [each for each in caplog.records if "graceful" in each.getMessage()], "it was ended by force"
    expect(page.locator("#status")).to_contain_text("No connection")
