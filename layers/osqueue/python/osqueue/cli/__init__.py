"""The command line: ``osqueue``. What it needs beyond the library is the extra ``cli``."""

from __future__ import annotations

import sys
from importlib.util import find_spec

NEEDED = ("click", "rich")
MISSING_EXTRA = (
    "error: not_installed: the command line needs {missing}, which this Python does not have."
    " Remedy: pip install 'osqueue[cli]'"
)


def main() -> None:
    """The console script."""
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        print(MISSING_EXTRA.format(missing=" and ".join(missing)), file=sys.stderr)
        raise SystemExit(2)
    try:
        from .app import app
    except KeyboardInterrupt:  # Ctrl-C before there is anything to stop
        raise SystemExit(130) from None
    app(prog_name="osqueue")
