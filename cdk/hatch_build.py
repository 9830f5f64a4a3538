"""What the package says of itself: the library's version, which it needs exactly, and its page of the documentation."""

from __future__ import annotations

import sys
import tomllib
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

PAGE = "cdk.md"


class LibraryHook(MetadataHookInterface):
    """Takes from the library what both have in common."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add version, dependency, address and description to the metadata."""
        root = Path(self.root).parent
        spec = spec_from_file_location("library_build", root / "hatch_build.py")
        assert spec is not None
        assert spec.loader is not None
        library = sys.modules[spec.name] = module_from_spec(spec)
        spec.loader.exec_module(library)
        version = library.version_of(root)
        urls = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]
        text = library.with_absolute_links(
            (root / "docs" / PAGE).read_text(encoding="utf-8"), urls["Source"], version, "docs"
        )
        metadata["version"] = version
        metadata["urls"] = urls
        metadata["dependencies"] = [f"osqueue=={version}", "aws-cdk-lib>=2.275,<3", "constructs>=10.4,<11"]
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
