"""The address of the book, to whose pages findings lead."""

from __future__ import annotations

import argparse
import os
from importlib.metadata import PackageNotFoundError, metadata

VARIABLE = "KINETOSCOPE_SITE"
_DOCUMENTATION = "Documentation, "


def site_address(text: str) -> str:
    """The value of `--site`, with a slash at its end. Raises `ArgumentTypeError` unless it is a web address."""
    if text and not text.startswith(("https://", "http://")):
        raise argparse.ArgumentTypeError(f"must begin with https:// or http://, not {text!r}")
    return text if text.endswith("/") or not text else f"{text}/"


def default_site() -> str:
    """The value of KINETOSCOPE_SITE, else the address in the metadata of the installed package; empty if unknown.

    A wheel has the address if the site that built it knew its own.
    """
    given = os.environ.get(VARIABLE)
    if given is not None:
        return given
    try:
        addresses = metadata("kinetoscope").get_all("Project-URL") or []
    except PackageNotFoundError:  # run from a clone
        return ""
    return next((each.removeprefix(_DOCUMENTATION) for each in addresses if each.startswith(_DOCUMENTATION)), "")
