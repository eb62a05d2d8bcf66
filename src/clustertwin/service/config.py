"""The configuration: one TOML file and CLUSTERTWIN_… variables -> frozen settings. Errors name the key and the line.

[source]                            # the variable CLUSTERTWIN_SOURCE__URL overrides the key `url`
kind = "prometheus"
url = "http://prometheus:9090"

Each default stands in the settings of the part that uses it (`LoopSettings`, `EventSettings`, `NotifySettings`,
`SourceSettings`, `Binding`). A section lists the keys that users may set, takes their defaults from there, and adds
limits.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import time
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator, model_validator

from clustertwin.core.errors import InputError, SettingsError
from clustertwin.core.foreign_files import expanded, parse_toml
from clustertwin.service.act.hand_settings import HandSettings
from clustertwin.service.act.slurm_commands import RunCommand, run_command
from clustertwin.service.live.feeds.source_setup import SourceKind, SourceSettings, parse_shard
from clustertwin.service.live.loop_settings import LoopSettings
from clustertwin.service.live.members.member_settings import MemberSettings
from clustertwin.service.live.queue.queue_settings import QueueSettings
from clustertwin.service.outgoing.notifications import NotifySettings
from clustertwin.service.store.history_limits import HistoryLimits
from clustertwin.service.store.home_format import DEFAULT_HOME
from clustertwin.service.web.binding import Binding
from clustertwin.telemetry.detection.events.tracker import EventSettings
from clustertwin.telemetry.learning.duel.duel_rule import DuelRule
from clustertwin.telemetry.learning.night.calendar_day import DayLimits

PREFIX = "CLUSTERTWIN_"

_DAY, _DUEL, _HISTORY = DayLimits(), DuelRule(), HistoryLimits()
_BINDING, _SOURCE, _LOOP, _EVENTS, _NOTIFY, _HAND, _QUEUE = (
    Binding(),
    SourceSettings(),
    LoopSettings(),
    EventSettings(),
    NotifySettings(),
    HandSettings(),
    QueueSettings(),
)


class ConfigError(InputError, SettingsError):
    """A configuration that is not valid: the file or variable, the line and the key."""


#: The longest time that a setting can name. A longer one overflows a clock or a thread's wait.
_YEARS_S, _YEARS_DAYS = 10**9, 36_525


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _no_truth_as_number(cls, value: Any, about: ValidationInfo) -> Any:
        """`port = true` would be port 1."""
        if isinstance(value, bool) and cls.model_fields[str(about.field_name)].annotation in (int, float):
            raise ValueError("Input should be a number")
        return value

    @field_validator("*", mode="after")
    @classmethod
    def _printable(cls, value: Any) -> Any:
        """No path, address or name has control characters, and a few system calls raise odd errors for them."""
        for text in value if isinstance(value, tuple) else (value,):
            if isinstance(text, str) and not text.isprintable():
                raise ValueError(f"{text[:60]!r} has characters that cannot be printed")
        return value


class ServiceSection(_Section):
    host: str = _BINDING.host
    port: int = Field(default=_BINDING.port, ge=0, le=65535)
    names: tuple[str, ...] = _BINDING.names
    certificate: str = _BINDING.certificate
    key: str = _BINDING.key
    home: str = Field(default=DEFAULT_HOME, min_length=1)  # an empty path is the working directory

    def settings(self) -> Binding:
        return Binding(**self.model_dump(exclude={"home"}))


class SourceSection(_Section):
    kind: SourceKind = _SOURCE.kind
    url: str = _SOURCE.url
    urls: tuple[str, ...] = _SOURCE.urls
    shard: str = _SOURCE.shard
    match: str = _SOURCE.match
    username: str = _SOURCE.username
    password_file: str = _SOURCE.password_file
    token_file: str = _SOURCE.token_file
    ca_file: str = _SOURCE.ca_file

    @field_validator("shard")
    @classmethod
    def _a_shard(cls, text: str) -> str:
        if text:
            parse_shard(text)
        return text

    @model_validator(mode="after")
    def _complete(self) -> SourceSection:
        if self.kind == "prometheus" and not self.url:
            raise ValueError('kind prometheus needs url, such as "http://localhost:9090"')
        if self.kind == "exporters" and not self.urls:
            raise ValueError('kind exporters needs urls, a list such as ["http://n1:9752"]')
        if self.shard and not (self.kind == "exporters" and self.settings().shard_urls):
            raise ValueError(f"shard {self.shard} needs kind exporters, and at least as many urls as there are shards")
        return self

    def settings(self) -> SourceSettings:
        return SourceSettings(**self.model_dump())


class ScoringSection(_Section):
    stride_s: int = Field(default=_LOOP.stride_s, ge=1, le=30)
    stale_s: int = Field(default=_LOOP.stale_s, ge=2, le=_YEARS_S)
    forget_s: int = Field(default=_LOOP.forget_s, ge=60, le=_YEARS_S)
    most_threads: int = Field(default=_LOOP.most_threads, ge=1, le=10**8)
    engine: Literal["here", "ray"] = "here"
    workers: int = Field(default=2, ge=1, le=10_000)  # Ray actors

    def settings(self, events: EventSettings = _EVENTS) -> LoopSettings:
        return LoopSettings(**self.model_dump(exclude={"engine", "workers"}), events=events)


class EventsSection(_Section):
    opened_by: Literal["findings", "scores"] = _EVENTS.opened_by
    margin: float = Field(default=_EVENTS.margin, ge=1)
    chance_per_node_day: float = Field(default=_EVENTS.chance_per_node_day, gt=0)
    strongest: float = Field(default=_EVENTS.strongest, ge=1)
    needed_s: int = Field(default=_EVENTS.needed_s, ge=1, le=_YEARS_S)
    of_s: int = Field(default=_EVENTS.of_s, ge=1, le=_YEARS_S)
    calm_ratio: float = Field(default=_EVENTS.calm_ratio, gt=0, le=1)
    calm_s: int = Field(default=_EVENTS.calm_s, ge=1, le=_YEARS_S)
    forget_s: int = Field(default=_EVENTS.forget_s, ge=1, le=_YEARS_S)
    same_cause_s: int = Field(default=_EVENTS.same_cause_s, ge=0, le=_YEARS_S)

    @model_validator(mode="after")
    def _possible(self) -> EventsSection:
        if self.needed_s > self.of_s:
            raise ValueError(f"needed_s {self.needed_s} is larger than of_s {self.of_s}")
        return self

    def settings(self) -> EventSettings:
        return EventSettings(**self.model_dump())


class RecordingSection(_Section):
    on: bool = True  # false: nothing is recorded
    cluster: bool = False  # with exporters and remote-write, all nodes; Prometheus stores the data itself
    keep_days: float = Field(default=7.0, gt=0, le=_YEARS_DAYS)
    keep_gb: float = Field(default=0.0, ge=0, le=1e9)  # 0: no limit

    def limits(self) -> tuple[int, int | None]:
        """Seconds and bytes that are kept."""
        return int(self.keep_days * 86_400), int(self.keep_gb * 1e9) or None


class RetentionSection(_Section):
    """How long the home keeps history; 0: no limit."""

    events_days: float = Field(default=_HISTORY.events_days, ge=0, le=_YEARS_DAYS)
    audit_days: float = Field(default=_HISTORY.audit_days, ge=0, le=_YEARS_DAYS)
    database_gb: float = Field(default=_HISTORY.database_gb, ge=0, le=1e9)
    audit_mb: float = Field(default=_HISTORY.audit_mb, ge=0, le=1e9)
    log_mb: float = Field(default=10.0, ge=0, le=1e9)  # nights.log

    def settings(self) -> HistoryLimits:
        return HistoryLimits(**self.model_dump(exclude={"log_mb"}))

    @property
    def log_bytes(self) -> int | None:
        return int(self.log_mb * 1e6) or None


class NotifySection(_Section):
    urls: tuple[str, ...] = _NOTIFY.urls
    link: str = _NOTIFY.link
    every_s: float = Field(default=_NOTIFY.every_s, ge=0, le=_YEARS_S)

    def settings(self) -> NotifySettings:
        return NotifySettings(**self.model_dump())


class LearningSection(_Section):
    nightly: str = ""  # local time, such as 02:30, at which the service runs `twin learn run`; empty: it does not
    shadow: bool = True  # notify nobody until this site is known
    thread_hours: float = Field(default=_DAY.thread_hours, ge=0)  # the least evidence of a day that is learned
    champion_url: str = ""  # take the champion from this service, instead of learning here
    champion_token_file: str = ""
    champion_ca_file: str = ""
    false_event_cost: float = Field(default=_DUEL.false_event_cost, ge=0)  # as a part of all faults

    @field_validator("nightly")
    @classmethod
    def _a_time(cls, text: str) -> str:
        if not re.fullmatch(r"(([01]\d|2[0-3]):[0-5]\d)?", text):
            raise ValueError(f"{text!r} is not a time of day such as 02:30")
        return text

    @model_validator(mode="after")
    def _one_teacher(self) -> LearningSection:
        if self.champion_url and self.nightly:
            raise ValueError("nightly and champion_url exclude each other: a night would replace the central champion")
        return self

    @property
    def flags(self) -> list[str]:
        """The options of `twin learn run` that differ from its defaults."""
        options = {
            "--thread-hours": (self.thread_hours, _DAY.thread_hours),
            "--false-event-cost": (self.false_event_cost, _DUEL.false_event_cost),
        }
        return [word for name, (value, usual) in options.items() if value != usual for word in (name, f"{value:g}")]

    @property
    def hour(self) -> time | None:
        return time.fromisoformat(self.nightly) if self.nightly else None


class HandSection(_Section):
    """Evidence and actions. Off by default: without `on`, no process is looked at and nothing is done."""

    on: bool = False
    policy: str = _HAND.policy
    past: str = _HAND.past
    every_s: float = Field(default=_HAND.every_s, ge=5, le=_YEARS_S)
    listen: bool = _HAND.listen
    suspects: bool = _HAND.suspects
    helper: str = ""  # the helpers of the nodes, as https://{node}:9753; empty: this host
    helper_username: str = "twin"
    helper_password_file: str = ""
    helper_ca_file: str = ""
    owner_url: str = ""  # an Apprise URL with {user}; empty: owners are not told
    contact: str = ""  # whom an owner writes to
    rest: str = ""  # slurmrestd, as https://HOST:6820 or unix:/PATH; empty: Slurm's commands
    rest_user: str = ""
    rest_token_file: str = ""
    rest_version: str = "v0.0.38"

    def settings(self) -> HandSettings:
        return HandSettings(self.policy, self.past, self.every_s, self.listen, self.suspects)

    def runner(self) -> RunCommand:
        """What runs commands of Slurm: this host, or slurmrestd."""
        if not self.rest:
            return run_command
        from clustertwin.service.act.slurm_rest import RestSettings, SlurmRest

        return SlurmRest(RestSettings(self.rest, self.rest_user, self.rest_token_file, self.rest_version))


class QueueSection(_Section):
    """Forecasts of starts. Without a site and without a past, Slurm is not asked for the queue."""

    site: str = _QUEUE.site
    past: str = _QUEUE.past
    every_s: float = Field(default=_QUEUE.every_s, ge=10, le=_YEARS_S)
    budget_s: float = Field(default=_QUEUE.budget_s, ge=1, le=3600)
    futures: int = Field(default=_QUEUE.futures, ge=1, le=1000)
    hours: float = Field(default=_QUEUE.hours, ge=0, le=24 * 14)

    def settings(self) -> QueueSettings:
        return QueueSettings(**self.model_dump())


class ClusterSection(_Section):
    """A cluster that another service watches. Its address alone is enough: `alpha = "https://alpha:8790"`."""

    url: str
    link: str = ""
    token_file: str = ""
    ca_file: str = ""
    readers: tuple[str, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _from_address(cls, value: object) -> object:
        return {"url": value} if isinstance(value, str) else value

    @field_validator("url", "link")
    @classmethod
    def _an_address(cls, text: str) -> str:
        if text and not re.fullmatch(r"https?://[^/?#\s@]+(/[^?#\s]*)?", text):
            raise ValueError(f"{text!r} is not an address like https://host:8790")
        return text


ClusterName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]


class ServiceConfig(_Section):
    """The whole configuration, one section for each table of the TOML file."""

    service: ServiceSection = ServiceSection()
    source: SourceSection = SourceSection()
    scoring: ScoringSection = ScoringSection()
    events: EventsSection = EventsSection()
    recording: RecordingSection = RecordingSection()
    retention: RetentionSection = RetentionSection()
    notify: NotifySection = NotifySection()
    learning: LearningSection = LearningSection()
    hand: HandSection = HandSection()
    queue: QueueSection = QueueSection()
    clusters: dict[ClusterName, ClusterSection] = {}

    def members(self) -> list[MemberSettings]:
        """The clusters that this service joins."""
        return [MemberSettings(name, **section.model_dump()) for name, section in self.clusters.items()]

    @property
    def home(self) -> Path:
        return expanded(self.service.home)

    @property
    def recording_directory(self) -> Path | None:
        """Where the service records its own host or its cluster; None if it records nothing."""
        section, kind = self.recording, self.source.kind
        records = section.on and (kind == "host" or (section.cluster and kind != "prometheus"))
        return self.home / "recording" if records else None

    def check_nights(self) -> None:
        """Raise if nights are to learn from data that nobody stores."""
        if self.learning.hour and self.source.kind != "prometheus" and self.recording_directory is None:
            raise SettingsError(
                "learning.nightly: the data of the day is not stored; it needs source.kind prometheus, recording.on "
                "with source.kind host, or recording.on and recording.cluster with the other kinds"
            )

    def loop_settings(self) -> LoopSettings:
        return self.scoring.settings(self.events.settings())


def read_config(path: Path | None, environment: Mapping[str, str]) -> ServiceConfig:
    """Read the file, if there is one. Environment variables override it."""
    if path is None:
        return parse_config("", "defaults", environment)
    try:
        return parse_config(path.read_text(), path, environment)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(path, f"cannot be read: {getattr(error, 'strerror', None) or error}") from error


def parse_config(text: str, where: object, environment: Mapping[str, str]) -> ServiceConfig:
    try:
        tables = parse_toml(text)
    except ValueError as error:
        line = re.search(r"line (\d+)", str(error))
        raise ConfigError(where, str(error), int(line[1]) if line else None) from error
    variables = _overlay(tables, environment)
    try:
        return ServiceConfig.model_validate(tables)
    except ValidationError as error:
        first = error.errors()[0]
        keys = [str(part) for part in first["loc"]]
        name = ".".join(keys)
        message = first["msg"].removeprefix("Value error, ")
        message = message.replace("a valid tuple", 'a list in brackets, such as ["a", "b"]')
        reason = _unknown_setting(keys) if first["type"] == "extra_forbidden" else f"{name}: {message}"
        if variable := variables.get(tuple(keys[:2])):
            raise ConfigError(variable, reason) from error
        raise ConfigError(where, reason, _line_of(text, keys)) from error


def _unknown_setting(keys: list[str]) -> str:
    """Name the setting that does not exist, and the one that is spelt most like it."""
    *section, key = keys
    kind = ServiceConfig.model_fields[section[0]].annotation if section else ServiceConfig
    kind = ClusterSection if section and section[0] == "clusters" else kind
    near = get_close_matches(key, getattr(kind, "model_fields", ()), n=1)
    meant = f"; did you mean {'.'.join([*section, *near])}?" if near else ""
    return f"there is no setting {'.'.join(keys)}{meant}"


def _overlay(tables: dict[str, Any], environment: Mapping[str, str]) -> dict[tuple[str, ...], str]:
    """Write variables over the file's values, and return which variable set which key. Commas separate a list."""
    variables: dict[tuple[str, ...], str] = {}
    for variable, value in environment.items():
        section, _, key = variable.removeprefix(PREFIX).lower().partition("__")
        if not variable.startswith(PREFIX) or not key:
            continue
        if section not in ServiceConfig.model_fields:
            raise ConfigError(variable, _unknown_setting([section]))
        kind = ServiceConfig.model_fields[section].annotation
        fields = getattr(kind, "model_fields", {})  # `clusters` has names instead
        is_list = key in fields and "tuple" in str(fields[key].annotation)
        table = tables.setdefault(section, {})
        if isinstance(table, dict):
            table[key] = tuple(part.strip() for part in value.split(",") if part.strip()) if is_list else value
            variables[section, key] = variable
    home, service = environment.get(f"{PREFIX}HOME"), tables.setdefault("service", {})
    if home and isinstance(service, dict):
        service["home"] = home
        variables["service", "home"] = f"{PREFIX}HOME"
    return variables


def _line_of(text: str, keys: list[str]) -> int | None:
    """The line of a key, else the line of its table; None if the file has neither."""
    table: list[str] = []
    line_of_section = None
    for number, line in enumerate(text.splitlines(), 1):
        if header := re.match(r"\s*\[+\s*([^\]]+?)\s*\]", line):
            table = header[1].split(".")
            line_of_section = number if table == keys[: len(table)] else line_of_section
        # Before the first table, a key can be dotted: service.port = 1
        wanted = keys[len(table) : len(table) + 1] if table == keys[: len(table)] else []
        if wanted and re.match(rf"\s*[\"']?{re.escape(wanted[0])}[\"']?\s*[=.]", line):
            return number
    return line_of_section
