"""One call to the API and its answer: what is repeated, for how long, and what an unexpected answer means.

This is the one layer that repeats anything. A call is tried again until the queue's ``timeout`` is over,

    at any time    when it certainly had no effect: no connection, 429 from the gateway or the queue
    if it is safe  when nobody knows: the connection broke, no answer in time, 500 to 504. Jobs are enqueued under keys
                   that this client drew, endings carry their lease's token, so these may be repeated

with pauses that grow and are spread out, and last at least as long as the answer asks for. Which operations are safe is
in the table of operations (``Repeat``). For the others the caller gets an error: the answer was lost. Jobs of a lost
claim come back when their leases end.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from itertools import count
from typing import Any, TypeVar

import msgspec
from msgspec import Raw, Struct

from .. import limits
from ..clock import Machine
from ..commit.effects import AwaitNews, Sleep
from ..commit.retry import CALL
from ..contract.error_codes import Forbidden, RequestTimeout, TooLarge, Unauthorized, error_of
from ..contract.functions import CONTENT_BYTES_MAX
from ..contract.route import Repeat, Route
from ..contract.schemas import Failure
from ..errors import OsqueueError, Rejected, Throttled, Timeout, Unavailable, WaitTimeout, shown
from ..model.codecs import Codec
from .transports.base import UNREADABLE, ApiAnswer, ApiCall, CallOutcome, Transfer, call

CALL_SECONDS_MIN = 0.1  # a call is given, however little time is left
REQUEST_BYTES_MAX = 5_500_000  # of the items in one call, by `weight`; Lambda takes 6 MB of an event
UNCERTAIN_STATUS_MIN = 500  # from this status on, one that is not the API's own leaves open what was done

T = TypeVar("T")
RemoteFlow = Generator[ApiCall | Transfer | Sleep | AwaitNews, Any, T]


class CallFailure(Struct, frozen=True):
    """A call without a usable answer."""

    error: OsqueueError
    harmless: bool = False  # it certainly had no effect; of several commits, the last one had none
    begun: bool = False  # the function had begun, and reported the failure
    retryable: bool = True  # the next try may succeed
    pause: float = 0.0  # seconds that the answer asks to wait
    seconds: float | None = None  # after which trying again is pointless; None: the caller says


class ApiClient:
    """One queue or pacer, over an API. Holds what does not change."""

    def __init__(self, queue: str, codec: Codec, machine: Machine, timeout: float) -> None:
        self.queue = queue
        self.codec = codec
        self.machine = machine
        self.timeout = timeout  # seconds

    def ask(
        self,
        operation: str,
        *,
        kind: Any = None,
        job: str | None = None,
        schedule: str | None = None,
        batch: str | None = None,
        worker: str | None = None,
        pacer: str | None = None,
        query: Sequence[tuple[str, object]] = (),
        body: Struct | None = None,
        seconds: float | None = None,
        tries: int | None = None,
        patience: float = float("inf"),
    ) -> RemoteFlow[Any]:
        """The answer of an operation, or the error that it reports. ``kind`` picks one of several types of answers.

        Tried for ``seconds``, or ``tries`` times, each for at most ``patience`` seconds.
        """
        path = {"queue": self.queue} if pacer is None else {"pacer": pacer}
        others = (("id", job), ("schedule", schedule), ("batch", batch), ("worker", worker))
        path |= {name: each for name, each in others if each is not None}
        given = tuple((name, _plain(name, value)) for name, value in query if value is not None)
        data = b"" if body is None else msgspec.json.encode(body)
        request = call(operation, path=path, query=given, body=data)
        began = self.machine.monotonic()
        until = began + (self.timeout if seconds is None else seconds)
        for tried in count(1):
            left = until - self.machine.monotonic()
            reply = yield msgspec.structs.replace(request, timeout=max(min(left, patience), CALL_SECONDS_MIN))
            answer = read(reply, kind or request.route.answer)
            if not isinstance(answer, CallFailure):
                return answer
            wait = max(answer.pause, CALL.pause_after(tried, self.machine))
            stays = not answer.retryable or not repeatable(request.route, answer)
            last = until if answer.seconds is None else min(until, began + answer.seconds)
            if stays or tried == tries or self.machine.monotonic() + wait >= last:
                raise answer.error
            yield Sleep(wait)
        raise AssertionError("unreachable")


def repeatable(route: Route, failure: CallFailure) -> bool:
    """Whether a repeat of a call that failed so does no harm."""
    match route.repeat:
        case Repeat.ALWAYS:
            return True
        case Repeat.UNAPPLIED:
            return failure.harmless
        case Repeat.UNREACHED:
            return failure.harmless and not failure.begun


# ── Reading an answer ─────────────────────────────────────────────────────
def read(reply: CallOutcome, kind: Any) -> Any:
    """An answer's body as ``kind``, or what is the trouble."""
    if not isinstance(reply, ApiAnswer):
        return CallFailure(reply.error, not reply.sent, retryable=_passes(reply.error), seconds=reply.seconds)
    if reply.status >= 300 or reply.status == 202:
        return _failure(reply)
    if kind is None:
        return None
    try:
        return msgspec.json.decode(reply.body, type=kind)
    except msgspec.ValidationError:
        strange = "the API answered with something that this release does not understand. Is it a newer one?"
        return CallFailure(Unavailable(strange, permanent=True), retryable=False)
    except UNREADABLE:
        if reply.body.lstrip()[:1] == b"<":
            return _foreign("what answers at this address is no API of osqueue, but a web page.")
        return CallFailure(Unavailable("the API's answer arrived damaged."))


def _failure(answer: ApiAnswer) -> CallFailure:
    try:
        fault = msgspec.json.decode(answer.body, type=Failure).error
    except UNREADABLE:
        return _of_gateway(answer)
    error = error_of(fault)
    harmless = isinstance(error, Throttled | RequestTimeout | Unauthorized | Forbidden)
    return CallFailure(error, harmless, True, _passes(error), fault.retry_after or 0.0)


def _passes(error: OsqueueError) -> bool:
    """May the next try succeed?"""
    passing = isinstance(error, Throttled | Unavailable | Timeout) and not isinstance(error, WaitTimeout)
    return passing and not error.permanent


def _of_gateway(answer: ApiAnswer) -> CallFailure:
    """What is not an answer of ours comes from a gateway in front of the functions, or from something else altogether.

    Its text is not repeated: a gateway that refuses a signature quotes all that was signed, tokens included.
    """
    status, text = answer.status, answer.body[:4_000].lower()
    if status in (401, 403):
        why = "check the credentials, and that they may call this API (execute-api:Invoke)."
        if b"expired" in text:
            why = "the credentials have expired, or this machine's clock is wrong."
        elif b"signature" in text:
            why = "the signature does not fit: check the region in the address, the secret key and the clock."
        # The call is not at fault: a worker keeps its result until somebody corrects the credentials.
        error = Unavailable(f"the API's gateway refuses the call ({status}): {why}", permanent=True)
        return CallFailure(error, harmless=True, retryable=False)
    if status == 413:
        return CallFailure(
            TooLarge("the request is larger than the API takes. Send fewer items."), retryable=False
        )
    if status == 429:
        return CallFailure(Throttled("the API's gateway has too many calls (429)."), harmless=True)
    if status >= UNCERTAIN_STATUS_MIN:
        return CallFailure(Unavailable(f"the API's gateway had no answer of its function ({status})."))
    if 300 <= status < 400:
        return _foreign(f"the address answers with a redirect ({status}), which is not followed.")
    return _foreign(f"nothing of osqueue answers at this address ({status}).")


def _foreign(what: str) -> CallFailure:
    return CallFailure(
        Unavailable(f"{what} Check host and stage in the address.", permanent=True), retryable=False
    )


def _plain(name: str, value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    text = str(value)
    if not text.isascii() and text != text.encode(errors="replace").decode():  # half a surrogate pair
        raise Rejected(f"{name}: {shown(text)} cannot be sent: it has no form in UTF-8.", field=name)
    return text


# ── Many items ───────────────────────────────────────────────────────────────
def one_for_each(answers: list[T], items: Sequence[object]) -> list[T]:
    """The answers to the items of a call, one each. Raises Unavailable when there are more, or fewer."""
    if len(answers) != len(items):
        raise Unavailable(
            f"the API answered {len(answers):,} items of {len(items):,}. Is it a newer one?",
            permanent=True,
        )
    return answers


def batches(items: Sequence[bytes], beside: Sequence[int] = ()) -> Iterator[tuple[int, list[Raw]]]:
    """Encoded items as they fit into calls, in order; each with the place of its first.

    ``beside``: how many bytes of each were uploaded, which the server reads all at once.
    """
    batch: list[Raw] = []
    start = size = read = 0
    for at, item in enumerate(items):
        more, large = weight(item), beside[at] if beside else 0
        full = size + more > REQUEST_BYTES_MAX or read + large > CONTENT_BYTES_MAX
        if batch and (full or len(batch) == limits.ITEMS_PER_REQUEST_MAX):
            yield start, batch
            batch, start, size, read = [], at, 0, 0
        batch.append(Raw(item))
        size += more
        read += large
    if batch:
        yield start, batch


def weight(item: bytes) -> int:
    """The bytes of an encoded item, and of a comma, in a gateway's event: there the body is a text of JSON in JSON."""
    return len(item) + item.count(b'"') + item.count(b"\\") + 1
