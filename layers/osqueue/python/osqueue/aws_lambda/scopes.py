"""What a caller's token lets it do, by OAuth scopes (RFC 6749, 3.3): checked here, where the queue is known.

The gateway has checked the token and hands its claims on, but it knows routes alone, and a queue is no part of a route.
A scope is ``<prefix><queue>:<role>``, with a role of ``contract.roles`` and a queue's name or a pattern. With the
prefix ``osqueue/``: ``osqueue/emails:enqueue``, ``osqueue/orders-*:work``, ``osqueue/*:read``.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from ..contract.error_codes import Forbidden
from ..contract.roles import OPEN, Role, covers, may
from ..contract.route import Route, subject_text

CLAIMS = ("scope", "scp")  # where issuers put them
_ROLES = {role.value: role for role in Role}


class ScopedCaller(Struct, frozen=True):
    """A caller by its token's scopes: those that are ours, and what each gives on which queues."""

    prefix: str
    grants: tuple[tuple[str, Role], ...]

    def permit(self, route: Route, subject: str) -> None:
        """Raise Forbidden, with a scope that would do, for what no scope covers.

        ``subject`` is a queue or a pacer; "" stands for all.
        """
        if route.name in OPEN or any(
            may(role, route) and covers((pattern,), subject) for pattern, role in self.grants
        ):
            return
        least = next(role for role in Role if may(role, route))
        has = ", ".join(f"{self.prefix}{pattern}:{role.value}" for pattern, role in self.grants)
        raise Forbidden(
            f"this token may not {route.name} {subject_text(route, subject)}: its scopes are"
            f" {has or 'none of this API'}. Request one with the scope {self.prefix}{subject or '*'}:{least.value}.",
            permanent=True,
        )


def caller_of(event: dict[str, Any], prefix: str) -> ScopedCaller:
    """Who sent a request of the gateway. One whose event has no claims has no scopes."""
    grants = []
    for scope in _scopes_of(event):
        pattern, _, role = scope.removeprefix(prefix).rpartition(":")
        if scope.startswith(prefix) and pattern and role in _ROLES:
            grants.append((pattern, _ROLES[role]))
    return ScopedCaller(prefix, tuple(grants))


def _scopes_of(event: dict[str, Any]) -> list[str]:
    found: Any = event["requestContext"]
    for name in ("authorizer", "jwt", "claims"):
        found = found.get(name) if isinstance(found, dict) else None
    claims = found if isinstance(found, dict) else {}
    texts = [claims[name] for name in CLAIMS if isinstance(claims.get(name), str)]
    return [
        scope for text in texts for scope in text.strip("[]").split()
    ]  # the gateway writes a list as [a b]
