"""A hook of MkDocs: files outside `docs/` that a page links to are in the site too, under `repository/`.

So the same link works in a checkout, on a code forge and in the site: `../ops/serve.toml` in `docs/operations.md` is
`repository/ops/serve.toml` there. A file in Markdown becomes a page.
"""

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

_LINK = re.compile(r"(?<=\]\()(\.\./[^)#\s]*)")
_FOLDER = "repository"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add those files."""
    root = Path(config.docs_dir).parent
    for page in list(files.documentation_pages()):
        for link in _LINK.findall(page.content_string):
            path = _outside(page.src_uri, link)
            if path and (root / path).is_file() and (uri := f"{_FOLDER}/{path}") not in files.src_uris:
                level = InclusionLevel.NOT_IN_NAV
                files.append(File.generated(config, uri, abs_src_path=str(root / path), inclusion=level))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001, MkDocs gives it
    """Let the links lead there."""
    root, own = Path(config.docs_dir).parent, page.file.src_uri

    def moved(found: re.Match[str]) -> str:
        path = _outside(own, found[0])
        return posixpath.relpath(f"{_FOLDER}/{path}", posixpath.dirname(own)) if path else found[0]

    if own.startswith(f"{_FOLDER}/"):  # links of a file of the repository start at its own place there
        place = posixpath.dirname(own.removeprefix(f"{_FOLDER}/"))
        return re.sub(r"(?<=\]\()([^):#\s]+)", lambda found: _from_repository(place, own, found[0], root), markdown)
    return _LINK.sub(moved, markdown)


def _outside(own: str, link: str) -> str | None:
    """The path in the repository, if it is not in `docs/`."""
    path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(own), link))
    return None if path.startswith("docs/") else path


def _from_repository(place: str, own: str, link: str, root: Path) -> str:
    path = posixpath.normpath(posixpath.join(place, link))
    if not path.startswith("docs/") or not (root / path).exists():
        return link
    return posixpath.relpath(path.removeprefix("docs/"), posixpath.dirname(own))
