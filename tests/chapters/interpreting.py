"""The process of the fixture `interpreted`: it reads a module and a path, and runs what saves a file there."""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Callable
from typing import Any

import pytest
from triton.runtime import interpreter

import snippets.fused_mlp.geglu
import snippets.regimes.kernels

IMPORTED = pytest, snippets.fused_mlp.geglu, snippets.regimes.kernels
"""What the test modules need and is slow to import."""


def patch_once() -> None:
    """Patch Triton's language once for each module: the interpreter does it at each call within a kernel, which takes a
    third of its time."""
    patch, scopes = interpreter._patch_lang, dict[str, Any]()

    def patched(function: Callable[..., object]) -> Any:
        if function.__module__ not in scopes:
            scopes[function.__module__] = patch(function)
        return type(scopes[function.__module__])()  # it has nothing to restore

    interpreter._patch_lang = patched


def serve() -> None:
    patch_once()
    for line in sys.stdin:
        module, path = json.loads(line)
        child = os.fork()
        if not child:
            importlib.import_module(module).run_all(path)
            os._exit(0)  # whatever is raised ends the child with its traceback, and with 1
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    serve()
