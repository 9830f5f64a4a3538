"""What all Lambda handlers share: events in, answers out, logs and metrics.

An event is a request of an HTTP API (payload format 2.0), a direct invocation, or the schedule's. All of them become
requests to ``osqueue.server``. Nothing of this runs between invocations.
"""

from .handler import Function

__all__ = ["Function"]
