"""What a page can call, made from the code: a row for each function that the room offers."""

from __future__ import annotations

import importlib
import inspect
from types import FunctionType

from snippets.lab.finding.device import Device
from snippets.lab.html import Cell, Html, code, table

DEVICE = "device"
"""The first parameter of a piece; `show` fills it in, so a fence leaves it out."""


def page_functions(device: Device) -> Html:
    """What this table lists: every function of `snippets.lab.page`, with what `show` calls first."""
    room = importlib.import_module("snippets.lab.page")  # which imports this module
    functions = [getattr(room, name) for name in room.__all__]
    listed = sorted((one for one in functions if isinstance(one, FunctionType)), key=lambda one: not _is_piece(one))
    rows: list[list[Cell]] = [
        [code(function.__name__), code(_signature(function), 200), _first_sentence(function)] for function in listed
    ]
    return table("What a page can call", ["function", "arguments", "what it shows or returns"], rows, text_columns=3)


def _is_piece(function: FunctionType) -> bool:
    """Whether `show` can call it."""
    return next(iter(inspect.signature(function).parameters), "") == DEVICE


def _signature(function: FunctionType) -> str:
    """Its arguments as a fence writes them, without types: `experiment, caption='', *, work=None`."""
    signature = inspect.signature(function)
    bare = [one.replace(annotation=inspect.Parameter.empty) for one in signature.parameters.values()]
    own = [one for one in bare if one.name != DEVICE]
    return str(signature.replace(parameters=own, return_annotation=inspect.Signature.empty))[1:-1] or "none"


def _first_sentence(function: FunctionType) -> str:
    """The first paragraph of its docstring."""
    return " ".join((inspect.getdoc(function) or "").partition("\n\n")[0].split())
