"""A command-line program of several commands: its parser, its help, and the only place that reports errors.

Each command is a module with `DESCRIPTION`, `add_arguments(parser)` and `command(arguments)`, imported when called.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import NamedTuple

from kinetoscope import __version__
from kinetoscope.terminal import (
    DEBUG,
    DEBUG_HELP,
    CommandError,
    Parser,
    describe_os_error,
    discard,
    flush_or_discard,
    print_error,
    require_outputs,
    split_debug,
)

_FORM = argparse.RawDescriptionHelpFormatter


class Command(NamedTuple):
    """A command before it is imported."""

    module: str
    help: str


@dataclass(frozen=True)
class Program:
    """The differences between two programs."""

    name: str
    """As it was called."""
    description: str
    commands: Mapping[str, Command]
    cure: str
    """The command that installs a missing package."""
    exit_code: Callable[[Exception], int | None]
    """Of an error whose message says it all; None for any other."""
    on_interrupt: str = "stopped"

    def build_parser(self, chosen: str | None) -> Parser:
        """The parser with the arguments of the chosen command; the other commands have only their names and help."""
        parser = Parser(prog=self.name, description=self.description, epilog=DEBUG_HELP, formatter_class=_FORM)
        parser.add_argument("--version", action="version", version=f"kinetoscope {__version__}")
        commands = parser.add_subparsers(dest="name", required=True, metavar="COMMAND")
        for name, (path, text) in self.commands.items():
            if name != chosen:
                commands.add_parser(name, help=text)
                continue
            module = import_module(path)
            own = commands.add_parser(
                name, help=text, description=module.DESCRIPTION, epilog=DEBUG_HELP, formatter_class=_FORM
            )
            module.add_arguments(own)
            own.set_defaults(command=module.command)
        return parser

    def main(self, argv: Sequence[str] | None = None) -> int:
        """Run one command; 0: success, 1: failure, 2: usage error, 130: Ctrl-C."""
        arguments, debug = split_debug(sys.argv[1:] if argv is None else argv)
        try:
            require_outputs()
            return self._run(arguments)
        except BrokenPipeError:
            discard(sys.stdout)
            return 0
        except KeyboardInterrupt:
            print(f"\n{self.on_interrupt}", file=sys.stderr)
            return 130
        except Exception as error:
            code, message = self._describe(error)
            flush_or_discard()
            print_error(message, debug)
            return code

    def _run(self, argv: Sequence[str]) -> int:
        """Parse and run one command, and flush its output here, where a closed pipe still raises."""
        try:
            chosen = next((argument for argument in argv if not argument.startswith("-")), None)
            arguments = self.build_parser(chosen).parse_args(argv)
            code: int = arguments.command(arguments)
        except SystemExit:  # of argparse, after help or a usage error
            sys.stdout.flush()
            raise
        sys.stdout.flush()
        return code

    def _describe(self, error: Exception) -> tuple[int, str]:
        """The exit code and the line for an error."""
        if isinstance(error, CommandError):
            return error.exit_code, str(error)
        if isinstance(error, OSError):
            return 1, describe_os_error(error)
        if isinstance(error, ModuleNotFoundError):
            return 1, f"{error}; install what is missing: {self.cure}"
        if isinstance(error, MemoryError):
            return 1, "not enough memory; give a smaller file, or end other programs"
        code = self.exit_code(error)
        if code is not None:
            return code, str(error)
        return 1, f"{type(error).__name__}: {error}; run the command again with {DEBUG} to see where"
