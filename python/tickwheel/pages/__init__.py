"""Pages (HTML): `watch` shows a timer at work. Here are the common parts of all pages.

| part | what it is |
|---|---|
| `page.html` | a whole page without its heading and sections: a page's own template extends it |
| `style.css` | the style of all pages, in light, in dark and on paper; charts take their colours from it |
| `macros.html` | charts, tables, times and counts as markup |
| `templates` | finds templates, fills them in and writes the page |
| `plots` | charts: bars and lines over time, bars on logarithmic axes, squares; and the parts for other charts |
| `steps` | round time steps, easy to read |
| `text` | names and times as text on a page |
| `live/` | the page that shows a wheel turning |

A new page that does not change is a template beside the code with its figures, and a call of `templates.render`.
matplotlib and jinja2 are loaded only for a page, so import `templates` and `plots` then, and call `need_report` first:
`pip install 'tickwheel[report]'`.
"""

from tickwheel.pages.live.watching import Watch, watch

__all__ = ["Watch", "watch"]


def need_report(what: str) -> None:
    """Errors: `WrongUsage` if a library can't be loaded. `what`: the option or command that makes the page."""
    from tickwheel.delivery.base.errors import WrongUsage  # a timer's page needs nothing of delivery

    try:
        import jinja2  # noqa: F401
        import matplotlib.backends.backend_svg  # noqa: F401
    except ImportError as error:
        library = (error.name or "a library").split(".")[0]
        raise WrongUsage(f"{what}: {library} is not installed: run pip install 'tickwheel[report]'") from error
