"""A hook of MkDocs: examples with `>>>` are highlighted as sessions, so that a reader copies them without the prompts.

In the repository they are `python`, as code forges know that; `docs/assets/site.css` leaves prompts and output out.
"""

import re
from typing import Any


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Call such a block a session."""
    return re.sub(r"^```python\n(?=>>> )", "```pycon\n", markdown, flags=re.MULTILINE)
