"""Object stores in a cloud through obstore, the client of the hot path: 20 ms to import, 0.04 ms of processor per PUT.

One request of the port is one HTTP request: obstore's retries are off, because a repeated conditional PUT
turns its own success into a 412. There are three exceptions. A request on a kept connection that brings no first byte
is repeated once, and a write whose repeat fails counts as unanswered: see ``ObstoreClients``. A range that lies beyond
the object asks once more, for the version. A deletion of many objects is as many requests as their store needs for it.

What to ask and what an answer means is written once, as generators that yield ``Call`` and receive its
result; ``perform`` and ``perform_async`` differ only in how they make the call. What the stores differ in is asked of
the methods at the end: how the client is opened, how a version stands in a condition, how a fault is read, and
how an object is deleted under a condition.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Generator
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from ..errors import NotInstalled, NotSupported, OsqueueError, pass_on_interruption
from .base import (
    KEY_BYTES_MAX,
    LIST_KEYS_MAX,
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
    Put,
    PutIfAbsent,
    PutIfMatch,
    Refused,
    StoreReply,
    StoreRequest,
    TakeTurn,
    Unchanged,
    Written,
    full_prefix,
)
from .certificates import certificate_refused
from .faults import TIMEOUTS, StoreFault, Timeouts, presentable
from .obstore_clients import RUNTIME, ObstoreClients, connection_options
from .reopening import Reopening
from .signed_requests import ErrorStatus, NoResponse, send
from .stray_keys import (
    ListedPage,
    ended_a_listing,
    is_nameable,
    keys_after,
    keys_of,
    named_in,
    not_listed,
    not_nameable,
    page_in,
)
from .unordered import folder_of, page_of
from .wrapped import PerformingStore

if TYPE_CHECKING:
    from .forked import ForkedStore

CHUNK_KEYS = 1000  # of a listing, as obstore hands them out; a page of S3 and of GCS holds as many
_STATUS_OF = {
    "NotModifiedError": 304,
    "UnauthenticatedError": 401,
    "PermissionDeniedError": 403,
    "NotFoundError": 404,
    "FileNotFoundError": 404,
    "AlreadyExistsError": 409,
    "PreconditionError": 412,
}
_HIGHEST = "\U0010ffff"


class Call(NamedTuple):
    """One call of a client, in both of its forms."""

    blocking: Callable[[], Any]
    awaiting: Callable[[], Awaitable[Any]]


Steps = Generator[Call, Any, StoreReply]


def in_either_form(blocking: Callable[[], Any]) -> Call:
    """A call of something that only blocks: coroutines have it made in a thread."""

    def awaiting() -> Awaitable[Any]:
        import asyncio  # here, because blocking callers never need it

        return asyncio.to_thread(blocking)

    return Call(blocking, awaiting)


class ObjectStore(PerformingStore):
    """Objects in a bucket or container, below a prefix."""

    scheme: ClassVar[str]
    extra: ClassVar[str]  # of this package, that brings what the store needs
    fault: ClassVar[type[StoreFault]]
    unidentified: ClassVar[re.Pattern[str]]  # what a client says that found no credentials
    delete_keys_max: ClassVar[int]  # in one call of obstore
    removal: ClassVar[str]  # command line that deletes an object: see stray_keys
    listing_headers: ClassVar[dict[str, str]] = {}  # of a listing by a signed URL
    authorities: str | None = None  # file of the certificate authorities to trust

    def __init__(self, bucket: str, prefix: str, endpoint: str | None, timeouts: Timeouts = TIMEOUTS) -> None:
        if find_spec("obstore") is None:
            raise NotInstalled(
                f"{self.scheme}:// needs obstore, which this Python does not have. "
                f"Remedy: pip install 'osqueue[{self.extra}]'",
                field="address",
            )
        self.bucket = bucket
        self.prefix = full_prefix(prefix)
        self.endpoint = endpoint
        self.timeouts = timeouts
        self.reply_s_max = timeouts.reply_s_max
        self.key_bytes_max = KEY_BYTES_MAX - len(self.prefix.encode())
        self._clients = ObstoreClients(self._open_client)
        self._reopening = Reopening()
        self._forked: ForkedStore | None = None

    @property
    def place(self) -> object:
        return (self.scheme, self.endpoint, self.bucket, self.prefix)

    # ── The port ─────────────────────────────────────────────────────────────

    def perform(self, request: StoreRequest) -> StoreReply:
        if RUNTIME.is_lost():
            return self._forked_reply(request)
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
            return self._failed(error)

    async def perform_async(self, request: StoreRequest) -> StoreReply:
        if RUNTIME.is_lost():
            return await in_either_form(lambda: self._forked_reply(request)).awaiting()  # type: ignore[no-any-return]
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
            return self._failed(error)

    def _forked_reply(self, request: StoreRequest) -> StoreReply:
        if self._reopening.is_stale():
            self.close()
        reply = self.perform_forked(request)
        return self._failed(reply.error) if isinstance(reply, Failed) else reply

    def _failed(self, error: OsqueueError) -> Failed:
        """Return the reply to a request that failed. After a refusal the next request may open another client."""
        if self._reopening.is_due(error):
            self.close()
        return Failed(error)

    def close(self) -> None:
        self._clients.close()
        if self._forked is not None:
            self._forked.close()

    # ── What to ask, what the answer means ───────────────────────────────────

    def _steps(self, request: StoreRequest) -> Steps:
        if self._reopening.is_stale():
            self.close()
        for key in keys_of(request):
            if not is_nameable(path := self.prefix + key):
                return self.use_stray(request, path)
        match request:
            case Get():
                return self._get(request)
            case Put():
                return self._put(request.key, request.body, "overwrite")
            case PutIfAbsent():
                return self._put(request.key, request.body, "create")
            case PutIfMatch():
                return self._put(request.key, request.body, self.match(request.version))
            case List():
                return self._list(request)
            case Delete():
                return self._delete(request)
            case DeleteIfMatch():
                return self._delete_if_match(request)
            case TakeTurn() | PassTurn():
                raise AssertionError("no turns are taken here")

    def _get(self, request: Get) -> Steps:
        path = self.prefix + request.key
        options: dict[str, Any] = {}
        if request.unless is not None and (etag := self.etag(request.unless)):
            options["if_none_match"] = etag
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
                result = yield from self._ask("get", path, options=options)
            except Exception as error:
                if self._fault(error).status != 416:  # the range begins after the last byte
                    raise
                options = {"head": True}
                result = yield from self._ask("get", path, options=options)
            body = b""
            if "head" not in options:
                body = (yield Call(result.bytes, result.bytes_async)).to_bytes()
        except Exception as error:  # noqa: BLE001 - sorted by _fault
            fault = self._fault(error)
            if fault.status == 304:
                return Unchanged()
            if fault.absent:
                return Missing()
            raise fault.explained(self.bucket) from None
        meta = result.meta
        return Found(body, self.version(meta), int(meta["last_modified"].timestamp() * 1000))

    def _put(self, key: str, body: bytes, mode: Any) -> Steps:
        try:
            # Never in parts: that would be several requests.
            result = yield from self._ask("put", self.prefix + key, body, mode=mode, use_multipart=False)
        except Exception as error:  # noqa: BLE001 - sorted by _fault
            fault = self._fault(error)
            if mode != "overwrite" and (fault.refused or (mode != "create" and fault.absent)):
                return Refused()
            if fault.too_soon:
                return Failed(fault.explained(self.bucket), too_soon=True)
            raise fault.explained(self.bucket) from None
        return Written(self.version(result))

    def _list(self, request: List) -> Steps:
        # obstore's prefixes are whole folders. Keys come in order, so the rest of the prefix is a matter of
        # starting just below it and stopping behind it.
        prefix = self.prefix + request.prefix
        after = self.prefix + request.after if request.after else ""
        if prefix != folder_of(prefix):
            after = max(after, _just_below(prefix))
        try:
            begin = after or None if self.ordered else None
            if begin is not None and not is_nameable(begin):
                return (yield from self.list_strays(request, begin))
            page = self._clients.tried(lambda client: self._listed(client, request, begin), self.timeouts)
            return (yield from page)
        except Exception as error:  # noqa: BLE001 - sorted by _fault
            if ended_a_listing(error):
                return (yield from self.list_strays(request, named_in(error)))
            raise self._fault(error).explained(self.bucket) from None

    def _listed(self, client: Any, request: List, begin: str | None) -> Generator[Call, Any, Listed]:
        """Read one page of a listing that begins at ``begin``."""
        import obstore

        prefix = self.prefix + request.prefix
        # One chunk is one page, and one of its keys only tells whether there are more.
        limit = min(request.page(LIST_KEYS_MAX), CHUNK_KEYS - 1)
        keys: list[str] = []
        stream = obstore.list(
            client, folder_of(prefix).rstrip("/") or None, offset=begin, chunk_size=CHUNK_KEYS
        )
        if not self.ordered:
            while (chunk := (yield _next(stream))) is not None:
                keys += [meta["path"][len(self.prefix) :] for meta in chunk]
            return page_of(keys, request)
        more = True
        while more and len(keys) <= limit:
            chunk = yield _next(stream)
            for meta in chunk or ():
                path = meta["path"]
                if path.startswith(prefix):
                    # A store, or obstore, may start at the offset itself, or earlier: it drops a slash at its end.
                    if path > (begin or ""):
                        keys.append(path[len(self.prefix) :])
                elif path > prefix:
                    more = False
                    break
            more = more and chunk is not None
        return Listed(tuple(keys[:limit]), more=len(keys) > limit)

    def list_strays(self, request: List, stray: str) -> Steps:
        """Carry out a listing that meets a key which obstore cannot name, by signed URLs."""
        prefix, after = self.prefix + request.prefix, self.prefix + request.after if request.after else ""
        limit, timeout_s = request.page(LIST_KEYS_MAX), self.timeouts.request_s

        def page_at(token: str) -> Generator[Call, Any, ListedPage]:
            try:
                url = yield from self.listing_url(prefix, after, token)
                page: ListedPage = yield in_either_form(
                    lambda: page_in(send("GET", url, self.listing_headers, timeout_s, self.authorities))
                )
            except Exception as error:  # noqa: BLE001 - sorted by _fault
                reason = (
                    error if isinstance(error, NotSupported) else self._fault(error).explained(self.bucket)
                )
                raise not_listed(prefix, stray, reason, self.removal, self.bucket) from None
            return page

        keys = [key[len(self.prefix) :] for key in (yield from keys_after(after, limit, page_at))]
        return Listed(tuple(keys[:limit]), more=len(keys) > limit)

    def use_stray(self, request: StoreRequest, path: str) -> Steps:
        """Carry out a request for a key which obstore cannot name."""
        yield from ()
        return Failed(not_nameable(path, self.removal, self.bucket))

    def _delete(self, request: Delete) -> Steps:
        paths = [self.prefix + key for key in request.keys]
        for first in range(0, len(paths), self.delete_keys_max):
            page = paths[first : first + self.delete_keys_max]
            if not (yield from self._gone(page)) and len(page) > 1:
                # One was missing, which is no error. But obstore ends with the first thing that it is told, and what
                # became of the others nobody knows.
                for path in page:
                    yield from self._gone([path])
        return Deleted()

    def _gone(self, paths: list[str]) -> Generator[Call, Any, bool]:
        """Delete them: True when all were there."""
        try:
            yield from self._ask("delete", paths)
        except Exception as error:  # noqa: BLE001 - sorted by _fault
            fault = self._fault(error)
            if not fault.absent:
                raise fault.explained(self.bucket) from None
            return False
        return True

    def _delete_if_match(self, request: DeleteIfMatch) -> Steps:
        try:
            reply: StoreReply | None = yield from self.deletion(request)
        except Exception as error:  # noqa: BLE001 - sorted by _fault
            fault = self._fault(error)
            if fault.refused or fault.absent:
                return Refused()
            raise fault.explained(self.bucket) from None
        return reply or Deleted()

    # ── Clients ──────────────────────────────────────────────────────────────

    def _ask(self, name: str, *arguments: Any, **options: Any) -> Generator[Call, Any, Any]:
        """Call a function of obstore, and repeat it once on silence. See ``ObstoreClients.tried``."""

        def attempt(client: Any) -> Generator[Call, Any, Any]:
            return (yield self.call(name, *arguments, client=client, **options))

        body = arguments[1] if name == "put" else None
        return (yield from self._clients.tried(attempt, self.timeouts, body))

    def call(self, name: str, *arguments: Any, client: Any = None, **options: Any) -> Call:
        """A function of obstore, with the client as its first argument. ``client`` is another than the store's."""
        import obstore

        client = client or self._clients.kept()
        return Call(
            lambda: getattr(obstore, name)(client, *arguments, **options),
            lambda: getattr(obstore, f"{name}_async")(client, *arguments, **options),
        )

    def _open_client(self, keeps: bool) -> Any:
        """Open a client that keeps its connections, or one that does not."""
        try:
            return self.client(**self.manners(keeps))
        except Exception as error:  # noqa: BLE001 - sorted by _fault
            raise self._fault(error).explained(self.bucket) from None

    def manners(self, keeps: bool = False, **options: Any) -> dict[str, Any]:
        """Return what every client is opened with: time-outs, and no retries. ``options`` are those of HTTP."""
        from datetime import timedelta

        RUNTIME.start()
        return {
            "client_options": {
                "allow_http": (self.endpoint or "").startswith("http://"),
                **connection_options(self.timeouts, keeps),
                **options,
            },
            "retry_config": {"max_retries": 0, "retry_timeout": timedelta(0)},
        }

    def _fault(self, error: Exception) -> StoreFault:
        """What obstore's exception says: the status that stands in its text, else what its type stands for."""
        if isinstance(error, OsqueueError):
            raise error
        pass_on_interruption(error)
        text = str(error)
        if isinstance(error, NoResponse):
            return self.fault(timed_out=self.timeouts if error.timed_out else None, detail=presentable(text))
        if isinstance(error, ErrorStatus):
            return self.fault(error.status, error.code)
        if self.unidentified.search(text):
            return self.fault(unidentified=True)
        if (
            "Wanted range starting at" in text
        ):  # the server sent nothing, and no 416: obstore counts for itself
            return self.fault(416)
        told = re.search(
            r"status code: (\d{3})|\(code: (\d{3})\)", text
        )  # the latter of one among many deletions
        code = re.search(r"<Code>([\w.]+)</Code>", text)
        return self.fault(
            status=int(told[1] or told[2]) if told else _STATUS_OF.get(type(error).__name__),
            code=code[1] if code else "",
            timed_out=self.timeouts if "kind: Timeout" in text or "TimedOut" in text else None,
            certificate=certificate_refused(text, self.fault.words.trust),
            detail=presentable(text),
        )

    # ── What each store says for itself ──────────────────────────────────────

    @abstractmethod
    def client(self, **manners: Any) -> Any:
        """Open obstore's client of this store."""

    def version(self, meta: Any) -> str:
        """The version token in what obstore tells of an object that was read or written."""
        return meta["e_tag"]  # type: ignore[no-any-return]

    def etag(self, version: str) -> str:
        """The ETag of a version, as a condition of reading; empty where it has none."""
        return version

    def match(self, version: str) -> dict[str, str]:
        """A version as obstore takes it for a condition of writing."""
        return {"e_tag": self.etag(version)}

    @abstractmethod
    def deletion(self, request: DeleteIfMatch) -> Generator[Call, Any, StoreReply | None]:
        """Delete an object under a condition. Raises what a client raises."""

    @abstractmethod
    def listing_url(self, prefix: str, after: str, token: str) -> Generator[Call, Any, str]:
        """Sign the URL of one page of a listing: the first one, or the one that ``token`` names.

        Raises NotSupported if the credentials sign none, and what a client raises.
        """

    def perform_forked(self, request: StoreRequest) -> StoreReply:
        """Carry out a request in the child of a fork, where obstore cannot."""
        if self._forked is None:
            from .forked import ForkedStore

            self._forked = ForkedStore((type(self), (self.bucket, self.prefix, self.endpoint)))
        return self._forked.perform(request)


def _just_below(prefix: str) -> str:
    """A string before every key that starts with ``prefix``, and after nearly every other before those."""
    last = ord(prefix[-1])
    # Surrogates are no characters of a key: step over them.
    lower = chr(0xD7FF) if last == 0xE000 else chr(last - 1)
    if lower == "/" and prefix[-2:-1] in ("", "/"):  # a part would be empty, which obstore does not take
        lower = "."
    return prefix[:-1] + lower + _HIGHEST


def _next(stream: Any) -> Call:
    """The next chunk of a listing; None: there is none."""
    return Call(lambda: next(stream, None), lambda: _next_async(stream))


async def _next_async(stream: Any) -> Any:
    try:
        return await stream.__anext__()
    except StopAsyncIteration:
        return None
