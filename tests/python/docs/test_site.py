"""The documents as a site: it builds without a warning, links lead somewhere, nothing is loaded from elsewhere."""

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

from docs.conftest import ROOT, run

pytestmark = pytest.mark.timeout(400)  # the site is built first
TOOLS = ROOT / ".ci/docs"


def test_every_link_leads_somewhere_and_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    run([sys.executable, TOOLS / "check_site.py", site, "--without-rust"])


def test_the_check_finds_what_is_wrong(site: Path, tmp_path: Path) -> None:
    wrong = {
        '<script src="https://example.org/a.js"></script>': "page.html loads https://example.org/a.js",
        '<img src="//example.org/a.png">': "page.html loads //example.org/a.png",
        '<link rel="stylesheet" href="a.css">': "page.html needs a.css: there is no such file",
        '<a href="none.html">': "page.html links to none.html: there is no such file",
        '<a href="#none">': "page.html links to #none: the page has no such place",
        '<a href="../../etc">': "page.html links to ../../etc: that is outside of the site",
    }
    (tmp_path / "page.html").write_text("".join(wrong))
    (tmp_path / "b.css").write_text('@import "https://example.org/b.css";')
    command = [sys.executable, TOOLS / "check_site.py", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    assert done.returncode == 1
    assert sorted(done.stderr.splitlines()) == sorted(
        ['b.css loads from elsewhere: @import "https://', *wrong.values()],
    )


def test_the_search_needs_no_server(site: Path) -> None:
    """Its index is a script, and the worker that reads it has a stand-in where a page is a file."""
    assert "lateness" in (site / "search/search_index.js").read_text()
    assert 'src="assets/iframe-worker.js"' in (site / "index.html").read_text()


@pytest.mark.parametrize(
    "page", sorted(path.name for path in (ROOT / "docs/reference").glob("*.md") if path.stem != "index")
)
def test_the_reference_has_every_public_name_of_a_module(page: str, site: Path) -> None:
    named = re.findall(r"^::: (\S+)$", (ROOT / "docs/reference" / page).read_text(), re.MULTILINE)
    module = min(named, key=len)  # the others are parts of it, or beside it
    if module == "tickwheel.spark":
        pytest.importorskip("pyspark")
    public = getattr(importlib.import_module(module), "__all__", ["Recording", "about", "read_recording", "replay"])
    shown = (site / "reference" / page).with_suffix(".html").read_text()
    told = {found.rpartition(".")[2] for found in re.findall(rf'id="{module}\.([\w.]+)"', shown)}
    assert {name for name in public if name != "__version__"} <= told


@pytest.mark.parametrize("tool", ["commands.py", "requests.py"])
def test_the_pages_that_are_made_are_as_their_sources(tool: str) -> None:
    run([sys.executable, TOOLS / tool, "--check"])


def test_a_session_of_python_is_copied_without_prompts_and_output(site: Path) -> None:
    """The theme marks what it copies with an attribute, and copies what is visible then."""
    assert '<span class="gp">&gt;&gt;&gt; </span>' in (site / "index.html").read_text()
    assert '<span class="gp">&gt;&gt;&gt; </span>' in (site / "reference/tickwheel.html").read_text()
    assert "[data-md-copying] :is(.gp, .go) { display: none; }" in (site / "assets/site.css").read_text()
    assert any("data-md-copying" in path.read_text() for path in (site / "assets/javascripts").glob("bundle.*.js"))
