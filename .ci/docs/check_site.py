"""Checks a built site: every link leads to a page and a place that exist, and no page loads anything from elsewhere.

    python .ci/docs/check_site.py build/docs

Pages below `rust/` are rustdoc's: they are targets of links, and are not read themselves. `--without-rust` leaves links
to them out, for a site that was built without them.
"""

import re
import sys
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

_FROM_ELSEWHERE = re.compile(r"""(?:url\(\s*["']?|@import\s+["']?)(?:https?:)?//""")


class _Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect its id, its link, and what a browser would load for it."""
        given = dict(attrs)
        self.ids |= {given[name] or "" for name in ("id", "name") if given.get(name)}
        target = given.get("href" if tag in ("a", "link", "area") else "src")
        if tag == "a" and target is not None:
            self.links.append(target)
        elif target is not None and given.get("rel") not in ("canonical", "next", "prev"):
            self.loads.append(target)


@cache
def _page(path: Path) -> _Page:
    return _Page(path.read_text("utf-8"))


def faults(site: Path, *, is_with_rust: bool = True) -> Iterator[str]:
    """What is wrong, a line each."""
    for path in sorted(site.rglob("*.css")):
        if (found := _FROM_ELSEWHERE.search(path.read_text("utf-8"))) is not None:
            yield f"{path.relative_to(site)} loads from elsewhere: {found[0]}"
    for path in sorted(site.rglob("*.html")):
        name = path.relative_to(site)
        if name.parts[0] == "rust" or name.name == "404.html":  # the latter stands for any address
            continue
        page = _page(path)
        for target in page.loads:
            if urlsplit(target).netloc:
                yield f"{name} loads {target}"
            elif not urlsplit(target).scheme and (why := _why_not(site, path, target)):
                yield f"{name} needs {target}: {why}"
        for target in page.links:
            if urlsplit(target).scheme or urlsplit(target).netloc:
                continue
            if (why := _why_not(site, path, target)) and (is_with_rust or "rust/" not in target):
                yield f"{name} links to {target}: {why}"


def _why_not(site: Path, path: Path, target: str) -> str | None:
    parts = urlsplit(target)
    file = path if not parts.path else (path.parent / unquote(parts.path)).resolve()
    if not file.is_relative_to(site.resolve()) and file != path:
        return "that is outside of the site"
    if not file.is_file():
        return "there is no such file"
    if parts.fragment and file.suffix == ".html" and unquote(parts.fragment) not in _page(file).ids:
        return "the page has no such place"
    return None


def main() -> None:
    """Ends with 1 if something is wrong."""
    site = Path(sys.argv[1])
    found = list(faults(site, is_with_rust="--without-rust" not in sys.argv))
    sys.exit("\n".join(found) or 0)


if __name__ == "__main__":
    main()
