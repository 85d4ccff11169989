"""What comes first, what is skipped without a GPU, and lines to be read in the end."""

from __future__ import annotations

import gc
import os
import signal
import sys
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

FIRST = "tests/site/test_pages.py"
"""What begins first of the browser tests: another site is built meanwhile for the rest."""
WEIGHTS = pytest.StashKey[list[str]]()


# A thread for each process: two share the cores, and idle threads of torch spin. Torch reads it when it is imported,
# which another conftest.py may do before any hook of this one.
os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    """The tests of the tool run without pytest-timeout, too, whose setting pyproject.toml has."""
    if not pluginmanager.hasplugin("timeout"):
        parser.addini("timeout", "seconds of a test; needs pytest-timeout")


def pytest_configure(config: pytest.Config) -> None:
    """A shell's background job ignores Ctrl-C, and so would every process that a test starts and interrupts."""
    if not config.pluginmanager.hasplugin("timeout"):
        config.addinivalue_line("markers", "timeout: needs pytest-timeout")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


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
        from filelock import FileLock  # comes with torch

        with FileLock(Path(tempfile.gettempdir()) / "profiling-pytorch-gpu-tests.lock"):
            return (yield)
    return (yield)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: not item.nodeid.startswith(FIRST))
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


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    lines = config.stash.get(WEIGHTS, [])
    if lines:
        terminalreporter.section("weight of the site")
        for line in lines:
            terminalreporter.write_line(line)


@pytest.fixture(autouse=True)
def _no_build_goes_on() -> Iterator[None]:
    """Ends the build that a test started: the next one may write other recordings to the same place."""
    yield
    if kept := sys.modules.get("snippets.lab.page.kept"):
        kept.stop()
    elif cache := sys.modules.get("snippets.lab.cache"):
        cache.end_build()
