"""Everything a Queue does, as flows over the commit layer: the embedded mode.

A flow validates, asks for commits (``Submit``) and reads (store requests), and turns outcomes into what callers
see. It does no I/O itself, so the blocking and the async Queue run the same flows.
"""

from __future__ import annotations

from .context import Writers
from .enqueue import Enqueuing
from .work import Claimed, Granted, Working, lease_lost


class Embedded(Enqueuing, Working):
    """The flows of those who bring jobs, work on them and ask about them. Those of operators: ``steering``."""


__all__ = ["Claimed", "Embedded", "Granted", "Writers", "lease_lost"]
