"""The edge between a command and a terminal, a log or a pipe: arguments, errors in one line, outputs that fail.

What a stranger named (files, devices, kernels) reaches standard error only through `print_error`.
"""

from __future__ import annotations

import argparse
import errno
import io
import os
import re
import shlex
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TextIO

from kinetoscope.trace.text import printable, shortened

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

DEBUG = "--debug"
DEBUG_HELP = f"{DEBUG}, before or after any command, prints where an error came from."
MAX_COLUMNS = 1000
"""The most columns of an error, whose message may quote a whole file."""
_FULL = "free some space, or write elsewhere"
_FORBIDDEN = "write to another place, or let this user read and write this one"
_CURES = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EFBIG: _FULL,
    errno.EROFS: _FORBIDDEN,
    errno.EACCES: _FORBIDDEN,
    errno.EPERM: _FORBIDDEN,
    errno.ENOENT: "check the path",
    errno.ENOTDIR: "check the path: a part of it is a file",
    errno.EISDIR: "give the path of a file, not of a folder",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.EMFILE: "raise the limit of open files: ulimit -n 1024",
    errno.EBADF: "it is closed; redirect it to a file, or to /dev/null",
}


def called() -> str:
    """How this process was told to run kinetoscope: a command that a message names can then be typed as it stands."""
    path = Path(sys.argv[0])
    if path.parts[-2:] == ("kinetoscope", "__main__.py"):
        return "python -m kinetoscope"
    if "UV" in os.environ and "archive-v0" in path.parts:
        return f"uvx {_source('--from')}kinetoscope"
    if "pipx" in path.parts and "venvs" not in path.parts:
        return f"pipx run {_source('--spec')}kinetoscope"
    return "kinetoscope"


def _source(option: str) -> str:
    """The option that names the address of the wheel, if the package was installed from one; not a path of a file."""
    from importlib.metadata import PackageNotFoundError, distribution  # here, since few calls need it

    try:
        found = re.search(
            r'"url": ?"(https?://[^"\\\s]+)"', distribution("kinetoscope").read_text("direct_url.json") or ""
        )
    except PackageNotFoundError:
        return ""
    return f"{option} {quoted(found[1])} " if found else ""


class CommandError(Exception):
    """A command cannot go on; the message has the cause and the cure."""

    def __init__(self, message: str, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class Parser(argparse.ArgumentParser):
    """Prints usage errors without control characters, and help that cannot be printed is an error."""

    def error(self, message: str) -> NoReturn:
        """Print the usage and the error; exit with 2."""
        super().error(_one_line(message))

    def print_help(self, file: SupportsWrite[str] | None = None) -> None:
        """Print the help. Raises `OSError`."""
        print(self.format_help(), end="", file=file or sys.stdout)


def positive(what: str) -> Callable[[str], float]:
    """The type of an argument that is a positive number of `what`."""

    def parse(text: str) -> float:
        with suppress(ValueError):
            if float(text) > 0:  # not nan either
                return float(text)
        raise argparse.ArgumentTypeError(f"must be a positive number of {what}, not {text!r}")

    return parse


def split_debug(arguments: Sequence[str]) -> tuple[list[str], bool]:
    """The arguments without `--debug`, and whether it was among them; after `--` it is a name like any other."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    options = [argument for argument in arguments[:end] if argument != DEBUG]
    return [*options, *arguments[end:]], len(options) < end


def quoted(argument: str, is_windows: bool = os.name == "nt") -> str:
    """A file's name as a shell of this system reads it; on Windows a name holds no quote."""
    if is_windows:
        return argument if re.fullmatch(r"[\w.:\\/-]+", argument) else f'"{argument}"'
    return shlex.quote(argument)


def expand_patterns(arguments: Sequence[str]) -> list[str]:
    """The files that `rank*.json.gz` matches, in its place: shells of Windows hand patterns over as they are."""
    files = {argument: sorted(glob(argument)) for argument in arguments if not argument.startswith("-")}
    return [file for argument in arguments for file in files.get(argument) or [argument]]


def require_outputs() -> None:
    """Let every character be printed, as an escape where the encoding lacks it. Raises `OSError` for a closed stdout.

    A closed stream gets the null device, so that no file that is opened later takes its place.
    """
    is_closed = sys.stdout is None
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    if is_closed:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF), "standard output")


def print_error(message: str, show_traceback: bool = False) -> None:
    """Print `error: ...` as one line of printable characters, below the traceback of the current exception if asked."""
    lines = traceback.format_exc().splitlines() if show_traceback else []
    try:
        print("\n".join([*map(_one_line, lines), f"error: {_one_line(message)}"]), file=sys.stderr, flush=True)
    except OSError:  # no way to report it
        discard(sys.stderr)


def describe_os_error(error: OSError) -> str:
    """`/full/x.json: No space left on device; free some space, or write elsewhere`."""
    where = error.filename if error.filename is not None else "standard output" if _is_failing(sys.stdout) else ""
    if isinstance(where, bytes):
        where = os.fsdecode(where)
    reason = error.strerror or str(error) or type(error).__name__
    cure = _CURES.get(error.errno or 0, f"run the command again, with {DEBUG} to see where")
    return f"{where}: {reason}; {cure}" if where else f"{reason}; {cure}"


def flush_or_discard() -> None:
    """Write what is left to standard output; discard it where that fails, or Python would report it at its end."""
    if _is_failing(sys.stdout):
        discard(sys.stdout)


def discard(stream: TextIO) -> None:
    """Lead a stream that cannot be written to the null device."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _one_line(text: str) -> str:
    return shortened(printable(text), MAX_COLUMNS)


def _is_failing(stream: TextIO) -> bool:
    try:
        stream.flush()
    except (OSError, ValueError):
        return True
    return False
