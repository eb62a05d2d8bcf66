"""A shared log -> a directory: log.swf, log.parquet, model/, card.json and, last, card.md."""

from __future__ import annotations

from pathlib import Path

import orjson

from clustertwin.core import files
from clustertwin.core.errors import OutputError
from clustertwin.workload.formats import write
from clustertwin.workload.generators import save
from clustertwin.workload.sharing.share_card import card_document, card_text
from clustertwin.workload.sharing.share_log import SharedLog


def refuse_used(directory: Path) -> None:
    """A directory to publish holds nothing else: another log in it would be published too."""
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise OutputError(f"{directory} already exists and is not empty; name a new directory")


def write_shared(shared: SharedLog, directory: Path, with_figures: bool = True) -> None:
    """Write all files. A directory that has card.md is complete."""
    refuse_used(directory)
    files.make_directory(directory)
    write(shared.jobs, directory / "log.swf")
    write(shared.jobs, directory / "log.parquet")
    save(shared.model, "private", directory / "model")
    option = orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS
    files.write(directory / "card.json", orjson.dumps(card_document(shared, with_figures), option=option))
    files.write(directory / "card.md", card_text(shared, with_figures))
