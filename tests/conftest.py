"""How processes share the tests, what is skipped without a GPU, and lines to be read in the end."""

from __future__ import annotations

import gc
import os
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

SITE = "tests/site/"
VISITS = tuple(f"{SITE}test_{name}.py" for name in ("pages", "stops", "weight"))
"""These ask for what was seen on the first visit to each page."""
READERS = ("tests/book/", "tests/mutations/", "tests/lab/page/test_timeline.py")
"""These read all recordings of the book, which takes seconds: one process reads them for all."""
QUICK = ("tests/book/", "tests/chapters/", "tests/lab/", "tests/tool/")
"""Whose files take seconds, unless a test in them is marked as slow."""

if find_spec("hypothesis"):  # some tests of the tool run without it
    from hypothesis import HealthCheck, settings

    slow_machine = [HealthCheck.too_slow]
    settings.register_profile(
        "quick", max_examples=40, deadline=5000, derandomize=True, suppress_health_check=slow_machine
    )
    settings.register_profile("check", settings.get_profile("quick"), max_examples=150)
    settings.load_profile("quick")  # `make check` asks for the other one


# Tests make millions of objects that live for a test. A collection for each 700 of them, which is Python's way, takes a
# sixth of the time of all tests and finds next to nothing.
gc.set_threshold(50_000, 20, 50)

# A thread for each process: two share the cores, and idle threads of torch spin. Torch reads it when it is imported,
# which another conftest.py may do before any hook of this one.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Inductor tries out the vector instructions of the CPU in programs that it compiles and that import torch: half of the
# CPU time of a process's first compilation. What the CPU says that it has is enough here.
os.environ.setdefault("TORCHINDUCTOR_VEC_ISA_OK", "1")


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


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """A process takes file by file, since what the tests of a file have read stays; of some folders, several files."""
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            if nodeid.startswith(SITE):
                return "visits" if nodeid.startswith(VISITS) else SITE
            return "readers" if nodeid.startswith(READERS) else super()._split_scope(nodeid)

    config.option.loadscopereorder = False  # `pytest_collection_modifyitems` has put the long ones first
    return Scheduling(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """One process at a time tests a GPU."""
    if item.get_closest_marker("gpu"):
        from filelock import FileLock  # comes with torch

        with FileLock(Path(tempfile.gettempdir()) / "profiling-pytorch-gpu-tests.lock"):
            return (yield)
    return (yield)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    tests_in = Counter(item.path for item in items)
    long = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: (item.nodeid.startswith(QUICK) and item.path not in long, -tests_in[item.path]))
    items.sort(key=lambda item: (not item.nodeid.startswith(SITE), not item.nodeid.startswith(VISITS)))
    needing = [item for item in items if item.get_closest_marker("gpu")]
    if not needing:
        return
    import torch

    if not torch.cuda.is_available():
        for item in needing:
            item.add_marker(pytest.mark.skip(reason="needs a CUDA GPU; torch.cuda.is_available() is False here"))


@pytest.fixture
def weigh(record_property: Callable[[str, object], None]) -> Callable[[str], None]:
    """Takes a line on what was weighed; the lines are printed when all tests are done."""
    return lambda line: record_property("weight", line)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = [*terminalreporter.stats.get("passed", []), *terminalreporter.stats.get("failed", [])]
    lines = [str(value) for each in reports for name, value in each.user_properties if name == "weight"]
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
