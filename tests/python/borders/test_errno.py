"""T13: an `OSError` says its number, as those of Python's own modules do."""

from borders.harness import run_script


def test_a_loop_without_a_free_descriptor_says_emfile__T13() -> None:
    run_script(
        """
import errno, resource
from tickwheel import aio


async def main():
    most = len(os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (most - 1, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    try:
        await aio.sleep(0.001)
    except OSError as error:
        assert (error.errno, error.strerror) == (errno.EMFILE, os.strerror(errno.EMFILE)), error.args
    else:
        raise AssertionError("it got a descriptor")


asyncio.run(main())
"""
    )
