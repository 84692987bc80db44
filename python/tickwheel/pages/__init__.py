"""What every HTML page of tickwheel is made with: `deliver --report`, `analyze`, and those to come.

| part | what it is |
|---|---|
| `page.html` | the whole of a page but its heading and sections: a page's own template extends it |
| `style.css` | how all pages look, in light, in dark and on paper; charts take their colours from it |
| `macros.html` | charts, tables, times and counts as markup |
| `templates` | finds templates, fills them in and writes the page |
| `plots` | charts: bars and lines over time, bars on logarithmic axes, squares; and what to draw others with |
| `steps` | steps of time that people read easily |
| `text` | names and times as they are shown |

A new page is a template beside the code that has its figures, and a call of `templates.render`. matplotlib and jinja2
are loaded when a page is asked for, so import `templates` and `plots` then, and call `need_report` first: `pip
install 'tickwheel[report]'`.
"""

from tickwheel.delivery.errors import WrongUsage

__all__ = ["need_report"]


def need_report(what: str) -> None:
    """`what` is the option or command that makes a page, for the error: `WrongUsage` if a library can't be loaded."""
    try:
        import jinja2  # noqa: F401
        import matplotlib.backends.backend_svg  # noqa: F401
    except ImportError as error:
        library = (error.name or "a library").split(".")[0]
        raise WrongUsage(f"{what}: {library} is not installed: run pip install 'tickwheel[report]'") from error
