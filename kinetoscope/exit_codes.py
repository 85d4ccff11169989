"""The exit codes of all commands. A check that does not pass, damaged files and wrong usage are never confused."""

from __future__ import annotations

from collections.abc import Mapping

OK, NO, USAGE, DAMAGED, INTERRUPTED = 0, 1, 2, 3, 130
EXIT_CODES: Mapping[int, str] = {
    OK: "the command succeeded; if a check was asked for, the check passes",
    NO: "the check doesn't pass; or the system reports an error, such as a full disk: then a line of standard error "
    "begins with `error:`",
    USAGE: "the command is used wrongly, or a file can't be used: the file is no trace, has no step, or is not a file "
    "that the command needs",
    DAMAGED: "the check neither passes nor fails, because times per step are wrong: the file is cut off, or kernels, "
    "calls or operators in the file are damaged or missing",
    INTERRUPTED: "the user stopped the command with Ctrl-C; no file is left half written",
}
"""Code -> its meaning."""
CHECKS: Mapping[str, str] = {
    "report --fail-on": "no finding has the given severity or a higher one; findings that cost their time only once "
    "don't count",
    "diff --gate": "no slowdown beyond the noise is as large as the given percentage",
    "doctor": "no check of the trace or of the machine failed; warnings don't count",
}
"""What asks for a check -> when it passes. No other command exits with 1 or 3 for what it found."""
