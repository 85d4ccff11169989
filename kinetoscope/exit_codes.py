"""The exit codes of all commands. A check that does not pass, damaged files and wrong usage are never confused."""

from __future__ import annotations

from collections.abc import Mapping

OK, NO, USAGE, DAMAGED, INTERRUPTED = 0, 1, 2, 3, 130
EXIT_CODES: Mapping[int, str] = {
    OK: "success; of a check: it passes",
    NO: "the check that was asked for does not pass; or an error of the system, such as a full disk: then standard "
    "error has a line that begins with `error:`",
    USAGE: "wrong usage, or a file that cannot be used: no trace, no step, not the files that the command needs",
    DAMAGED: "a check on a file that is cut off, or in which kernels, calls or operators are damaged or missing: times "
    "per step are wrong, and the check neither passes nor fails",
    INTERRUPTED: "stopped with Ctrl-C; nothing is left half written",
}
"""Code -> its meaning."""
CHECKS: Mapping[str, str] = {
    "report --fail-on": "no finding has this severity or a higher one; findings that cost their time once do not count",
    "diff --gate": "nothing got slower by this many percent beyond the noise",
    "doctor": "no check failed; warnings pass",
}
"""What asks for a check -> when it passes. No other command exits with 1 or 3 for what it found."""
