"""Check a home and repair it: HOME -> findings, each with what was done about it.

Nothing that a person or a night has made is deleted. What cannot be used is moved to HOME/set-aside/TIME, with its path
in the home. Only unfinished writes are deleted: nobody was ever told that they are on disk. A home is repaired while no
service runs in it.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from math import inf
from pathlib import Path

from clustertwin.core import files
from clustertwin.core.errors import InputError, OutputError, SettingsError, TwinError, describe
from clustertwin.core.foreign_files import parse_json, read_regular
from clustertwin.core.formatting import counted, listed, visible
from clustertwin.service.store import database_rescue
from clustertwin.service.store.home_format import ASIDE, OF_DISK, HomeFormatError, create_home, open_home, refuse_half
from clustertwin.service.store.home_format import FILE as FORMAT
from clustertwin.service.store.program_tables import FILE as PROGRAMS
from clustertwin.service.store.program_tables import read_tables
from clustertwin.service.store.running_jobs import FILE as RUNNING
from clustertwin.service.store.running_jobs import read_jobs
from clustertwin.telemetry.recording import Recording, layout

#: What a home has. Anything else in it is named, and stays.
KNOWN = frozenset(
    {FORMAT, "state.sqlite", "state.sqlite-wal", "state.sqlite-shm", "recording", "models", "champion.json", "nights",
     "champion.lock", "learning.json", "learning.lock", "nights.log", PROGRAMS, RUNNING, "mlflow", "outbox",
     "rehearsal", "replay", "source.json", "service.lock", "fence", "fence.lock", "act.lock", "outbox-owners",
     "state.lock", "spool", "spool.lock", "champion-fetches.json", ASIDE}
)  # fmt: skip
_MOST_JSON_BYTES = 1 << 26
#: A draft that is younger may be of the service that runs.
_DRAFT_S = 3600.0


@dataclass(frozen=True, slots=True)
class HomeFinding:
    """One part of a home."""

    part: str
    ok: bool  # nothing is wrong with it, or it was repaired
    detail: str
    repaired: str = ""  # what was done


class _Home:
    """A home that is checked, and where its unusable parts go."""

    def __init__(self, home: Path, repairs: bool) -> None:
        self.path, self.repairs = home, repairs
        self.in_use = False  # a service runs in it
        self._aside = home / ASIDE / time.strftime("%Y%m%dT%H%M%S", time.gmtime())

    def set_aside(self, path: Path) -> Path:
        target = self._aside / path.relative_to(self.path)
        files.move(path, target)
        return target

    def copy_aside(self, path: Path) -> Path:
        """A second name of a file, or a copy where there can be none."""
        target = self._aside / path.relative_to(self.path)
        with files.reporting(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                os.link(path, target)
            except OSError:
                shutil.copy2(path, target)
            files.sync_directory(target.parent)
        return target

    def tree(self, folder: str = "") -> Iterator[Path]:
        """Everything below a folder. A running service deletes some of it meanwhile, so `rglob` would raise."""
        for directory, folders, names in os.walk(self.path / folder):
            if Path(directory) == self.path and OF_DISK in folders:
                folders.remove(OF_DISK)
            yield from (Path(directory, name) for name in (*folders, *names))

    def finding(self, path: Path, detail: str, repair: Callable[[], str] | None = None) -> HomeFinding:
        """A part that is not as it should be; it is repaired if that is allowed and possible."""
        part = str(path.relative_to(self.path)) if path != self.path else "home"
        if not self.repairs or repair is None:
            return HomeFinding(part, False, detail)
        try:
            return HomeFinding(part, True, detail, repair())
        except (TwinError, OSError) as error:
            return HomeFinding(part, False, f"{detail}; it could not be repaired: {describe(error)}")

    def moved(self, path: Path, detail: str, consequence: str = "") -> HomeFinding:
        """A part that cannot be used; the repair moves it away."""

        def repair() -> str:
            return f"moved to {self.set_aside(path)}{f'; {consequence}' if consequence else ''}"

        return self.finding(path, detail, repair)


def check_home(home: Path, repair: bool = False) -> list[HomeFinding]:
    """Findings about every part of a home, the sound ones too.

    `SettingsError` if there is no such home, one of a newer release, or one whose restore did not end.
    """
    if not home.is_dir():
        raise SettingsError(f"{home}: no such home")
    refuse_half(home)  # a repair would delete what tells that it is half
    checked = _Home(home, repair)
    learning = home / "learning.lock"  # a home without nights has none
    nights: AbstractContextManager[bool] = _alone(learning) if repair and learning.exists() else nullcontext(True)
    with _alone(home / "service.lock") as alone, nights as no_night:
        checked.in_use = not alone
        if repair and not alone:
            raise SettingsError(f"{home}: a service runs in this home; stop it before you repair the home")
        if repair and not no_night:
            raise SettingsError(f"{home}: a night runs in this home; repair the home when it has ended")
        findings: list[HomeFinding] = []
        for check in (
            _format,
            _owners,
            _modes,
            _unfinished,
            _database,
            _recording,
            _documents,
            _programs,
            _running,
            _champion,
            _unknown,
        ):
            findings += check(checked)
    return findings


@contextmanager
def _alone(path: Path) -> Iterator[bool]:
    """Whether nobody holds this lock; nobody can take it inside the block."""
    try:
        lock = _open_lock(path)
    except OSError as error:
        raise OutputError(f"{path}: cannot be locked: {error.strerror}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        alone = True
    except OSError:
        alone = False
    try:
        yield alone
    finally:
        os.close(lock)


def _open_lock(path: Path) -> int:
    """Open the lock. A new one belongs to the owner of the home: the service could not open one of root."""
    try:
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return os.open(path, os.O_RDWR | os.O_NOFOLLOW)
    home = path.parent.stat()
    if os.geteuid() == 0:
        os.fchown(lock, home.st_uid, home.st_gid)
    return lock


def _format(home: _Home) -> Iterator[HomeFinding]:
    path = home.path / FORMAT

    def renew() -> str:
        target = home.set_aside(path)
        create_home(home.path)
        return f"moved to {target}, and written again"

    try:
        open_home(home.path)
        yield HomeFinding(FORMAT, True, "the format of this release")
    except HomeFormatError:
        raise  # this release does not know what the files of a newer one mean
    except InputError as error:
        yield home.finding(path, str(error), renew)


def _owners(home: _Home) -> Iterator[HomeFinding]:
    """A command that ran as root leaves files that the service cannot change. To give them away is left to a person:
    a link in the home could lead to any file of the machine."""
    owner = home.path.stat().st_uid
    others = [path for path in sorted(home.tree()) if _owner(path, owner) == 0] if owner else []
    if others:
        names = listed([str(path.relative_to(home.path)) for path in others], 3)
        yield home.finding(
            home.path,
            f"files belong to root, and the home to the user {owner}: {visible(names)}; "
            f"as root, give them to that user: chown -h {owner} FILE",
        )


def _changed_s(path: Path) -> float:
    try:
        return path.lstat().st_mtime
    except OSError:
        return inf  # it has been finished meanwhile


def _owner(path: Path, otherwise: int) -> int:
    try:
        return path.lstat().st_uid
    except OSError:
        return otherwise  # a running service has deleted it


def _modes(home: _Home) -> Iterator[HomeFinding]:
    """Names, comments and hashes of tokens are for the user of the service only."""
    for path, mode in ((home.path, 0o700), (home.path / "state.sqlite", 0o600)):
        if path.exists() and stat.S_IMODE(path.stat().st_mode) & 0o077:

            def close(path: Path = path, mode: int = mode) -> str:
                path.chmod(mode)
                return f"the mode is now {mode:o}"

            yield home.finding(path, f"other users can open it (mode {stat.S_IMODE(path.stat().st_mode):o})", close)


def _unfinished(home: _Home) -> Iterator[HomeFinding]:
    """Drafts that a crash left behind: `.NAME.xyz.new` of a file, `.VERSION.PID` of a model."""
    named = [path for path in home.tree() if path.name.startswith(".") and not path.is_symlink()]
    drafts = [path for path in named if path.suffix == ".new" and ASIDE not in path.parts]
    drafts += [path for path in named if path.parent == home.path / "models" and path.is_dir()]
    for path in sorted(set(drafts)):
        if home.in_use and time.time() - _changed_s(path) < _DRAFT_S:
            continue

        def delete(path: Path = path) -> str:
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
            return "deleted"

        yield home.finding(path, "a write that was never finished", delete)


def _database(home: _Home) -> Iterator[HomeFinding]:
    path = home.path / "state.sqlite"
    if not path.exists() and not path.is_symlink():
        return
    if not path.is_file():
        yield home.moved(path, "not a file", "the next start begins an empty database")
        return
    damage = database_rescue.damage_of(path)
    if not damage:
        yield HomeFinding(path.name, True, "integrity_check: ok")
        return

    def rescue() -> str:
        draft = home.path / ".state.sqlite.new"
        try:
            rows = database_rescue.rescue(path, draft)
            damaged = home.copy_aside(path)  # a home without a database would have no tokens, if we were killed now
            for companion in ("state.sqlite-wal", "state.sqlite-shm"):
                if (home.path / companion).exists():
                    home.set_aside(home.path / companion)
            with files.replacing(path, private=True) as out, draft.open("rb") as content:
                shutil.copyfileobj(content, out)
        finally:
            for name in ("", "-wal", "-shm"):
                draft.with_name(f"{draft.name}{name}").unlink(missing_ok=True)
        kept = ", ".join(f"{count} {table}" for table, count in rows.items() if count)
        return f"moved to {damaged}; a new one has what could be read: {kept or 'nothing'}"

    yield home.finding(path, f"damaged: {damage}", rescue)


def _recording(home: _Home) -> Iterator[HomeFinding]:
    for directory in sorted(home.path.glob("recording*")):
        if not directory.is_dir() or directory.is_symlink():
            yield home.moved(directory, "not a directory", "the next start begins a new recording")
            continue
        try:
            description = layout.read_group(directory)
        except TwinError as error:
            yield home.moved(directory, str(error), "the next start begins a new recording")
            continue
        damaged = [*_damaged_logs(home, directory), *_damaged_arrays(home, directory, description)]
        yield from damaged
        if not damaged:
            size_bytes = Recording.open(directory).size_bytes
            yield HomeFinding(
                directory.name, True, f"{counted(len(description.nodes), 'node')}, {size_bytes / 1e6:.1f} MB"
            )


def _damaged_logs(home: _Home, directory: Path) -> Iterator[HomeFinding]:
    """Lines of labels.jsonl and jobs.jsonl that are not what they should be; the other lines stay."""
    from clustertwin.telemetry.recording.logs import job_slots, label_log

    logs: tuple[tuple[str, Callable[[Path], object], Callable[[bytes], object]], ...] = (
        (layout.LABELS, label_log.read, label_log.parse),
        (layout.JOB_SLOTS, job_slots.read, job_slots.parse),
    )
    for name, read, parse in logs:
        path = directory / name
        try:
            read(path)
        except TwinError as error:

            def mend(path: Path = path, parse: Callable[[bytes], object] = parse) -> str:
                target = home.set_aside(path)
                lines = target.read_bytes().splitlines(keepends=True) if target.is_file() else []
                sound = [line for line in lines if line.endswith(b"\n") and _is_sound(parse, line)]
                files.write(path, b"".join(sound))
                return f"moved to {target}; {len(sound)} of {len(lines)} lines were kept"

            yield home.finding(path, str(error), mend)


def _is_sound(parse: Callable[[bytes], object], line: bytes) -> bool:
    try:
        parse(line)
    except TwinError:
        return False
    return True


def _damaged_arrays(home: _Home, directory: Path, description: layout.RecordingDescription) -> Iterator[HomeFinding]:
    """Chunks that cannot be unpacked, arrays without their document, and directories that no node owns."""
    from clustertwin.telemetry.recording import chunks

    arrays = [array for node in description.nodes for array in description.arrays(node)]
    for array in arrays:
        path = directory / array.directory
        try:
            numbers = sorted(layout.chunk_sizes(path))
            if layout.read_origin(path) is None and numbers:
                raise InputError(path, f"it has chunks and no {layout.DOCUMENT}")
        except TwinError as error:
            if path.exists():  # a service that runs may have dropped the node
                yield home.moved(path, str(error), "its seconds are unknown now")
            continue
        for number in numbers:
            chunk = path / layout.chunk_name(number)
            try:
                chunks.read(chunk, array.shape)
            except TwinError as error:
                yield home.moved(chunk, str(error), "its seconds are unknown now")
    present = sorted(directory.iterdir())
    if home.in_use:  # nodes may have come since; the document names them before they have a directory
        description = layout.read_group(directory)
    owned = {array.directory for node in description.nodes for array in description.arrays(node)}
    for path in present:
        if path.is_dir() and path.name not in owned:
            yield home.moved(path, f"no node of {directory.name}/{layout.DOCUMENT} owns it")


def _documents(home: _Home) -> Iterator[HomeFinding]:
    """JSON files of nights, messages and the source."""
    folders = ("nights", "outbox", "outbox-owners")
    documents = [path for folder in folders for path in home.tree(folder)]
    paths = [home.path / "source.json", *(path for path in documents if path.match("[!.]*.json"))]
    sound = 0
    for path in sorted(paths):
        try:
            parse_json(read_regular(path, _MOST_JSON_BYTES))
            sound += 1
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as error:
            yield home.moved(path, f"not a JSON document: {describe(error)}")
    yield HomeFinding("nights, outbox, source.json", True, f"{counted(sound, 'document')} can be read")


def _programs(home: _Home) -> Iterator[HomeFinding]:
    path = home.path / PROGRAMS
    if not path.exists() and not path.is_symlink():
        return
    try:
        programs, users = read_tables(path)
        yield HomeFinding(path.name, True, f"tables of {len(programs)} programs and {len(users)} users")
    except HomeFormatError as error:
        yield home.finding(path, str(error))  # an upgrade can read it
    except InputError as error:
        yield home.moved(path, str(error), "what is usual for programs is learnt again")


def _running(home: _Home) -> Iterator[HomeFinding]:
    path = home.path / RUNNING
    try:
        if stored := read_jobs(path):
            yield HomeFinding(path.name, True, f"the past of {len(stored.jobs.places)} parts of jobs")
    except InputError as error:
        yield home.moved(path, str(error), "what was usual for running jobs is taken from the last minutes")


def _champion(home: _Home) -> Iterator[HomeFinding]:
    learning = home.path / "learning.json"
    if learning.exists():
        from clustertwin.telemetry.learning.champions.learning_state import read_state

        try:
            read_state(home.path)
        except TwinError as error:
            # Without the file, learning that a person has frozen would begin again.
            yield home.finding(learning, f"{error}; freeze or resume learning, which writes it again")
    path = home.path / "champion.json"
    if not path.exists():
        return
    from clustertwin.telemetry.learning.champions import champion_store

    try:
        read_regular(path, champion_store.MOST_BYTES)
        champion = champion_store.read_champion(home.path)
        assert champion is not None
    except (OSError, TwinError) as error:
        yield home.moved(path, describe(error), "the bundled detector is in service")
        return
    try:
        champion_store.load(home.path, champion)
        yield HomeFinding(path.name, True, f"{champion.version} can be loaded")
    except (OSError, TwinError) as error:

        def roll_back() -> str:
            try:
                now = champion_store.rollback(home.path, champion.fence, time.time())
                return f"rolled back to {now.version}"
            except TwinError:
                return f"moved to {home.set_aside(path)}; the bundled detector is in service"

        yield home.finding(path, f"{champion.version} cannot be loaded: {describe(error)}", roll_back)


def _unknown(home: _Home) -> Iterator[HomeFinding]:
    names = sorted(path.name for path in home.path.iterdir())
    foreign = [name for name in names if name not in (*KNOWN, OF_DISK) and not name.startswith(("recording", "."))]
    if foreign:
        yield HomeFinding("other files", True, f"not of clustertwin, left as they are: {', '.join(foreign[:5])}")
