"""Everything a Queue does, as flows over the commit layer: the embedded mode.

A flow validates, asks for commits (``Submit``) and reads (store requests), and turns outcomes into what callers
see. It does no I/O itself, so the blocking and the async Queue run the same flows.
"""

from __future__ import annotations

from .context import Writers
from .enqueue import Enqueuing
from .purging import Purged, Purging
from .telling import Telling
from .work import Claimed, Granted, Working, lease_lost


class Embedded(Enqueuing, Working, Purging, Telling):
    """All flows of one queue."""


__all__ = ["Claimed", "Embedded", "Granted", "Purged", "Writers", "lease_lost"]
