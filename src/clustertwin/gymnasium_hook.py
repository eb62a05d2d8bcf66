"""Let `gymnasium.make("clustertwin:clustertwin/Schedule-v0")` find the environment, whichever is imported first.

Gymnasium 1.x reads no entry points: it imports the module before the colon and looks into its registry. If Gymnasium is
imported already, the environment is registered now. Otherwise it is registered right after Gymnasium has been imported.
Neither imports Gymnasium, numpy or the simulator.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # `import typing` would be the slowest part of `import clustertwin`
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

ID = "clustertwin/Schedule-v0"
ENTRY_POINT = "clustertwin.workload.simulator.environment.schedule_env:make_schedule_env"


def register(gymnasium: Any) -> None:
    """Add the environment to the registry, as an import string."""
    if ID not in gymnasium.registry:
        gymnasium.register(ID, entry_point=ENTRY_POINT)


def install() -> None:
    """Register now, or when Gymnasium is imported."""
    gymnasium = sys.modules.get("gymnasium")
    if gymnasium is not None and hasattr(gymnasium, "registry"):
        register(gymnasium)
    elif not any(isinstance(finder, _AfterImport) for finder in sys.meta_path):
        sys.meta_path.insert(0, _AfterImport())


class _AfterImport:
    """A finder that finds Gymnasium as the others would, and registers the environment after its import."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != "gymnasium":
            return None
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        from importlib.util import find_spec

        spec = find_spec(name)
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def execute_and_register(module: ModuleType) -> None:
            execute(module)
            register(module)

        spec.loader.exec_module = execute_and_register  # type: ignore[method-assign]
        return spec
