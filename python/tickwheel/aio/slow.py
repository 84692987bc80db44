"""What a loop in debug mode says of a slow callback."""

from asyncio.log import logger


def report(shown: str, took_s: float) -> None:
    """Write it to asyncio's logger, as asyncio does."""
    logger.warning("Executing %s took %.3f seconds", shown, took_s)
