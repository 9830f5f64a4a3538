"""The flows of operators. Loaded when first asked for: who only enqueues and works does not pay for them."""

from __future__ import annotations

from .purging import Purging
from .telling import Telling


class Steering(Purging, Telling):
    """Listing, cancel, settings, dead letters, stories, purge."""
