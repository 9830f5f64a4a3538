"""S3 through obstore, the client of the hot path: 20 ms to import, 0.04 ms of processor per conditional PUT.

The version is the ETag, which for most buckets is a hash of the content. Two bodies that are equal therefore
have equal versions: whoever relies on versions that never repeat starts the body with something that never
repeats, as the head does with its commit id.

One request of the port is one HTTP request: obstore's retries are off, because a repeated conditional PUT
turns its own success into a 412. (A range that lies beyond the object asks once more, for the version.)

What to ask and what an answer means is written once, as generators that yield ``_Call`` and receive its
result; ``perform`` and ``perform_async`` differ only in how they make the call.
"""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable, Callable, Generator
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import NotInstalled, NotSupported, OsqueueError
from .base import (
    KEY_BYTES_MAX,
    LIST_KEYS_MAX,
    AnnouncedPut,
    Delete,
    Deleted,
    DeleteIfMatch,
    Failed,
    Found,
    Get,
    List,
    Listed,
    Missing,
    PassTurn,
    PresignedRequest,
    Put,
    PutIfAbsent,
    PutIfMatch,
    Refused,
    StoreReply,
    StoreRequest,
    TakeTurn,
    Unchanged,
    Written,
)
from .s3_faults import (
    CONNECT_TIMEOUT_S,
    PAGE_KEYS_MAX,
    REQUEST_TIMEOUT_S,
    S3Fault,
    explained,
    presentable,
)
from .s3_place import condition, default_endpoint, endpoint_of, full_prefix, name_bytes_max
from .wrapped import PerformingStore

if TYPE_CHECKING:
    import obstore.store

    from .s3_boto import BotoStore

# Where obstore finds credentials by itself without a network round trip. boto3 knows the other places.
_CREDENTIALS_IN_ENVIRONMENT = (
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",  # of EKS. A token that is no file, as on EMR Serverless, it ignores
)
_STATUS_OF = {
    "NotModifiedError": 304,
    "UnauthenticatedError": 401,
    "PermissionDeniedError": 403,
    "NotFoundError": 404,
    "FileNotFoundError": 404,
    "AlreadyExistsError": 409,
    "PreconditionError": 412,
}
# Without credentials obstore asks the machine's metadata for a role, and boto3's provider has nothing to give.
_UNIDENTIFIED = re.compile(
    r"169\.254\.169\.254|Missing (?:AccessKeyId|SecretAccessKey)|Received None from session\.get_credentials"
)
_HIGHEST = "\U0010ffff"


class _Call(NamedTuple):
    """One call of obstore, in both of its forms."""

    blocking: Callable[[], Any]
    awaiting: Callable[[], Awaitable[Any]]


_Steps = Generator[_Call, Any, StoreReply]


class S3Store(PerformingStore):
    """Objects in a bucket, below a prefix. Credentials come from the environment, a role or a profile.

    ``bare_etags=True`` leaves the quotes of versions away in conditions, for servers that want it so.
    """

    def __init__(
        self,
        bucket: str,
        prefix: str = "",
        endpoint: str | None = None,
        region: str | None = None,
        *,
        bare_etags: bool = False,
    ) -> None:
        if find_spec("obstore") is None:
            raise NotInstalled(
                "s3:// needs obstore, which this Python does not have. Remedy: pip install 'osqueue[s3]'",
                field="address",
            )
        if bucket.endswith("--x-s3"):
            raise NotSupported(
                "S3 Express directory buckets list their keys in no order, which this release relies on; "
                "use a general purpose bucket",
                field="bucket",
            )
        self.bucket = bucket
        self.prefix = full_prefix(prefix)
        self.endpoint = endpoint or default_endpoint()
        self.region = region or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
        self.bare_etags = bare_etags
        self.key_bytes_max = KEY_BYTES_MAX - len(self.prefix.encode())
        self.name_bytes_max = name_bytes_max(self.endpoint)
        self._client: obstore.store.S3Store | None = None
        self._boto_store: BotoStore | None = None

    @property
    def place(self) -> object:
        return ("s3", self.endpoint, self.bucket, self.prefix)

    # ── The port ─────────────────────────────────────────────────────────────

    def perform(self, request: StoreRequest) -> StoreReply:
        if _runtime.lost or isinstance(request, DeleteIfMatch):
            return self._through_boto(request)
        steps = self._steps(request)
        try:
            call = next(steps)
            while True:
                try:
                    result = call.blocking()
                except Exception as error:  # noqa: BLE001 - obstore raises built-in exceptions, too
                    call = steps.throw(error)
                else:
                    call = steps.send(result)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        except OsqueueError as error:
            return Failed(error)

    async def perform_async(self, request: StoreRequest) -> StoreReply:
        if _runtime.lost or isinstance(request, DeleteIfMatch):
            import asyncio

            return await asyncio.to_thread(self._through_boto, request)
        steps = self._steps(request)
        try:
            call = next(steps)
            while True:
                try:
                    result = await call.awaiting()
                except Exception as error:  # noqa: BLE001 - obstore raises built-in exceptions, too
                    call = steps.throw(error)
                else:
                    call = steps.send(result)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        except OsqueueError as error:
            return Failed(error)

    def presigned(self, request: Get | AnnouncedPut, seconds: int) -> PresignedRequest | None:
        """By boto3: obstore signs neither a range nor a length. None without boto3."""
        return None if find_spec("boto3") is None else self._boto().presigned(request, seconds)

    def close(self) -> None:
        self._client = None
        if self._boto_store is not None:
            self._boto_store.close()

    # ── What to ask, what the answer means ───────────────────────────────────

    def _steps(self, request: StoreRequest) -> _Steps:
        match request:
            case Get():
                return self._get(request)
            case Put():
                return self._put(request.key, request.body, "overwrite")
            case PutIfAbsent():
                return self._put(request.key, request.body, "create")
            case PutIfMatch():
                e_tag = condition(request.version, self.bare_etags)
                return self._put(request.key, request.body, {"e_tag": e_tag})
            case List():
                return self._list(request)
            case Delete():
                return self._delete(request)
            case DeleteIfMatch() | TakeTurn() | PassTurn():
                raise AssertionError("obstore has neither conditional deletion nor turns")

    def _get(self, request: Get) -> _Steps:
        path = self.prefix + request.key
        options: dict[str, Any] = {}
        if request.unless is not None:
            options["if_none_match"] = condition(request.unless, self.bare_etags)
        start = request.start or 0
        if request.length is not None:
            options["range"] = (start, start + request.length)
        elif start:
            options["range"] = {"offset": start}
        if request.length == 0:  # HTTP has no empty range
            options = {**options, "head": True}
            del options["range"]
        try:
            try:
                result = yield self._call("get", path, options=options)
            except Exception as error:
                if _fault(error).status != 416:  # the range begins after the last byte
                    raise
                options = {"head": True}
                result = yield self._call("get", path, options=options)
            body = b""
            if "head" not in options:
                body = (yield _Call(result.bytes, result.bytes_async)).to_bytes()
        except Exception as error:  # noqa: BLE001 - sorted by _fault
            fault = _fault(error)
            if fault.status == 304:
                return Unchanged()
            if fault.absent:
                return Missing()
            raise explained(fault, self.bucket) from None
        meta = result.meta
        return Found(body, meta["e_tag"], int(meta["last_modified"].timestamp() * 1000))

    def _put(self, key: str, body: bytes, mode: Any) -> _Steps:
        try:
            # Never in parts: that would be several requests.
            result = yield self._call("put", self.prefix + key, body, mode=mode, use_multipart=False)
        except Exception as error:  # noqa: BLE001 - sorted by _fault
            fault = _fault(error)
            if mode != "overwrite" and (fault.refused or (mode != "create" and fault.absent)):
                return Refused()
            raise explained(fault, self.bucket) from None
        return Written(result["e_tag"])

    def _list(self, request: List) -> _Steps:
        # obstore's prefixes are whole folders. Keys come in order, so the rest of the prefix is a matter of
        # starting just below it and stopping behind it.
        prefix = self.prefix + request.prefix
        folder = prefix[: prefix.rfind("/") + 1]
        after = self.prefix + request.after if request.after else ""
        if prefix != folder:
            after = max(after, _just_below(prefix))
        # One page holds 1,000 keys, and one of them only tells whether there are more.
        limit = min(request.limit, LIST_KEYS_MAX, PAGE_KEYS_MAX - 1)
        keys: list[str] = []
        try:
            import obstore

            stream = obstore.list(
                self._open(), folder.rstrip("/") or None, offset=after or None, chunk_size=PAGE_KEYS_MAX
            )
            more = True
            while more and len(keys) <= limit:
                chunk = yield _Call(lambda: next(stream, None), lambda: _next_async(stream))
                for meta in chunk or ():
                    path = meta["path"]
                    if path.startswith(prefix):
                        if path > after:  # obstore drops a slash at the offset's end and starts too early
                            keys.append(path[len(self.prefix) :])
                    elif path > prefix:
                        more = False
                        break
                more = more and chunk is not None
        except Exception as error:  # noqa: BLE001 - sorted by _fault
            raise explained(_fault(error), self.bucket) from None
        return Listed(tuple(keys[:limit]), more=len(keys) > limit)

    def _delete(self, request: Delete) -> _Steps:
        if request.keys:
            try:
                yield self._call("delete", [self.prefix + key for key in request.keys])
            except Exception as error:  # noqa: BLE001 - sorted by _fault
                fault = _fault(error)
                if not fault.absent:
                    raise explained(fault, self.bucket) from None
        return Deleted()

    # ── Clients ──────────────────────────────────────────────────────────────

    def _call(self, name: str, *arguments: Any, **options: Any) -> _Call:
        import obstore

        client = self._open()
        return _Call(
            lambda: getattr(obstore, name)(client, *arguments, **options),
            lambda: getattr(obstore, f"{name}_async")(client, *arguments, **options),
        )

    def _open(self) -> obstore.store.S3Store:
        if self._client is None:
            from datetime import timedelta

            import obstore.store

            _runtime.start()
            options: dict[str, Any] = {}
            if (endpoint := self.endpoint or endpoint_of(self.region)) is not None:
                options["endpoint"] = endpoint
            if self.region is not None:
                options["region"] = self.region
            if not any(map(os.environ.get, _CREDENTIALS_IN_ENVIRONMENT)) and find_spec("boto3") is not None:
                from obstore.auth.boto3 import Boto3CredentialProvider

                # What boto3 gives is good for ten minutes more at least, and obstore asks again after five.
                options["credential_provider"] = Boto3CredentialProvider(ttl=timedelta(minutes=10))
            self._client = obstore.store.S3Store(
                self.bucket,
                client_options={
                    "allow_http": (self.endpoint or "").startswith("http://"),
                    "connect_timeout": timedelta(seconds=CONNECT_TIMEOUT_S),
                    "timeout": timedelta(seconds=REQUEST_TIMEOUT_S),
                },
                retry_config={"max_retries": 0, "retry_timeout": timedelta(0)},
                **options,
            )
        return self._client

    def _through_boto(self, request: StoreRequest) -> StoreReply:
        """For what obstore cannot: conditional deletion, and anything at all in a forked child."""
        if find_spec("boto3") is None:
            return Failed(
                NotSupported(
                    "conditional deletion on S3, and S3 in a forked process, need boto3. "
                    "Remedy: pip install 'osqueue[boto3]'."
                )
            )
        return self._boto().perform(request)

    def _boto(self) -> BotoStore:
        if self._boto_store is None:
            import boto3

            from .s3_boto import BotoStore

            session = boto3.session.Session()
            self._boto_store = BotoStore(
                session, self.bucket, self.prefix, self.endpoint, self.region, bare_etags=self.bare_etags
            )
        return self._boto_store


class _Runtime:
    """obstore's threads do not survive a fork: in the child its calls would wait for ever."""

    def __init__(self) -> None:
        self.lost = False
        self._started = False

    def start(self) -> None:
        if not self._started:
            self._started = True
            os.register_at_fork(after_in_child=self._lose)

    def _lose(self) -> None:
        self.lost = True


_runtime = _Runtime()


def _fault(error: Exception) -> S3Fault:
    """What obstore's exception says. Where its type tells nothing, the status stands in its text."""
    if isinstance(error, OsqueueError):
        raise error
    text = str(error)
    if _UNIDENTIFIED.search(text):
        return S3Fault(unidentified=True)
    if "incorrectly configured region" in text:  # a redirect without an aim
        return S3Fault(301, "PermanentRedirect")
    status = re.search(r"status code: (\d{3})", text)
    code = re.search(r"<Code>(\w+)</Code>", text)
    return S3Fault(
        status=_STATUS_OF.get(type(error).__name__) or (int(status[1]) if status else None),
        code=code[1] if code else "",
        timed_out="kind: Timeout" in text or "TimedOut" in text,
        detail=presentable(text),
    )


def _just_below(prefix: str) -> str:
    """A string before every key that starts with ``prefix``, and after nearly every other before those."""
    last = ord(prefix[-1])
    # Surrogates are no characters of a key: step over them.
    lower = chr(0xD7FF) if last == 0xE000 else chr(last - 1)
    return prefix[:-1] + lower + _HIGHEST


async def _next_async(stream: Any) -> Any:
    try:
        return await stream.__anext__()
    except StopAsyncIteration:
        return None
