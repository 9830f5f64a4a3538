"""Calls as direct invocations of the functions, by boto3: for callers inside AWS. No gateway stands in between."""

from __future__ import annotations

import functools
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from ...clock import MACHINE, IdleTime, Machine
from ...contract.error_codes import TooLarge
from ...contract.functions import BY_NAME, deployed_name
from ...errors import OsqueueError, Rejected, Throttled, Timeout, Unavailable
from ...limits import HTTP_IDLE_MS_MAX
from .base import (
    CALL_SECONDS_DEFAULT,
    CALLS_AT_ONCE_MAX,
    CONNECT_SECONDS_MAX,
    UNREADABLE,
    ApiAnswer,
    ApiCall,
    CallOutcome,
    LostCall,
    Transfer,
    Transport,
    host_of,
    path_of,
    unreached,
)
from .credentials import NO_CREDENTIALS, credentials_unavailable, frozen_of, not_installed
from .transfers import Carrier

# A client's time-out is fixed when it is made, so a call takes the client of the next step.
TIMEOUT_STEPS_S = (2, 5, 10, 20, 30, max(each.timeout_s for each in BY_NAME.values()) + 5)
ERROR_TYPE_CHARS_MAX = 80

_BUSY = (
    "TooManyRequestsException",
    "ThrottlingException",
    "EC2ThrottledException",
    "SnapStartNotReadyException",
    "ResourceConflictException",  # it is being made, changed, or woken
)
_FORBIDDEN = (
    *("AccessDeniedException", "UnrecognizedClientException", "InvalidSignatureException"),
    *("ExpiredTokenException", "MissingAuthenticationTokenException", "IncompleteSignatureException"),
)


class InvokeEvent(Struct, frozen=True):
    """What a function is invoked with."""

    method: str
    path: str
    query: dict[str, str | list[str]] | UnsetType = UNSET
    body: Raw | UnsetType = UNSET


class _InvokeAnswer(Struct, frozen=True):
    """What it answers."""

    status: int
    body: Raw | UnsetType = UNSET


class LambdaTransport(Transport):
    """The functions whose names begin with ``prefix``."""

    def __init__(
        self,
        prefix: str,
        region: str | None = None,
        endpoint: str | None = None,
        machine: Machine = MACHINE,
    ) -> None:
        super().__init__(machine)
        self.prefix = prefix
        self.region = region
        self.endpoint = endpoint
        self._carrier = Carrier(machine)
        self._process = 0  # whose connections these are
        self._session: Any = None  # of boto3
        self._clients: dict[float, tuple[Any, IdleTime]] = {}  # by how long they wait

    @property
    def place(self) -> object:
        return ("lambda", self.endpoint, self.region, self.prefix)

    def send(self, call: ApiCall) -> CallOutcome:
        """One invocation and its answer."""
        name = deployed_name(self.prefix, call.route.function)
        event = InvokeEvent(
            call.route.method, path_of(call), _query(call), Raw(call.body) if call.body else UNSET
        )
        session, client = self._client(call.timeout or CALL_SECONDS_DEFAULT)
        if frozen_of(session) is None:
            raise Unavailable(NO_CREDENTIALS, permanent=True)
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            given = client.invoke(
                FunctionName=name, InvocationType="RequestResponse", Payload=msgspec.json.encode(event)
            )
            data = given["Payload"].read()
        except ClientError as error:
            if _forbids(error.response):
                self._look_again(session)
            return _refused(error.response, name)
        except BotoCoreError as error:
            return _lost(client.meta.endpoint_url, error)
        if given.get("FunctionError"):
            return LostCall(
                Unavailable(f"function {name} failed{_why(data)} before it answered. Its log tells more.")
            )
        try:
            answer = msgspec.json.decode(data, type=_InvokeAnswer)
        except UNREADABLE:
            return LostCall(
                Unavailable(
                    f"function {name} answered something that is not osqueue's. Check the prefix in the address.",
                    permanent=True,
                )
            )
        return ApiAnswer(answer.status, b"" if answer.body is UNSET else bytes(answer.body))

    def carry(self, transfer: Transfer) -> CallOutcome:
        return self._carrier.carry(transfer, self.endpoint or "")

    def close(self) -> None:
        super().close()
        self._carrier.close()
        with self._lock:
            clients, self._clients = self._clients, {}
        if self._process == self._machine.process():
            for client, _ in clients.values():
                client.close()

    def _look_again(self, session: Any) -> None:
        """A session keeps what it once found in a profile, and somebody may put that right meanwhile."""
        with self._lock:
            if self._session is session:
                self._session, self._clients = None, {}

    def _client(self, seconds: float) -> tuple[Any, Any]:
        """A session of boto3, and a client of it that waits so long."""
        step = next((each for each in TIMEOUT_STEPS_S if each >= seconds), TIMEOUT_STEPS_S[-1])
        process = self._machine.process()
        with self._lock:  # making a client is not safe beside another, and a fork's child makes its own
            if self._process != process:
                self._process, self._session, self._clients = process, None, {}
            if step not in self._clients:
                self._clients[step] = self._made(step), IdleTime(self._machine)
            client, idle = self._clients[step]
            if idle.use() >= HTTP_IDLE_MS_MAX:
                client.close()  # its connections; it opens others
            return self._session, client

    def _made(self, seconds: float) -> Any:
        try:
            import boto3
            from botocore.config import Config
            from botocore.exceptions import BotoCoreError, NoRegionError
        except ImportError:
            raise not_installed("lambda:// addresses", "boto3") from None
        config = Config(
            connect_timeout=min(seconds, CONNECT_SECONDS_MAX),
            read_timeout=seconds,
            retries={"total_max_attempts": 1, "mode": "standard"},
            max_pool_connections=CALLS_AT_ONCE_MAX,
            tcp_keepalive=True,
        )
        try:
            if self._session is None:
                self._session = boto3.session.Session(botocore_session=_session())
            return self._session.client(
                "lambda", region_name=self.region, endpoint_url=self.endpoint, config=config
            )
        except NoRegionError:
            raise Rejected(
                "the address does not tell the region: write ?region=eu-west-1, or set AWS_REGION",
                field="region",
            ) from None
        except BotoCoreError as error:  # a profile that is not there
            raise credentials_unavailable(error) from None


@functools.cache
def _models() -> Any:
    """What botocore knows of AWS: most of the time that a client takes to make, so read once for all of a process."""
    from botocore.loaders import create_loader

    return create_loader()


def _session() -> Any:
    from botocore.session import get_session

    session = get_session()
    session.register_component("data_loader", _models())
    return session


def _query(call: ApiCall) -> dict[str, str | list[str]] | UnsetType:
    found: dict[str, str | list[str]] = {}
    for name, value in call.query:
        before = found.get(name)
        if before is None:
            found[name] = value
        else:
            found[name] = [*before, value] if isinstance(before, list) else [before, value]
    return found or UNSET


def _told(response: dict[str, Any]) -> tuple[str, int]:
    """The code and the status of an error."""
    code = str(response.get("Error", {}).get("Code", ""))
    return code, response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)


def _forbids(response: dict[str, Any]) -> bool:
    code, status = _told(response)
    return code in _FORBIDDEN or status in (401, 403)


def _refused(response: dict[str, Any], name: str) -> LostCall:
    """AWS answered in the function's place."""
    code, status = _told(response)
    error: OsqueueError
    if code in _BUSY or status == 429:
        error = Throttled(f"function {name} is busy: its concurrency limit is reached, or it is not ready")
        return LostCall(error, sent=False)
    if code == "ResourceNotFoundException":
        error = Unavailable(
            f"there is no function {name}. Check prefix and region in the address.", permanent=True
        )
        return LostCall(error, sent=False)
    if _forbids(response):
        error = Unavailable(
            f"AWS refuses to invoke {name} ({code or status}): check the credentials, their lambda:InvokeFunction, and"
            " the region in the address.",
            permanent=True,
        )
        return LostCall(error, sent=False)
    if code == "RequestTooLargeException" or status == 413:
        return LostCall(
            TooLarge("the request is larger than Lambda takes (6 MB). Send fewer items."), sent=False
        )
    return LostCall(Unavailable(f"AWS did not run {name} ({code or status})", permanent=400 <= status < 500))


def _lost(url: str, error: Exception) -> LostCall:
    """The error for a failure on the way to an endpoint or back."""
    from botocore import exceptions as of

    match error:
        case of.EndpointConnectionError():
            return unreached(url, error.kwargs.get("error") or error)
        case of.ConnectTimeoutError() | of.SSLError():
            return LostCall(Unavailable(f"Lambda's endpoint {host_of(url)} cannot be reached"), sent=False)
        case of.ReadTimeoutError():
            return LostCall(
                Timeout("the function did not answer in time. The operation may still be applied.")
            )
        case _:
            name = type(error).__name__
            return LostCall(Unavailable(f"the connection to Lambda broke ({name}) before the answer came"))


def _why(data: bytes) -> str:
    """The kind of error that ended a function; its message may hold anything."""
    try:
        kind = msgspec.json.decode(data, type=dict[str, Raw]).get("errorType")
        text = "" if kind is None else msgspec.json.decode(kind, type=str)
    except UNREADABLE:
        return ""
    if not text or len(text) > ERROR_TYPE_CHARS_MAX or not text.replace(".", "").replace("_", "").isalnum():
        return ""
    return f" ({text})"
