"""What a function or a coroutine function that is a sink returned: it may still have to be run (rule D10)."""

import inspect


def problem_with(returned: object) -> str | None:
    """Why the message counts as not arrived: what was returned was never run. `None`: there is no such problem."""
    if inspect.iscoroutine(returned):
        returned.close()  # prevents the warning that it was never awaited
    if inspect.isawaitable(returned) or inspect.isgenerator(returned) or inspect.isasyncgen(returned):
        return f"the function returned a {type(returned).__name__}, which is never run: await it, in an async def"
    return None
