"""A store as a role shows it: the requests that its policy and the bucket's let pass, as S3 would decide."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from osqueue.errors import Unavailable
from osqueue.stores import base
from tests.support.rivals import Rivalled

Wanted = tuple[str, str, dict[str, str]]  # action, key ("" for the bucket), what conditions may ask about


def wanted_of(request: base.StoreRequest) -> Iterator[Wanted]:
    """What S3 checks before it carries out a request of the port."""
    match request:
        case base.Get(key=key):
            yield "s3:GetObject", key, {}
            yield "s3:ListBucket", "", {}  # else a missing object would be a forbidden one
        case base.Put(key=key):
            yield "s3:PutObject", key, {}
        case base.PutIfAbsent(key=key):
            yield "s3:PutObject", key, {"s3:if-none-match": "*"}
        case base.PutIfMatch(key=key):
            yield "s3:PutObject", key, {"s3:if-match": request.version}
            yield "s3:GetObject", key, {}
        case base.List(prefix=prefix):
            yield "s3:ListBucket", "", {"s3:prefix": prefix}
        case base.Delete(keys=keys):
            for key in keys:
                yield "s3:DeleteObject", key, {}
        case base.DeleteIfMatch(key=key):
            yield "s3:DeleteObject", key, {"s3:if-match": request.version}
            yield "s3:GetObject", key, {}


class Gate(Rivalled):
    """A store as a function's role shows it."""

    def __init__(self, inner: base.Store, statements: list[dict[str, Any]], policies: Any) -> None:
        super().__init__(inner)
        self.refused: list[Wanted] = []
        self.used: set[tuple[str, str]] = set()  # statement and resource pattern
        self._statements, self._policies = statements, policies

    @property
    def place(self) -> object:
        return self  # of a process of its own

    def clock_ms(self) -> int | None:
        return None  # as on S3, whose clock has to be measured

    def presigned(self, request: base.Get | base.AnnouncedPut, seconds: int) -> base.PresignedRequest:
        """Whoever sends it may do what the role may that signed it."""
        put = isinstance(request, base.AnnouncedPut)
        action = "s3:PutObject" if put else "s3:GetObject"
        wanted = (action, request.key, {"s3:if-none-match": "*"} if put else {})
        if not self._passes(wanted):
            self.refused.append(wanted)
        return base.PresignedRequest("PUT" if put else "GET", request.key)

    def perform(self, request: base.StoreRequest) -> base.StoreReply:
        for wanted in wanted_of(request):
            if not self._passes(wanted):
                self.refused.append(wanted)
                return base.Failed(Unavailable(f"403 {wanted[0]} {wanted[1]}", permanent=True))
        return super().perform(request)

    async def perform_async(self, request: base.StoreRequest) -> base.StoreReply:
        return self.perform(request)

    def _passes(self, wanted: Wanted) -> bool:
        action, key, context = wanted
        policies = self._policies
        resource = f"{policies.BUCKET}/{key}" if key else policies.BUCKET
        for each in self._statements:
            if each["Effect"] == "Allow" and policies.applies(each, action, resource, context):
                patterns = map(policies.plain, policies.listed(each["Resource"]))
                self.used |= {
                    (each.get("Sid", ""), one) for one in patterns if policies.matches(one, resource)
                }
        return bool(policies.allowed(self._statements, action, resource, context))
