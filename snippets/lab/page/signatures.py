"""A table of the functions that a page can call, generated from `snippets.lab.page`."""

from __future__ import annotations

import importlib
import inspect
from types import FunctionType

from kinetoscope.html import Cell, Html, code, table, with_code
from snippets.lab.finding.device import Device

DEVICE = "device"
"""The first parameter of a piece; `show` fills it in, so a fence leaves it out."""


def page_functions(device: Device) -> Html:
    """This table: every function of `snippets.lab.page`. The functions that `show` can call come first."""
    listed = sorted(_functions("snippets.lab.page"), key=lambda function: not _is_piece(function))
    return _listed("What a page can call", "what it shows or returns", listed)


def finding_functions(device: Device) -> Html:
    """The table of the functions that findings can call: every function of `snippets.lab.finding`."""
    return _listed("What findings can call", "what it returns", _functions("snippets.lab.finding"))


def _functions(room: str) -> list[FunctionType]:
    """The functions that a room offers. Imported here, because one of the rooms imports this module."""
    module = importlib.import_module(room)
    return [offered for _, offered in sorted(vars(module).items()) if isinstance(offered, FunctionType)]


def _listed(caption: str, result: str, functions: list[FunctionType]) -> Html:
    rows: list[list[Cell]] = [
        [_breaking(code(function.__name__)), code(_signature(function), 200), with_code(_first_sentence(function))]
        for function in functions
    ]
    return table(caption, ["function", "arguments", result], rows, text_columns=3)


def _breaking(name: Html) -> Html:
    """A name that breaks after an underscore, not before its last letter."""
    return Html(name.replace("_", "_<wbr>"))


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
