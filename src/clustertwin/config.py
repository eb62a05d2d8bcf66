"""One TOML file and CLUSTERTWIN_… variables -> frozen settings; what is wrong is named with its key and its line.

[source]                            CLUSTERTWIN_SOURCE__URL=http://prometheus:9090 says the same, and wins
kind = "prometheus"
url = "http://prometheus:9090"
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from datetime import time
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from clustertwin.core.errors import InputError, SettingsError

PREFIX = "CLUSTERTWIN_"


class ConfigError(InputError, SettingsError):
    """A configuration that cannot be honoured: where, which line, which key."""


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Service(_Section):
    host: str = "127.0.0.1"
    port: int = Field(default=8790, ge=0, le=65535)
    names: tuple[str, ...] = ()  # further names by which people reach it
    certificate: str = ""
    key: str = ""
    home: str = "~/.local/share/clustertwin"


class Source(_Section):
    kind: Literal["host", "prometheus", "exporters"] = "host"
    url: str = ""  # of Prometheus or VictoriaMetrics
    urls: tuple[str, ...] = ()  # of exporters
    match: str = ""  # narrows the nodes: cluster="a",instance=~"n[0-9]+:.*"
    username: str = ""
    password_file: str = ""
    token_file: str = ""
    ca_file: str = ""

    @model_validator(mode="after")
    def _complete(self) -> Source:
        if self.kind == "prometheus" and not self.url:
            raise ValueError("kind prometheus needs url")
        if self.kind == "exporters" and not self.urls:
            raise ValueError("kind exporters needs urls")
        return self


class Scoring(_Section):
    stride_s: int = Field(default=5, ge=1, le=30)
    stale_s: int = Field(default=15, ge=2)
    forget_s: int = Field(default=3600, ge=60)
    engine: Literal["here", "ray"] = "here"
    workers: int = Field(default=2, ge=1)  # actors, where the engine is ray


class Events(_Section):
    margin: float = Field(default=1.5, ge=1)
    strongest: float = Field(default=6.0, ge=1)
    needed_s: int = Field(default=60, ge=1)
    of_s: int = Field(default=90, ge=1)
    calm_ratio: float = Field(default=0.8, gt=0, le=1)
    calm_s: int = Field(default=120, ge=1)
    forget_s: int = Field(default=600, ge=1)
    same_cause_s: int = Field(default=120, ge=0)

    @model_validator(mode="after")
    def _possible(self) -> Events:
        if self.needed_s > self.of_s:
            raise ValueError(f"needed_s {self.needed_s} is more than of_s {self.of_s}")
        return self


class Recording(_Section):
    on: bool = True  # this host's seconds; of many nodes Prometheus keeps them
    keep_days: float = Field(default=7.0, gt=0)


class Notify(_Section):
    urls: tuple[str, ...] = ()
    link: str = ""
    every_s: float = Field(default=60.0, ge=0)


class Learning(_Section):
    nightly: str = ""  # a local time, 02:30, at which the service itself starts `twin learn run`; empty: a timer does

    @field_validator("nightly")
    @classmethod
    def _a_time(cls, text: str) -> str:
        if not re.fullmatch(r"(([01]\d|2[0-3]):[0-5]\d)?", text):
            raise ValueError(f"{text!r} is no time of day such as 02:30")
        return text

    @property
    def hour(self) -> time | None:
        return time.fromisoformat(self.nightly) if self.nightly else None


class Config(_Section):
    service: Service = Service()
    source: Source = Source()
    scoring: Scoring = Scoring()
    events: Events = Events()
    recording: Recording = Recording()
    notify: Notify = Notify()
    learning: Learning = Learning()

    @property
    def home(self) -> Path:
        return Path(self.service.home).expanduser()


def read_config(path: Path | None, environment: Mapping[str, str]) -> Config:
    """The file, if there is one, under the environment."""
    if path is None:
        return parse_config("", "defaults", environment)
    try:
        return parse_config(path.read_text(), path, environment)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(path, f"cannot be read: {getattr(error, 'strerror', None) or error}") from error


def parse_config(text: str, where: object, environment: Mapping[str, str]) -> Config:
    try:
        plain = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"line (\d+)", str(error))
        raise ConfigError(where, str(error), int(found[1]) if found else None) from error
    told = _overlay(plain, environment)
    try:
        return Config.model_validate(plain)
    except ValidationError as error:
        first = error.errors()[0]
        keys = [str(part) for part in first["loc"]]
        name = ".".join(keys)
        message = first["msg"].removeprefix("Value error, ")
        reason = f"there is no setting {name}" if first["type"] == "extra_forbidden" else f"{name}: {message}"
        if variable := told.get(tuple(keys[:2])):
            raise ConfigError(variable, reason) from error
        raise ConfigError(where, reason, _line_of(text, keys)) from error


def _overlay(plain: dict[str, Any], environment: Mapping[str, str]) -> dict[tuple[str, ...], str]:
    """Put variables over the file's values; gives which variable said what. A list is told with commas."""
    told: dict[tuple[str, ...], str] = {}
    for variable, value in environment.items():
        section, _, key = variable.removeprefix(PREFIX).lower().partition("__")
        if not variable.startswith(PREFIX) or not key or section not in Config.model_fields:
            continue
        kind = Config.model_fields[section].annotation
        assert kind is not None
        listed = key in kind.model_fields and "tuple" in str(kind.model_fields[key].annotation)
        table = plain.setdefault(section, {})
        if isinstance(table, dict):
            table[key] = tuple(part.strip() for part in value.split(",") if part.strip()) if listed else value
            told[section, key] = variable
    if home := environment.get(f"{PREFIX}HOME"):
        plain.setdefault("service", {})["home"] = home
        told["service", "home"] = f"{PREFIX}HOME"
    return told


def _line_of(text: str, keys: list[str]) -> int | None:
    """Where a key is written: inside its table, or the table's own line; None where it stands nowhere."""
    section, line_of_section = "", None
    for number, line in enumerate(text.splitlines(), 1):
        if header := re.match(r"\s*\[+\s*([^\]]+?)\s*\]", line):
            section = header[1]
            line_of_section = number if section == keys[0] else line_of_section
        # Above the first table a key stands alone, or dotted: service.port = 1
        wanted = keys[1:2] if section == keys[0] else keys[:1] if not section else []
        if wanted and re.match(rf"\s*[\"']?{re.escape(wanted[0])}[\"']?\s*[=.]", line):
            return number
    return line_of_section
