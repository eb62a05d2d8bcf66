"""Import what only some users need, late: module name -> module, or an error that names its install command."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from clustertwin.core.errors import MissingExtra

#: extra -> the packages it installs, by import name, and the extras it includes; as in pyproject.toml.
PACKAGES_BY_EXTRA: dict[str, tuple[str, ...]] = {
    "cli": ("orjson", "rich", "typer"),
    "arrow": ("pyarrow",),
    "telemetry": ("cli", "httpx", "numba", "numpy", "zstandard"),
    "workload": ("cli", "arrow", "gymnasium", "numba", "numpy"),
    "models": ("telemetry", "torch", "safetensors", "scipy", "sklearn"),
    "plots": ("matplotlib",),
    "pandas": ("pandas",),
    "xarray": ("xarray",),
    "study": ("models", "plots", "pyod"),
    "service": ("models", "fastapi", "jinja2", "python_multipart", "pydantic", "textual", "uvicorn"),
    "umap": ("models", "umap"),
    "campaign": ("telemetry", "mpi4py", "scipy", "sklearn"),
    "generate": ("workload", "models", "plots"),
    "rl": ("workload", "models", "plots"),
    "sb3": ("rl", "sb3_contrib"),
    "ray": ("ray",),
    "notify": ("apprise",),
    "remote-write": ("cramjam",),
    "learn": ("models", "plots", "mlflow"),
    "evidence": (),  # py-spy is a program, not a module
    "notebooks": ("generate", "rl", "pandas", "xarray", "ipykernel"),
    "privacy": ("generate", "opacus"),
    "sdv": ("sdv",),
    "realtabformer": ("realtabformer", "transformers", "datasets", "accelerate"),
}


def packages_of(extra: str) -> frozenset[str]:
    """The packages of an extra and of the extras it includes."""
    names = PACKAGES_BY_EXTRA[extra]
    inner = (packages_of(name) for name in names if name in PACKAGES_BY_EXTRA and name != extra)
    return frozenset(name for name in names if name not in PACKAGES_BY_EXTRA or name == extra).union(*inner)


def explain(missing: ModuleNotFoundError, preferred: str = "") -> MissingExtra | None:
    """The error that names the extra of a missing package; None if the package belongs to no extra, or is installed.

    `preferred` is named if it has the package, otherwise the first extra that has it.
    """
    package = (missing.name or "").partition(".")[0]
    extras = [extra for extra in (preferred, *PACKAGES_BY_EXTRA) if extra and package in packages_of(extra)]
    return MissingExtra(package, extras[0]) if extras and not _is_installed(package) else None


def _is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:
        return False


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
