"""Checks the value that a sink's function has returned: it may be something that still has to be run (rule D10)."""

import inspect


def problem_with(returned: object) -> str | None:
    """Why the message counts as not arrived: the returned value was never run. `None`: there is no such problem."""
    if inspect.iscoroutine(returned):
        returned.close()  # prevents the warning that it was never awaited
    if inspect.isawaitable(returned) or inspect.isgenerator(returned) or inspect.isasyncgen(returned):
        return f"the function returned a {type(returned).__name__}, which is never run: await it, in an async def"
    return None
