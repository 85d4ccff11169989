"""What goes to one process when tests run in two, what is skipped without a GPU, and lines to be read in the end."""

from __future__ import annotations

import gc
import os
import signal
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock  # comes with torch

SITE = "tests/site/"
LONGEST = (
    "tests/site/test_pages.py",
    SITE,
    "tests/processes/",
    "tests/mutations/",
    "tests/book/test_other_devices.py",
)
"""What begins first, in this order: no process waits in the end for one that has a long file before it.

Of the browser tests those of the book, while another site is built for the rest.
"""
WEIGHTS = pytest.StashKey[list[str]]()


def pytest_configure() -> None:
    """A thread for each process: two share the cores, and idle threads of torch spin.

    A shell's background job ignores Ctrl-C, and so would every process that a test starts and interrupts.
    """
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(optionalhook=True)  # where pytest-xdist is installed
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """A file stays in one process, and so do all files that look at the built site."""
    from xdist.scheduler import LoadScopeScheduling

    class Together(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return SITE if nodeid.startswith(SITE) else nodeid.partition("::")[0]

    return Together(config, log)


def pytest_collection_finish() -> None:
    """What was imported stays: the garbage collector need not look at it again, and seldom at the traces."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 100)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, object, object]:
    """One process at a time tests a GPU. What the tests of a file have read stays, too, when the next file begins."""
    if nextitem is not None and nextitem.path != item.path:
        gc.freeze()
    if item.get_closest_marker("gpu"):
        with FileLock(Path(tempfile.gettempdir()) / "profiling-pytorch-gpu-tests.lock"):
            return (yield)
    return (yield)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: [not item.nodeid.startswith(start) for start in LONGEST])
    needing = [item for item in items if item.get_closest_marker("gpu")]
    if not needing:
        return
    import torch

    if not torch.cuda.is_available():
        for item in needing:
            item.add_marker(pytest.mark.skip(reason="needs a CUDA GPU; torch.cuda.is_available() is False here"))


@pytest.fixture(scope="session")
def weights(pytestconfig: pytest.Config) -> list[str]:
    """Lines of what was weighed; they are printed when all tests are done."""
    return pytestconfig.stash.setdefault(WEIGHTS, [])


def pytest_sessionfinish(session: pytest.Session) -> None:
    """One of two processes hands its lines to the one that prints them."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["weights"] = session.config.stash.get(WEIGHTS, [])


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    node.config.stash.setdefault(WEIGHTS, []).extend(getattr(node, "workeroutput", {}).get("weights", []))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    lines = config.stash.get(WEIGHTS, [])
    if lines:
        terminalreporter.section("weight of the site")
        for line in lines:
            terminalreporter.write_line(line)
