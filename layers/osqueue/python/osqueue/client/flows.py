"""The flows of a queue over an API in one object."""

from __future__ import annotations

from .claims import Working
from .enqueue import Enqueuing
from .results import Asking


class Remote(Enqueuing, Working, Asking):
    """The flows of those who bring jobs, work on them and ask about them. Those of operators: ``steering``."""
