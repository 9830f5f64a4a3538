"""The flows of a queue over an API in one object."""

from __future__ import annotations

from .asking import Asking
from .enqueue import Enqueuing
from .work import Working


class Remote(Enqueuing, Working, Asking):
    """The flows of those who bring jobs, work on them and ask about them. Those of operators: ``steering``."""
