"""The command line."""

import asyncio
import json
import os
import re
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import click

from duetime import __version__, admin
from duetime.clock import SystemClock
from duetime.config import Config
from duetime.copying import Copied
from duetime.copying import copy as copy_store
from duetime.errors import ConfigError, DuetimeError
from duetime.server import serve as serve_until_told_to_stop
from duetime.server import serve_with_workers
from duetime.settings import load
from duetime.stores import store_from_url
from duetime.walkthrough import walkthrough
from duetime.workers import Worker

EXIT_FAILED = 1
EXIT_REFUSED = 2  # As click does for what it refuses itself.

Command = TypeVar("Command", bound=Callable[..., Any])


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="duetime", message="%(prog)s %(version)s")
def main() -> None:
    """Duetime: a durable timer service.

    Exit codes: 0 after a drain, 1 when it cannot start or fails, 2 when settings or arguments
    are refused; 128 plus the signal's number when a second signal cuts the drain short.
    """


def _common(command: Command) -> Command:
    for option in (
        click.option("--log-format", metavar="auto|text|json", help="Overrides LOG_FORMAT."),
        click.option(
            "--log-level", metavar="debug|info|warning|error", help="Overrides LOG_LEVEL."
        ),
        click.option(
            "--config",
            "file",
            type=click.Path(path_type=Path),
            help="Settings file to read in place of ./duetime.toml.",
        ),
        click.option("--port", type=int, help="Overrides PORT (3000); 0 picks a free one."),
    ):
        command = option(command)
    return command


@main.command()
@click.option(
    "--workers",
    type=click.IntRange(1, 64),
    help="Run so many nodes behind one port; the database must be one that processes can share.",
)
@click.option("--host", help="Overrides HOST (0.0.0.0).")
@_common
def serve(file: Path | None, workers: int | None, **flags: str | int | None) -> None:
    """Serve timers from DATABASE_URL, for clients that hold API_KEY.

    Settings come from options, the environment, ./.env and ./duetime.toml, in this order.
    Callbacks to loopback, private and link-local addresses are refused unless
    CALLBACK_ALLOW_NETWORKS names them.
    """
    with _reasons():
        config = load(flags, file=file)
        if workers is None:
            _serve(config)
        else:
            raise SystemExit(serve_with_workers(config, workers, _serve))


def _serve(config: Config, worker: Worker | None = None) -> None:
    with _reasons():
        serve_until_told_to_stop(config, allow_local=False, listening=_say_nothing, worker=worker)


@main.command()
@click.option(
    "--data",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(".duetime"),
    show_default=True,
    help="Where the database and the API key are kept.",
)
@_common
def dev(file: Path | None, data: Path, **flags: str | int | None) -> None:
    """Try Duetime on this machine: SQLite, loopback only, a key made for you.

    Callbacks may go to loopback and private addresses. DATABASE_URL, API_KEY and HOST are not
    read; all other settings are.
    """
    with _reasons():
        if not data.exists():
            data.mkdir(parents=True, mode=0o700)
            (data / ".gitignore").write_text("*\n", encoding="utf-8")
        key = _kept_key(data / "api-key")
        database = data.resolve() / "duetime.db"
        made = {"database_url": f"sqlite:///{database}", "api_key": key, "host": "127.0.0.1"}
        config = load({**flags, **made}, file=file)

        def say_what_to_try(url: str) -> None:
            click.echo(walkthrough(url, key=key, data=data))

        serve_until_told_to_stop(config, allow_local=True, listening=say_what_to_try)


@main.command()
@click.option(
    "--config",
    "file",
    type=click.Path(path_type=Path),
    help="Settings file to read in place of ./duetime.toml.",
)
def migrate(file: Path | None) -> None:
    """Bring the schema of DATABASE_URL up to date, and exit.

    `serve` does the same when it starts; this is for those who want it done beforehand.
    """
    with _reasons():
        config = load({}, file=file, unneeded=("api_key",))
        asyncio.run(_migrate(config.database_url))


@main.command()
@click.argument("from_url")
@click.argument("to_url")
def copy(from_url: str, to_url: str) -> None:
    """Copy everything in FROM_URL to TO_URL: namespaces, pending timers, history.

    Each is written like DATABASE_URL. Stop the service first. The destination must be empty;
    a copy that was interrupted goes on when it is called again. At its end both are counted.
    """
    with _reasons():
        copied = asyncio.run(_copy(from_url, to_url))
        click.echo(
            f"copied {copied.namespaces} namespaces, {copied.pending} pending timers"
            f" and {copied.finished} finished ones"
        )


async def _copy(from_url: str, to_url: str) -> Copied:
    clock = SystemClock()
    source, destination = store_from_url(from_url), store_from_url(to_url)
    for store in (source, destination):
        if not store.traits.durable:
            raise ConfigError(f"{store.traits.name} keeps nothing: there is nothing to copy")
    try:
        await source.open()
        await destination.open()
        with click.progressbar(length=1, label="copying", show_pos=True) as bar:

            def tell(copied: int, total: int) -> None:
                bar.length = total
                bar.update(copied - bar.pos)

            return await copy_store(source, destination, clock=clock, tell=tell)
    finally:
        await destination.close()
        await source.close()


@main.group()
def cluster() -> None:
    """Look at the nodes of a running cluster, and have one hand its shards over."""


def _asking(command: Command) -> Command:
    for option in (
        click.option(
            "--config",
            "file",
            type=click.Path(path_type=Path),
            help="Settings file to read in place of ./duetime.toml.",
        ),
        click.option("--api-key", help="Overrides API_KEY."),
        click.option(
            "--url", help="Any node of the cluster; by default this machine's, at HOST and PORT."
        ),
    ):
        command = option(command)
    return command


@cluster.command()
@_asking
@click.option("--json", "as_json", is_flag=True, help="Print the API's answer as it is.")
def status(url: str | None, api_key: str | None, file: Path | None, as_json: bool) -> None:
    """Show the nodes that are alive and what each is doing."""
    with _reasons():
        answer = _admin(url, api_key, file).cluster()
        click.echo(json.dumps(answer, indent=2) if as_json else admin.table(answer))


@cluster.command()
@click.argument("node")
@_asking
@click.option("--undo", is_flag=True, help="Let it take shards again.")
@click.option(
    "--wait",
    type=click.FloatRange(min=0),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait until it owns none.",
)
def drain(
    node: str, url: str | None, api_key: str | None, file: Path | None, undo: bool, wait: float
) -> None:
    """Have NODE hand all its shards to the others and take no more.

    It goes on taking requests, and passes them on, but is not ready (`GET /ready`).
    """
    with _reasons():
        server = _admin(url, api_key, file)
        server.drain(node, undo=undo)
        if undo:
            click.echo(f"{node} takes shards again")
            return
        server.drained(node, seconds=wait, tell=lambda left: click.echo(f"{left} shards left"))
        click.echo(f"{node} owns no shards")


def _admin(url: str | None, api_key: str | None, file: Path | None) -> admin.Admin:
    config = load({"api_key": api_key}, file=file, unneeded=("database_url",))
    return admin.Admin(url or admin.default_url(config), config.api_key)


async def _migrate(database_url: str) -> None:
    store = store_from_url(database_url)
    await store.open()
    await store.close()
    click.echo(f"the {store.traits.name} schema is up to date")


def _kept_key(path: Path) -> str:
    """The key in the file, made the first time. Whole or not there: it is moved into place."""
    if not path.exists():
        new = path.with_suffix(f".{os.getpid()}")
        with open(os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
            file.write(secrets.token_urlsafe(32) + "\n")
        new.replace(path)
    key = path.read_text(encoding="utf-8", errors="replace").strip()
    if not re.fullmatch("[!-~]{32,}", key):
        raise ConfigError(f"{path} holds no key: delete it, and a new one is made")
    return key


@contextmanager
def _reasons() -> Iterator[None]:
    """What Duetime refuses on purpose, and what the system refuses it, is no traceback."""
    try:
        yield
    except ConfigError as error:
        _fail(str(error), EXIT_REFUSED)
    except (DuetimeError, OSError) as error:
        _fail(str(error), EXIT_FAILED)


def _fail(reason: str, code: int) -> NoReturn:
    for line in reason.splitlines():
        click.echo(f"duetime: {line}", err=True)
    raise SystemExit(code)


def _say_nothing(url: str) -> None:
    """The log has said that we listen, and where."""
