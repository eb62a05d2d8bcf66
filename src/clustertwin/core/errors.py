"""Every error clustertwin raises on purpose; the command line prints its text and exits with its code.

TwinError
├── InputError        a file or a text that is not what it should be: where, line, reason
│   ├── TraceError      a job log
│   ├── ExpositionError a /metrics text
│   └── RecordingError  a recording of telemetry
├── SourceError       a server or a node that does not answer, or not sensibly
├── SettingsError     a configuration or an option that cannot be honoured
├── OutputError       something that could not be written: a full disk, a file already there
├── Overloaded        something that others use, or that takes too long: try again later
└── MissingExtra      an optional dependency; names its install command
"""

from __future__ import annotations


class TwinError(Exception):
    """The root: one sentence that says what, where and why."""

    exit_code = 1


def describe(error: BaseException) -> str:
    """One sentence about any exception: the text of a deliberate one; the type and the shortened text of any other."""
    if isinstance(error, TwinError):
        return str(error)
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}".rstrip(": ")


class InputError(TwinError):
    """A file or text that cannot be read, with the place: `theta.swf:41: 17 fields, SWF has 18`."""

    def __init__(self, where: object, reason: str, line: int | None = None) -> None:
        self.where, self.line, self.reason = str(where), line, reason
        super().__init__(f"{where}:{line}: {reason}" if line is not None else f"{where}: {reason}")


class TraceError(InputError):
    """A job log."""


class ExpositionError(InputError):
    """A /metrics text."""


class RecordingError(InputError):
    """A recording of telemetry."""


class SourceError(TwinError):
    """A server or node that does not answer, or not sensibly."""


class NoSamples(SourceError):
    """A source that answers, and has nothing of the time asked for."""


class SettingsError(TwinError):
    """A configuration or an option that cannot be honoured."""

    exit_code = 2


class OutputError(TwinError):
    """Something that could not be written."""


class Overloaded(TwinError):
    """Something that others use for too long, or that takes too long itself. A later attempt can succeed."""


class MissingExtra(TwinError):
    """An optional dependency is not installed."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"{package} is not installed; pip install 'clustertwin[{extra}]'")
