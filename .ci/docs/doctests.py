"""An extension of griffe: examples in docstrings become blocks of code. In Markdown `>>>` would be a quotation.

Words before.                Words before.

>>> 1 + 1            ->      ```pycon
2                            >>> 1 + 1
2
```
"""

import re
from typing import Any

from griffe import Extension, Object

_EXAMPLE = re.compile(r"(?:^>>> .*\n?)(?:^(?!\s*$).*\n?)*", re.MULTILINE)
_HAS_FENCES = re.compile(r"^```", re.MULTILINE)


class Doctests(Extension):
    """For every docstring."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Called once the object is known."""
        if obj.docstring is not None and not _HAS_FENCES.search(obj.docstring.value):
            obj.docstring.value = _EXAMPLE.sub(_block, obj.docstring.value)


def _block(example: re.Match[str]) -> str:
    return f"\n```pycon\n{example[0].rstrip()}\n```\n"
