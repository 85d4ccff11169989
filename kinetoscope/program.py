"""A command-line program of several commands: its parser, its help, and the only place that reports errors.

Each command is a module with `DESCRIPTION`, `add_arguments(parser)` and `command(arguments)`, imported when called.
"""

from __future__ import annotations

import argparse
import difflib
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from kinetoscope import __version__
from kinetoscope.terminal import (
    DEBUG,
    DEBUG_HELP,
    CommandError,
    Parser,
    describe_os_error,
    discard,
    expand_patterns,
    flush_or_discard,
    print_error,
    quoted,
    require_outputs,
    split_debug,
)
from kinetoscope.trace.progress import quiet

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
    file_command: str = ""
    """The command that a file without a command probably wants. Such a program has `--quiet`, too."""

    def build_parser(self, chosen: str | None) -> Parser:
        """The parser with the arguments of the chosen command; the other commands have only their names and help."""
        parser = Parser(prog=self.name, description=self.description, epilog=DEBUG_HELP, formatter_class=_FORM)
        parser.add_argument("--version", action="version", version=f"kinetoscope {__version__}")
        self._add_quiet(parser)
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
            self._add_quiet(own)
            own.set_defaults(command=module.command, parser=own)
        if chosen is not None and chosen not in self.commands:
            parser.error(self._no_command(chosen))
        return parser

    def _add_quiet(self, parser: Parser) -> None:
        if self.file_command:
            parser.add_argument(
                "-q",
                "--quiet",
                action="store_true",
                default=argparse.SUPPRESS,
                help="no progress, no line about a file that was written",
            )

    def _no_command(self, name: str) -> str:
        """The error for a name that is no command: the nearest one, or the command for a file."""
        if self.file_command and (name.endswith((".json", ".json.gz")) or Path(name).is_file()):
            return f"no command {name!r}; for a file: {self.name} {self.file_command} {quoted(name)}"
        nearest = difflib.get_close_matches(name, self.commands, 1)
        return f"no command {name!r}; " + (f"did you mean {nearest[0]}?" if nearest else self._list())

    def _list(self) -> str:
        return f"the commands are {', '.join(self.commands)}; {self.name} --help explains them"

    def main(self, argv: Sequence[str] | None = None) -> int:
        """Run one command; 0: success, 1: failure, 2: usage error, 130: Ctrl-C."""
        arguments, debug = split_debug(sys.argv[1:] if argv is None else argv)
        try:
            require_outputs()
            return self._run(expand_patterns(arguments) if os.name == "nt" else arguments)
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
            if not argv:
                self.build_parser(None).error(f"no command; {self._list()}")
            chosen = next((argument for argument in argv if not argument.startswith("-")), None)
            arguments, unknown = self.build_parser(chosen).parse_known_args(argv)
            if unknown:
                arguments.parser.error(_unrecognized(unknown, arguments.parser.format_help()))
            with quiet(getattr(arguments, "quiet", False)):
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


def _unrecognized(arguments: Sequence[str], help_text: str) -> str:
    """The error for arguments that a command does not have: the option in its help that is nearest to the first."""
    nearest = difflib.get_close_matches(arguments[0].partition("=")[0], re.findall(r"--[\w-]+", help_text), 1, 0.7)
    return f"unrecognized arguments: {' '.join(arguments)}" + (f"; did you mean {nearest[0]}?" if nearest else "")
