"""A hook of mkdocs: links of pages to files outside docs/ -> links to the source on the web.

The pages link to files of the repository, so that they can be followed in a clone. A link to a file that does not exist
stays as it is, and the strict build reports it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig


def on_page_markdown(markdown: str, /, *, page: Any, config: MkDocsConfig, files: Any) -> str:
    docs = Path(config.docs_dir).resolve()
    here = (docs / page.file.src_uri).parent

    def outside(match: re.Match[str]) -> str:
        path, anchor = match[1].partition("#")[::2]
        target = (here / path).resolve()
        if target.is_relative_to(docs) or not target.exists():
            return match[0]
        kind = "tree" if target.is_dir() else "blob"
        return f"]({config.repo_url}/{kind}/main/{target.relative_to(docs.parent)}{'#' + anchor if anchor else ''})"

    return re.sub(r"\]\((\.\./[^)\s]+)\)", outside, markdown)
