"""Who may call a server: those whose tokens it knows, or anybody who reaches it."""

from __future__ import annotations

from msgspec import Struct
from starlette.types import Scope

from ..contract.operations import BY_NAME
from ..contract.roles import OPEN
from ..errors import OsqueueError
from .origin import check_origin, header
from .tokens import Identity, TokenFile

OPEN_PATHS = {BY_NAME[name].path for name in OPEN}


class Admission(Struct, frozen=True):
    """Who may call, and what nobody may."""

    tokens: TokenFile | None = None  # None: whoever reaches the server is trusted
    local_only: bool = False  # it is for this machine alone
    read_only: bool = False  # nobody changes anything

    @property
    def anybody(self) -> Identity:
        """Somebody who has not said who it is."""
        return Identity(read_only=self.read_only)

    def caller(self, scope: Scope) -> Identity:
        """Who sent a request. Raises Forbidden, Unauthorized."""
        check_origin(scope, self.local_only)
        if self.tokens is None or scope["path"] in OPEN_PATHS:
            return self.anybody
        found = self.tokens.caller(header(scope, b"authorization"))
        return Identity(found.token, self.read_only)

    def may_read_errors(self, scope: Scope) -> bool:
        """Return whether the caller of an open path may read the store's errors, which name its keys."""
        if self.tokens is None:
            return True
        try:
            return self.tokens.caller(header(scope, b"authorization")).manages_all
        except OsqueueError:
            return False
