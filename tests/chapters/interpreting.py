"""The process of the fixture `interpreted`: it reads a module and a path, and runs what saves a file there."""

from __future__ import annotations

import importlib
import json
import os
import sys

import pytest

import snippets.fused_mlp.geglu
import snippets.regimes.kernels

IMPORTED = pytest, snippets.fused_mlp.geglu, snippets.regimes.kernels
"""What the test modules need and is slow to import."""


def serve() -> None:
    for line in sys.stdin:
        module, path = json.loads(line)
        child = os.fork()
        if not child:
            importlib.import_module(module).run_all(path)
            os._exit(0)  # whatever is raised ends the child with its traceback, and with 1
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    serve()
