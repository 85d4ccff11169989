"""A table of the functions that a page can call, generated from `snippets.lab.page`."""

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
    public = [getattr(room, name) for name in room.__all__]
    functions = [value for value in public if isinstance(value, FunctionType)]
    rows: list[list[Cell]] = [
        [code(function.__name__), code(_signature(function), 200), _first_sentence(function)]
        for function in sorted(functions, key=lambda function: not _is_piece(function))
    ]
    return table("What a page can call", ["function", "arguments", "what it shows or returns"], rows, text_columns=3)


def _is_piece(function: FunctionType) -> bool:
    """Whether the function is a piece, which `show` can call: its first parameter is `device`."""
    return next(iter(inspect.signature(function).parameters), "") == DEVICE


def _signature(function: FunctionType) -> str:
    """The arguments that a fence writes, without types: `experiment, caption='', *, work=None`."""
    signature = inspect.signature(function)
    untyped = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in signature.parameters.values()]
    arguments = [parameter for parameter in untyped if parameter.name != DEVICE]
    return str(signature.replace(parameters=arguments, return_annotation=inspect.Signature.empty))[1:-1] or "none"


def _first_sentence(function: FunctionType) -> str:
    """The first paragraph of a function's docstring."""
    return " ".join((inspect.getdoc(function) or "").partition("\n\n")[0].split())
