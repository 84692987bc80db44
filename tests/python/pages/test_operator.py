"""The page of `tickwheel serve` for an operator (D14): first what is wrong, then the messages, then the wheel."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, Route, expect

from delivery.serve.conftest import Served
from tickwheel import __version__
from tickwheel.delivery import Unavailable

from .conftest import Open, note_what_moves, url

pytestmark = pytest.mark.timeout(120)
LONG = "orders-of-the-shop-in-production.db"


def put(served: Served, id_: str, delay_ms: float = 3_600_000, **more: object) -> None:
    assert served.ask("POST", "/messages", {"id": id_, "delay_ms": delay_ms, **more}).status == 201


@pytest.fixture
def failing(tmp_path: Path) -> Iterator[tuple[Served, list[bool]]]:
    """A service whose destination takes nothing until the list has an entry."""
    works: list[bool] = []

    def send(delivery) -> None:
        if works:
            return
        if delivery.message.key == "bad":
            raise Unavailable("the cable is out", retry_after_s=3_600)
        raise ValueError("no address")

    served = Served(tmp_path, to=send, max_attempts=1)
    yield served, works
    served.close()


def test_the_tiles_say_what_needs_the_operator(failing: tuple[Served, list[bool]], open_page: Open) -> None:
    served, _ = failing
    put(served, "refused", 0)
    put(served, "soon", 30_000)
    page = open_page(url(served))
    expect(page.locator("#state")).to_have_attribute("data-state", "")  # green only after something was accepted
    expect(page.locator("#tile-dead dd").first).to_have_text("1")
    expect(page.locator("#tile-dead")).to_have_attribute("data-state", "ill")
    expect(page.locator("#tile-overdue dd").first).to_have_text("0")
    expect(page.locator("#tile-overdue")).to_have_attribute("data-state", "")
    expect(page.locator("#minutes-words")).to_have_text("The next hour: 1, at most 1 in a minute")
    page.get_by_role("link", name="Dead letters").click()
    expect(page.locator("#answer")).to_have_text("1 dead letters.")


def test_a_dead_letter_is_tried_again_in_its_row(failing: tuple[Served, list[bool]], open_page: Open) -> None:
    served, works = failing
    put(served, "refused", 0)
    page = open_page(url(served))
    page.get_by_role("link", name="Dead letters").click()
    works.append(True)
    page.get_by_role("button", name="Try again", exact=True).click()
    expect(page.locator("#flow")).to_contain_text("delivered\n1", use_inner_text=True)


def test_a_key_that_waits_is_tried_now(failing: tuple[Served, list[bool]], open_page: Open) -> None:
    served, works = failing
    put(served, "waits", 0, key="bad")
    page = open_page(url(served))
    expect(page.locator("#doubt-groups summary")).to_contain_text("1 key: the cable is out")
    works.append(True)
    page.get_by_role("button", name="Try now").click()
    expect(page.locator("#flow")).to_contain_text("delivered\n1", use_inner_text=True)
    expect(page.locator("#doubt")).to_be_hidden()


def test_the_list_keeps_up_with_what_comes(served: Served, open_page: Open) -> None:
    put(served, "first")
    page = open_page(url(served))
    expect(page.locator("#rows tbody tr")).to_have_count(1)
    put(served, "second")
    expect(page.locator("#rows tbody tr")).to_have_count(2)


def test_an_address_names_a_message_and_times_are_from_now(served: Served, open_page: Open) -> None:
    put(served, "a", 7_500_000, key="k 1")
    due = served.ask("GET", "/messages/a?key=k%201").body["due"]
    page = open_page(f"{url(served)}#id=a&key=k+1")
    expect(page.locator("#message")).to_be_visible()
    expect(page.locator("#details")).to_contain_text(due)
    page.get_by_role("button", name="Close").click()
    assert "#" not in page.evaluate("location.href")
    time = page.locator("#rows time")
    expect(time).to_have_text("in 2 h")
    expect(time).to_have_attribute("title", due)
    page.get_by_role("link", name="a", exact=True).click()
    expect(page.locator("#message-title")).to_have_text("a")


@pytest.mark.parametrize(
    ("width", "name", "slower"),
    [(1200, "store.db", 1), (390, "store.db", 1), *((width, LONG, 16) for width in (1280, 1024, 800, 768, 767, 390))],
)
def test_nothing_moves_once_it_is_seen(tmp_path: Path, open_page: Open, width: int, name: str, slower: int) -> None:
    served = Served(tmp_path, name=name)
    try:
        for number in range(30):
            put(served, str(number))
        page = open_page("about:blank", width=width)
        moved = note_what_moves(page, slower)
        page.goto(url(served))
        expect(page.locator("#rows tbody tr")).to_have_count(20 if width >= 768 else 10)
        expect(page.locator("#flow")).to_contain_text("accepted30")
        assert moved() < 0.1
    finally:
        served.close()


def test_without_javascript_the_page_says_so_and_shows_nothing_that_would_need_it(
    served: Served, browser: Browser
) -> None:
    context = browser.new_context(java_script_enabled=False, viewport={"width": 390, "height": 900})
    page = context.new_page()
    page.goto(url(served))
    words = page.locator("body > noscript")  # Playwright sees that it is shown, and not its text
    assert "This page draws with JavaScript, which is switched off." in words.inner_html()
    assert words.bounding_box()
    expect(page.locator("footer")).to_be_visible()
    for part in ("nav", "main", "#pause"):
        expect(page.locator(part)).to_be_hidden()
    context.close()


def test_a_list_that_fails_at_first_says_so_and_is_asked_for_again(served: Served, open_page: Open) -> None:
    put(served, "a")
    page = open_page("about:blank")
    failures = iter([True])

    def answer(route: Route) -> None:
        if next(failures, False):
            route.fulfill(status=503, json={"reason": "too busy", "allowed": "another try"})
        else:
            route.continue_()

    page.route("**/messages?*", answer)
    page.goto(url(served))
    expect(page.locator("#answer")).to_have_text("too busy (allowed: another try)")
    expect(page.locator("#answer")).to_be_visible()
    expect(page.locator("footer")).to_be_visible()
    expect(page.locator("#rows tbody tr")).to_have_count(1)


def test_a_list_that_takes_long_is_asked_for_once_and_shown(served: Served, open_page: Open) -> None:
    put(served, "a", 0)
    assert served.arrived.get(timeout=20).message.id == "a"
    page = open_page("about:blank")
    page.clock.install()
    page.goto(url(served))
    expect(page.locator("#answer")).to_have_text("There are no such messages.")
    held: list[Route] = []
    page.route("**/messages?state=delivered*", lambda route: held.append(route))
    page.locator("#list select").select_option("delivered")
    page.get_by_role("button", name="Show the list").click()
    page.clock.run_for(20_000)  # it is refreshed each five seconds
    assert len(held) == 1
    held[0].continue_()
    expect(page.locator("#rows tbody tr")).to_have_count(1)


def test_a_page_of_another_version_says_so_and_shows_no_figures(served: Served, open_page: Open) -> None:
    page = open_page("about:blank")

    def older(route: Route) -> None:
        answer = route.fetch()
        route.fulfill(response=answer, body=answer.text().replace(f'"version": "{__version__}"', '"version": "0.0.1"'))

    page.route(url(served), older)
    with page.expect_response("**/events"):
        page.goto(url(served))
    expect(page.locator("#status")).to_contain_text("The service has another version now: load the page again.")
    page.evaluate("""() => {
        [window.framesRead, window.framesShown] = [0, 0];
        const [parse, show] = [JSON.parse, show_frame];
        JSON.parse = (...given) => { framesRead += 1; return parse(...given); };
        show_frame = (frame) => { framesShown += 1; show(frame); };
    }""")
    while page.evaluate("framesRead") < 5:
        page.wait_for_timeout(100)
    assert page.evaluate("framesShown") == 0
    expect(page.locator("#status")).to_contain_text("another version")
    expect(page.locator("footer")).to_be_visible()


def check(page: Page) -> None:
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1200, 390])
def test_axe_finds_no_fault_in_any_state(
    failing: tuple[Served, list[bool]], open_page: Open, width: int, dark: bool
) -> None:
    served, _ = failing
    put(served, "refused", 0)
    put(served, "waits", 0, key="bad")
    put(served, "later")
    page = open_page(url(served), width=width, dark=dark)
    expect(page.locator("#doubt-groups tbody tr")).to_have_count(1)
    expect(page.locator("#rows tbody tr")).to_have_count(2)
    check(page)
    page.get_by_role("link", name="later").click()
    expect(page.locator("#message")).to_be_visible()
    check(page)
    page.get_by_role("button", name="Cancel this message").click()
    expect(page.locator("#sure")).to_be_visible()
    check(page)
    page.get_by_role("button", name="No", exact=True).click()
    page.get_by_role("button", name="Close").click()
    served.close()
    expect(page.locator("#status")).to_contain_text("No connection")
    check(page)
