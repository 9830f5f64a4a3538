"""What is uploaded with a deployment: the layer and the handlers. The package's wheel brings both."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from .settings import Misconfigured

PACKAGED = Path(__file__).with_name("assets")  # put there by the release, not by the repository


class Assets(Struct, frozen=True):
    """Where the code of a deployment lies."""

    layer: Path  # a zip file
    functions: Path  # a folder with <name>/handler.py for each function


def packaged() -> Assets:
    """Those of the wheel. Raises Misconfigured where the package was not installed from one."""
    found = Assets(PACKAGED / "layer.zip", PACKAGED / "functions")
    if not found.layer.is_file():
        raise Misconfigured(
            "assets: this is no installed osqueue-cdk but a clone, which holds no layer. Build it (make layers) and"
            ' pass assets=Assets(Path("build/layer.zip"), Path("functions"))'
        )
    return found
