"""What goes to one process when tests run in two, what is skipped without a GPU, and lines to be read in the end."""

from __future__ import annotations

import pytest

WEIGHTS = pytest.StashKey[list[str]]()


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.pluginmanager.hasplugin("xdist"):
        for item in items:
            item.add_marker(pytest.mark.xdist_group(_group(item)))
    needing = [item for item in items if item.get_closest_marker("gpu")]
    if not needing:
        return
    import torch

    if not torch.cuda.is_available():
        for item in needing:
            item.add_marker(pytest.mark.skip(reason="needs a CUDA GPU; torch.cuda.is_available() is False here"))


def _group(item: pytest.Item) -> str:
    """A file stays together; so do all that look at the built site, and all that use the one GPU."""
    if item.get_closest_marker("gpu"):
        return "gpu"
    folder, _, _ = item.nodeid.partition("::")[0].rpartition("/")
    return folder if folder.endswith("browser") else item.nodeid.partition("::")[0]


@pytest.fixture(scope="session")
def weights(pytestconfig: pytest.Config) -> list[str]:
    """Lines of what was weighed; they are printed when all tests are done."""
    return pytestconfig.stash.setdefault(WEIGHTS, [])


def pytest_sessionfinish(session: pytest.Session) -> None:
    """One of two processes hands its lines to the one that prints them."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["weights"] = session.config.stash.get(WEIGHTS, [])


class Gathering:
    """What takes them."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines

    def pytest_testnodedown(self, node: object) -> None:
        self.lines.extend(getattr(node, "workeroutput", {}).get("weights", []))


def pytest_configure(config: pytest.Config) -> None:
    if config.pluginmanager.hasplugin("dsession"):
        config.pluginmanager.register(Gathering(config.stash.setdefault(WEIGHTS, [])))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    lines = config.stash.get(WEIGHTS, [])
    if lines:
        terminalreporter.section("weight of the site")
        for line in lines:
            terminalreporter.write_line(line)
