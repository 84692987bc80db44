"""`tickwheel mcp`: the tools of a `tickwheel serve` for programs that models steer, by the Model Context Protocol."""

from functools import partial
from typing import Any

import click

from tickwheel.commands.control import server_of, targeted
from tickwheel.commands.options import access_of

_TARGET = "TARGET is the address of a tickwheel serve, as http://127.0.0.1:7400, which delivers what is scheduled."
_RETRY_S = 10.0  # a model should not wait for longer


@partial(targeted, target_is=_TARGET)
@click.option(
    "--listen",
    metavar="HOST:PORT",
    help="Serve streamable HTTP at this address on loopback, path /mcp; by default standard input and output.",
)
def mcp(target: str, access: dict[str, Any], listen: str | None) -> None:
    """Serve tools by the Model Context Protocol: schedule, list, show, cancel, reschedule, event.

    A token needs the rights produce, control and read, or as many as the tools that are to work. Over HTTP each request
    has its own token, as a request of tickwheel serve.
    """
    from tickwheel.delivery.base.errors import WrongUsage
    from tickwheel.delivery.queue.client import Client
    from tickwheel.delivery.serve.access import Address

    try:
        from mcp.server.transport_security import TransportSecuritySettings

        from tickwheel.delivery.serve.mcp_tools import tools
    except ImportError as error:
        raise WrongUsage(f"{error.name} can't be imported ({error}): run pip install 'tickwheel[mcp]'") from error

    if (server := server_of(target, dict(access))) is None:
        raise WrongUsage(f"{target} is a file, from which nothing is delivered: name the address of a tickwheel serve")
    server.close()
    if listen is not None and access["token_file"] is not None:
        raise WrongUsage("--token-file is for standard input and output: over HTTP each request has its own token")
    token, tls = access_of(access)
    own = None if token is None else token.decode("ascii")
    context = tls.context() if tls else None
    made = tools(lambda given: Client(target, given or own, context=context, retry_s=_RETRY_S))
    if listen is None:
        made.run()
        return
    address = Address.of("--listen", listen)
    if not address.is_loopback:
        raise WrongUsage(f"--listen {listen} is not on loopback: listen on 127.0.0.1, behind a proxy with TLS")
    hosts = [f"{host}:*" for host in (address.ip, "127.0.0.1", "localhost", "[::1]")]
    no_page = TransportSecuritySettings(allowed_hosts=hosts)  # no page of a browser: no origin is allowed
    how: Any = {"stateless_http": True, "json_response": True, "transport_security": no_page}
    made.run("streamable-http", host=address.ip, port=address.port, **how)
