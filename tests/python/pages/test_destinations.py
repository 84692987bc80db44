"""The named destinations on the page of a service (D14, D23)."""

import socket
from contextlib import closing
from pathlib import Path

import pytest
from playwright.sync_api import expect

from delivery.serve.conftest import Served
from delivery.serve.test_seen_destinations import FAR_MS, put, set_destination
from tickwheel._native import Destination

from .conftest import Open, url

pytestmark = pytest.mark.timeout(90)
NOWHERE = "http://127.0.0.1:1/"


def test_those_that_need_the_reader_come_first_with_their_error__D14_D23(tmp_path: Path, open_page: Open) -> None:
    with closing(Served(tmp_path, to=Destination.named())) as served, socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        page = open_page(url(served))
        status = page.locator("#status")
        expect(status).to_have_text("Ready.")
        expect(page.locator("#destinations")).to_be_hidden()
        expect(page.get_by_label("to destination")).to_be_hidden()
        set_destination(served, "acme", f"http://127.0.0.1:{nobody.getsockname()[1]}/", rate="10/s")
        set_destination(served, "held", NOWHERE, paused=True)
        for number in range(21):
            set_destination(served, f"idle-{number}", NOWHERE)
        put(served, "acme", 6)
        put(served, "held", 2)
        rows = page.locator("#destination-rows tr")
        expect(rows.nth(0)).to_contain_text("down since")
        expect(rows.nth(0).locator("th")).to_have_text("acme")
        expect(rows.nth(0)).to_contain_text("each second")
        expect(rows.nth(0)).to_contain_text("refused")
        expect(rows.nth(0)).to_contain_text("10/s")
        expect(rows.nth(1).locator("th")).to_have_text("held")
        expect(rows.nth(1).locator("td").nth(0)).to_have_text("paused")
        expect(rows.nth(1).locator("td").nth(1)).to_have_text("2")
        expect(rows).to_have_count(20)
        words = "There are 23: 1 down, 1 paused. Here are 20: first those that are down"
        expect(page.locator("#destinations-words")).to_contain_text(words)
        expect(status).to_have_text("Ready. 1 of 23 destinations is down.")
        letters, tried = page.get_by_role("link", name="dead letters of acme"), rows.nth(0).locator("td time").last
        letters.focus()
        expect(tried).not_to_have_attribute("datetime", tried.get_attribute("datetime") or "")
        expect(letters).to_be_focused()


def test_from_each_one_to_its_overdue_messages_and_its_dead_letters__D14_D16_D23(
    tmp_path: Path, open_page: Open
) -> None:
    with closing(Served(tmp_path, to=Destination.named())) as served:
        set_destination(served, "held", NOWHERE, paused=True)
        set_destination(served, "refuses", NOWHERE, body={"k": "{{key}}"})  # a message without a key is refused
        put(served, "held", 2)
        put(served, "held", 3, FAR_MS)
        put(served, "refuses", 3)
        page = open_page(url(served))
        rows = page.locator("#rows tbody tr")
        page.get_by_role("link", name="dead letters of refuses").click()
        expect(rows).to_have_count(3)
        expect(rows.nth(0)).to_contain_text("dead; to refuses")
        expect(page.locator("#answer")).to_have_text("3 dead letters.")
        page.get_by_role("link", name="2 overdue messages of held").click()
        expect(rows).to_have_count(2)
        expect(rows.nth(0).locator("a")).to_have_text("held 1700000000000 0")
        named = page.get_by_label("to destination")
        expect(named).to_have_value("held")
        page.get_by_label("due before").fill("")
        page.get_by_role("button", name="Show the list").click()
        expect(rows).to_have_count(5)
        page.get_by_label("List").select_option("delivered")
        expect(named).to_be_hidden()
        page.get_by_role("button", name="Show the list").click()
        expect(page.locator("#answer")).to_have_text("There are no such messages.")
        page.get_by_role("link", name="Dead letters", exact=True).click()
        expect(named).to_have_value("")
        expect(rows).to_have_count(3)
        page.get_by_role("link", name="dead letters of held").click()
        expect(page.locator("#answer")).to_have_text("There are no such dead letters.")
        page.get_by_role("link", name="dead letters of refuses").click()
        expect(rows).to_have_count(3)
        set_destination(served, "refuses", NOWHERE, paused=True)
        page.get_by_role("button", name="Try all again").click()
        expect(page.locator("#sure-words")).to_contain_text("destination refuses")
        page.get_by_role("button", name="Yes").click()
        expect(page.locator("#tile-dead")).to_contain_text("Dead letters0")


def test_a_thousand_fit_a_screen_of_390_pixels__D14_D23(tmp_path: Path, open_page: Open) -> None:
    with closing(Served(tmp_path, to=Destination.named())) as served:
        for number in range(1_000):
            set_destination(served, f"customer-{number:04}-{'x' * 80}", NOWHERE, paused=number % 2 == 0)
        page = open_page(url(served), width=390)
        expect(page.locator("#destination-rows tr")).to_have_count(20)
        expect(page.locator("#destinations-words")).to_contain_text("There are 1,000: 0 down, 500 paused. Here are 20")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
