"""What PyPI shows as the README: README.md of this release, with links that lead from anywhere."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

VERSION = re.compile(r'^__version__ = "(.+)"$', re.MULTILINE)
LINK = re.compile(r"(!?)\[([^\]]*)\]\((?![a-z]+:|#)([^)\s]+)\)")


def with_absolute_links(text: str, source: str, version: str, folder: str = "") -> str:
    """Markdown of a folder whose links to files of the repository lead to them as they are in a release.

    Images lead to their bytes.
    """

    def absolute(link: re.Match[str]) -> str:
        kind = "raw" if link[1] else "blob"
        place = posixpath.normpath(posixpath.join(folder, link[3]))
        return f"{link[1]}[{link[2]}]({source}/{kind}/v{version}/{place})"

    return LINK.sub(absolute, text)


def version_of(root: Path) -> str:
    """The version of the library, which it says itself."""
    (version,) = VERSION.findall(
        (root / "layers/osqueue/python/osqueue/__init__.py").read_text(encoding="utf-8")
    )
    return str(version)


class ReadmeHook(MetadataHookInterface):
    """Makes the description of the project when it is built."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add ``readme`` to the metadata."""
        root = Path(self.root)
        text = with_absolute_links(
            (root / "README.md").read_text(encoding="utf-8"), metadata["urls"]["Source"], version_of(root)
        )
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
