"""The flows of an embedded queue in one object."""

from __future__ import annotations

from .claims import ClaimFlows
from .enqueue import EnqueueFlows


class EmbeddedFlows(EnqueueFlows, ClaimFlows):
    """The flows of those who bring jobs, work on them and ask about them. Those of operators: ``steering``."""
