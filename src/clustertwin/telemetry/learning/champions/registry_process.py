"""An MLflow server, each call in a process of its own: a night's record or a champion -> sent, or a `SourceError`.

MLflow's client reads an answer of any length into memory, and waits as long as a server sends a byte now and then or
asks it to wait. A process has a limit of memory, and can be killed: the night that waits for it always ends. The URI
may hold a password, so it is not an argument.
"""

from __future__ import annotations

import json
import resource
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from clustertwin.core.errors import SourceError, TwinError
from clustertwin.core.formatting import visible
from clustertwin.telemetry.learning.champions.mlflow_registry import MlflowRegistry, without_password
from clustertwin.telemetry.learning.champions.registry import NightRecord, night_record_of

#: A night has about a hundred requests and a few megabytes of models.
WITHIN_S = 600.0
#: Of memory; the client needs half a gigabyte, and some for each core.
MOST_BYTES = 4 << 30


class RegistryProcess:
    """An MLflow tracking server by URL."""

    def __init__(self, uri: str, within_s: float = WITHIN_S) -> None:
        self.uri, self.within_s = uri, within_s

    def add_night(self, record: NightRecord) -> str:
        return self._call({"record": asdict(record)})

    def set_champion(self, version: str, directory: Path, sha256: str) -> None:
        self._call({"champion": [version, str(directory), sha256]})

    def _call(self, call: dict[str, Any]) -> str:
        """What the call returns; it is the last line of the process."""
        command = [sys.executable, "-m", __name__]
        message = json.dumps({"uri": self.uri, "within_s": self.within_s, **call}).encode()
        where = without_password(self.uri)
        try:
            done = subprocess.run(command, input=message, capture_output=True, timeout=self.within_s, check=False)
        except subprocess.TimeoutExpired:
            raise SourceError(f"{where}: did not finish within {self.within_s:.0f} s") from None
        except OSError as error:
            raise SourceError(f"{where}: no process can be started for it: {error.strerror}") from error
        text = (done.stdout.decode(errors="replace").splitlines() or [""])[-1]
        if done.returncode:
            reason = text or f"its process ended with exit code {done.returncode}"
            raise SourceError(visible(reason))
        return text


def main() -> int:
    with suppress(OSError, ValueError):  # the limit may be lower already
        resource.setrlimit(resource.RLIMIT_DATA, (MOST_BYTES, MOST_BYTES))
    call = json.load(sys.stdin.buffer)
    signal.alarm(int(call["within_s"]) + 1)  # the night may end first
    try:
        registry = MlflowRegistry(call["uri"])
        if "record" in call:
            sys.stdout.write(registry.add_night(night_record_of(call["record"])))
        else:
            version, directory, sha256 = call["champion"]
            registry.set_champion(version, Path(directory), sha256)
    except TwinError as error:
        sys.stdout.write(f"\n{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
