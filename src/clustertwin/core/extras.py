"""Import what only some users need, late: module name -> module, or an error that names its install command."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from clustertwin.core.errors import MissingExtra


def require(module: str, extra: str) -> Any:
    """The module, or `MissingExtra` naming `pip install 'clustertwin[extra]'`."""
    try:
        return import_module(module)
    except ModuleNotFoundError as missing:
        # A broken dependency of an installed package is not a missing extra.
        if missing.name is None or missing.name.split(".")[0] != module.split(".")[0]:
            raise
        raise MissingExtra(module.split(".")[0], extra) from missing


def load(target: str) -> Any:
    """The object behind an import string `package.module:name`, as the plug-in tables hold them."""
    module, _, name = target.partition(":")
    return getattr(import_module(module), name)
