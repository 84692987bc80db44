"""Puts the parts of a live page into one file that loads nothing, and allows its browser nothing else (rule D12)."""

import base64
import hashlib
import html
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal, NamedTuple

from tickwheel import __version__

_FOLDER: Final = Path(__file__).parent
_STYLES: Final = (_FOLDER.parent / "style.css", _FOLDER / "page.css")
_SCRIPTS: Final = (
    "words.js",
    "wheel.js",
    "lateness.js",
    "figures.js",
    "requests.js",
    "messages.js",
    "start.js",
)


class LivePage(NamedTuple):
    """A page and the headers that it is sent with."""

    body: bytes
    headers: Mapping[str, str]


def live_page(kind: Literal["service", "timer"], title: str, data: Mapping[str, object]) -> LivePage:
    """The page. `data`: JSON that its scripts read.

    Its policy names the scripts by their digests. So the text of a message cannot run anything.
    """
    scripts = [(_FOLDER / name).read_text("utf-8") for name in _SCRIPTS]
    digests = " ".join(f"'sha256-{_digest(script)}'" for script in scripts)
    policy = f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; connect-src 'self'; script-src {digests}"
    policy += "; base-uri 'none'; form-action 'none'"
    parts = {
        "policy": policy,
        "kind": kind,
        "title": html.escape(title),
        "style": "\n".join(path.read_text("utf-8") for path in _STYLES),
        "version": html.escape(__version__),
        "data": json.dumps({"kind": kind, "version": __version__, **data}).replace("<", "\\u003c"),
        "scripts": "\n".join(f"<script>{script}</script>" for script in scripts),
    }
    page = re.sub(r"{{(\w+)}}", lambda place: parts[place[1]], (_FOLDER / "page.html").read_text("utf-8"))
    headers = {
        "content-type": "text/html; charset=utf-8",
        "content-security-policy": f"{policy}; frame-ancestors 'none'",
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "cache-control": "no-cache",
    }
    return LivePage(page.encode(), headers)


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
