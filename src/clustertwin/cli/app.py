"""Typer over the table of commands: groups load when named, errors of our tree become one line."""

from __future__ import annotations

import errno
import os
import select
import sys
from difflib import get_close_matches
from typing import Any

import typer
from typer.core import TyperGroup

from clustertwin import __version__
from clustertwin.cli.command_examples import attach
from clustertwin.core.errors import OutputError, TwinError
from clustertwin.core.extras import explain, load
from clustertwin.core.formatting import visible_lines


class _WholeSentences(TyperGroup):
    """A list of commands with the whole first sentence of each; click cuts it at the end of the line."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, each.get_short_help_str(10_000)) for name, each in self.commands.items()])


def group(about: str = "") -> typer.Typer:
    """The app of one file of commands: plain help, no completion options of its own; `about` where it has several."""
    return typer.Typer(
        cls=_WholeSentences,
        help=about or None,
        no_args_is_help=bool(about),
        add_completion=False,
        rich_markup_mode=None,
    )


#: Errors of a file system that has no room, or that fails.
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


class ReaderGone(Exception):
    """The other end of standard output was closed, as by `twin … | head`."""


def _reader_is_gone() -> bool:
    poll = select.poll()
    poll.register(sys.stdout.fileno(), select.POLLOUT)
    return any(event & select.POLLERR for _, event in poll.poll(0))


def run(commands: dict[str, tuple[str, str]], needed: dict[str, str], sections: dict[str, tuple[str, ...]]) -> int:
    """The exit code of `twin` with these commands. `needed` names the extra of a command, or of one of its parts."""
    called = ""

    class Lazy(TyperGroup):
        """`--help` reads the table; only a command that is called is imported."""

        def list_commands(self, ctx: Any) -> list[str]:
            return list(commands)

        def get_command(self, ctx: Any, cmd_name: str) -> Any:
            if cmd_name not in commands:
                return None
            nonlocal called
            called = cmd_name
            command = typer.main.get_command(load(commands[cmd_name][0]))
            command.name = cmd_name
            attach(command, cmd_name)
            return command

        def resolve_command(self, ctx: Any, args: list[str]) -> Any:
            near = get_close_matches(args[0], commands) if args and args[0] not in commands else []
            if near and not ctx.resilient_parsing:
                names = " or ".join(f"`twin {name}`" for name in near)
                ctx.fail(f"No such command {args[0]!r}. Did you mean {names}?")
            return super().resolve_command(ctx, args)

        def invoke(self, ctx: Any) -> Any:
            try:
                result = super().invoke(ctx)
                sys.stdout.flush()
            except BrokenPipeError as error:
                if _reader_is_gone():
                    raise ReaderGone from error  # typer would end with code 1
                raise
            return result

        def format_commands(self, ctx: Any, formatter: Any) -> None:
            widest = max(map(len, commands))
            for title, names in sections.items():
                with formatter.section(title):
                    formatter.write_dl([(name.ljust(widest), commands[name][1]) for name in names])

    app = typer.Typer(
        cls=Lazy,
        no_args_is_help=True,
        help="A digital twin of a compute cluster.",
        context_settings={"help_option_names": ["--help", "-h"]},
        epilog="Begin with `twin demo`. `twin COMMAND --help` explains a command and ends with examples.",
        rich_markup_mode=None,
    )

    @app.callback(invoke_without_command=True)
    def _root(version: bool = typer.Option(False, "--version", help="Print the version and exit.")) -> None:
        if version:
            typer.echo(f"clustertwin {__version__}")
            raise typer.Exit

    try:
        typer.main.get_command(app)(prog_name="twin")
    except SystemExit as done:
        return done.code if isinstance(done.code, int) else 0
    except TwinError as error:
        typer.echo(f"twin: {visible_lines(str(error))}", err=True)
        return error.exit_code
    except ModuleNotFoundError as missing:
        named = " ".join((called, *sys.argv[2:3]))
        explained = explain(missing, needed.get(named, needed.get(called, "")))
        if explained is None:
            raise
        typer.echo(f"twin: {explained}", err=True)
        return explained.exit_code
    except ReaderGone:
        _discard_output()  # `twin … | head` is not an error
    except OSError as error:
        if error.errno not in NO_ROOM or error.filename is not None:
            raise
        _discard_output()
        typer.echo(f"twin: cannot write the output: {error.strerror}", err=True)
        return OutputError.exit_code
    return 0


def _discard_output() -> None:
    """Keep the interpreter from complaining at exit about output that cannot be written."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
