"""`tickwheel serve`."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from tickwheel.commands.configured import ConfiguredCommand
from tickwheel.commands.options import (
    FILE,
    PATH,
    Outbox,
    allow_many_files,
    dead_letters_option,
    delivery_options,
    give_memory_back,
    opener_of,
    put_letters,
    settings_of,
    shorten_thread_switches,
    to_option,
    together,
    webhook_options,
)

_options = together(
    click.option("--store", metavar="FILE", type=PATH, required=True,
                 help="Keep messages in FILE, made if needed. If another process has it, wait for that."),
    to_option,
    click.option("--listen", metavar="HOST:PORT", default="127.0.0.1:7400", show_default=True,
                 help="The address to listen on."),
    click.option("--health", metavar="HOST:PORT",
                 help="Answer /livez and /readyz here too, without TLS, also while another process has the store: for "
                 "probes."),
    click.option("--token-file", metavar="FILE", type=FILE,
                 help="Accept only requests with a token of FILE: one on each line, and after it what it may do, of "
                 "produce,control,read,hand-off,destinations; by default all. Required to listen on other addresses "
                 "than loopback. Read again on SIGHUP."),
    click.option("--tls-cert", metavar="FILE", type=FILE,
                 help="Serve by TLS, with the certificate in FILE (PEM) and those up to its authority. Required on "
                 "other addresses than loopback, unless there is --no-tls. Read again on SIGHUP."),
    click.option("--tls-key", metavar="FILE", type=FILE,
                 help="The key of the certificate, without a passphrase; by default it is in the same file."),
    click.option("--tls-client-ca", metavar="FILE", type=FILE,
                 help="Accept only clients with a certificate that an authority in FILE has signed."),
    click.option("--no-tls", is_flag=True,
                 help="Listen on other addresses without TLS: a proxy or the network does the encryption."),
    click.option("--max-payload", metavar="BYTES", type=int, default=1 << 20, show_default=True,
                 help="The most bytes of one payload."),
    click.option("--outbox", metavar="ADDRESS", type=Outbox(), multiple=True,
                 help="Read messages from the outbox at ADDRESS too: sqlite:PATH?table=T or "
                 "postgresql://...?table=T, by default the table tickwheel_outbox. Repeat it for more."),
    dead_letters_option,
    webhook_options,
    delivery_options,
)  # fmt: skip


@click.command(cls=ConfiguredCommand, context_settings={"auto_envvar_prefix": "TICKWHEEL_SERVE"})
@_options
def serve(
    store: Path,
    to: str,
    listen: str,
    health: str | None,
    token_file: Path | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    tls_client_ca: Path | None,
    no_tls: bool,
    max_payload: int,
    outbox: Sequence[str],
    dead_letters: Path | None,
    webhook_header: Sequence[str],
    webhook_secret_file: Path | None,
    **how: Any,
) -> None:
    """Accept messages over HTTP, and deliver each at its due time, until a signal comes.

    Messages have the same fields as for deliver. Each is answered when it is on disk.

    Each option may also stand in a file, as max-payload = 65536 (--config), or in a variable, as
    TICKWHEEL_SERVE_MAX_PAYLOAD. The command line counts before the variables, and these before the file.
    """
    from tickwheel.delivery.base.errors import WrongUsage
    from tickwheel.delivery.base.standard_error import StandardError
    from tickwheel.delivery.command.ending import print_result
    from tickwheel.delivery.command.outputs import NewOutputs, check_outputs
    from tickwheel.delivery.observe.progress import reporter
    from tickwheel.delivery.outbox.source import sources_of
    from tickwheel.delivery.serve.access import Address, check_addresses
    from tickwheel.delivery.serve.credentials import Credentials
    from tickwheel.delivery.serve.run import Service, noted_hangups
    from tickwheel.delivery.serve.run import serve as run
    from tickwheel.delivery.serve.tls import TlsFiles
    from tickwheel.delivery.sinks import path_of

    hangups = noted_hangups()
    told = StandardError()
    console = told.console()
    say = reporter(console, live=False).say
    made = NewOutputs(path_of(to))
    try:
        check_outputs({"--to": path_of(to), "--store": store, "--dead-letters": dead_letters}, ())
        address = Address.of("--listen", listen)
        check_addresses(address, has_tokens=token_file is not None, is_tls=tls_cert is not None, without_tls=no_tls)
        settings = settings_of(how)
        opener = opener_of(to, webhook_header, webhook_secret_file)
        tls = TlsFiles.of(tls_cert, tls_key, tls_client_ca)
        credentials = Credentials(token_file, tls)
        letters = put_letters(dead_letters, say, told)
        probed = Address.of("--health", health) if health else None
        outboxes = sources_of(outbox, max_payload)
        service = Service(*(store, opener, letters, settings, address, credentials, max_payload, probed, outboxes, to))
        allow_many_files()
        give_memory_back()
        shorten_thread_switches()
        ended = run(service, say, hangups)
    except WrongUsage as error:
        made.remove_unused()
        raise click.UsageError(str(error)) from error
    if ended.result.failure:
        made.remove_unused()
    print_result(console, ended.result)
    sys.exit(ended.code)
