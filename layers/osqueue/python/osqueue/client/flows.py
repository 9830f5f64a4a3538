"""The flows of a queue over an API in one object."""

from __future__ import annotations

from .claims import RemoteClaims
from .enqueue import RemoteEnqueue
from .results import RemoteResults


class RemoteFlows(RemoteEnqueue, RemoteClaims, RemoteResults):
    """The flows of those who bring jobs, work on them and ask about them. Those of operators: ``steering``."""
