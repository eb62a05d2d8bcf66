"""Try a change on the live queue: a form's values -> `twin sched try` in a process with a budget -> its document.

Only one comparison runs at a time. Nothing is changed in Slurm.
"""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from typing import Any

from clustertwin.core.errors import SettingsError, SourceError
from clustertwin.service.live.queue.queue_settings import QueueSettings
from clustertwin.service.live.queue.start_watch import RunTwin, run_twin


@dataclass(frozen=True, slots=True)
class ChangeForm:
    """What a person entered; empty fields stay as they are."""

    weights: dict[str, float] = field(default_factory=dict)
    add_nodes: int = 0
    like_node: str = ""
    drain: str = ""

    def arguments(self) -> list[str]:
        words = [f"--weight={name}={value:g}" for name, value in self.weights.items()]
        values = (("add-nodes", self.add_nodes), ("like-node", self.like_node), ("drain", self.drain))
        return [*words, *(f"--{name}={value}" for name, value in values if value)]


class DeskBusy(SettingsError):
    """Another comparison runs."""


class ChangeDesk:
    """Runs comparisons, one at a time."""

    def __init__(self, settings: QueueSettings, run: RunTwin = run_twin) -> None:
        self.settings, self._run = settings, run
        self._free = threading.Lock()

    def compare(self, form: ChangeForm) -> dict[str, Any]:
        """The document of `twin sched try`."""
        if not self._free.acquire(blocking=False):
            raise DeskBusy("another comparison runs; try again in a minute")
        try:
            answer = self._run([*self.settings.command("try"), *form.arguments()], self.settings.budget_s)
            document: dict[str, Any] = json.loads(answer)
            document["groups"], document["jobs"]  # what the page needs
            return document
        except (ValueError, KeyError, TypeError) as error:
            raise SourceError(f"the answer of twin sched try cannot be read ({error!r:.100})") from error
        finally:
            self._free.release()
