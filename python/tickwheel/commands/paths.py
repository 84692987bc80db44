"""The type of each option and argument that names a file or a folder."""

from typing import Any

import click


class GivenPath(click.Path):
    """A path. An empty one, as of a shell variable that is not set, is refused: it would be the working folder."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path."""
        if value == "":
            self.fail("it is empty: name a file or a folder", param, ctx)
        return super().convert(value, param, ctx)
