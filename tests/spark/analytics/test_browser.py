"""The page in a real browser, on narrow screens and on a wide one, with every table open (rule S6)."""

import re
from pathlib import Path
from typing import Any

import pytest

from delivery.report.test_browser import chromium, measured  # noqa: F401, a fixture

pytestmark = pytest.mark.timeout(180)

Analysis = Any  # of conftest.py


@pytest.mark.parametrize("width", [360, 390, 1200])
@pytest.mark.parametrize("which", ["analysis", "empty"])
def test_it_fits_on_the_screen_and_can_be_read__S6(
    chromium: str,  # noqa: F811
    tmp_path: Path,
    request: pytest.FixtureRequest,
    which: str,
    width: int,
) -> None:
    page = request.getfixturevalue(which).page.replace("<details>", "<details open>")
    assert measured(chromium, tmp_path, page, width) is None, "its own policy lets no script run"
    page = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page, count=1)
    found = measured(chromium, tmp_path, page, width)
    assert found is not None, "the measuring script has not run"
    inner, scroll, too_wide, charts, smallest, overlaps = found
    assert int(inner) == width
    assert int(scroll) <= width
    assert (int(too_wide), int(charts)) == (0, 0 if which == "empty" else 4)
    assert which == "empty" or float(smallest) >= 10, "pixels of the smallest letters in a chart"
    assert int(overlaps) == 0, "labels overlap"
