"""S3 through boto3, for callers who bring a session of theirs, and for what obstore cannot do.

Slower than obstore (1 ms of processor per request, 300 ms to import) and equal in meaning, the versions
included: the two may work on one bucket side by side.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from .. import forks
from ..clock import IdleTime
from ..errors import Rejected, Unavailable, pass_on_interruption
from ..limits import HTTP_IDLE_MS_MAX
from .base import (
    KEY_BYTES_MAX,
    LIST_KEYS_MAX,
    AnnouncedPut,
    Delete,
    Deleted,
    DeleteIfMatch,
    Found,
    Get,
    List,
    Listed,
    Missing,
    PresignedRequest,
    Put,
    PutIfAbsent,
    PutIfMatch,
    Refused,
    Store,
    Unchanged,
    Written,
    full_prefix,
)
from .certificates import certificate_refused
from .faults import TIMEOUTS, Timeouts, presentable
from .s3_faults import PAGE_KEYS_MAX, S3Fault
from .s3_place import (
    PLAIN,
    S3Options,
    condition,
    default_endpoint,
    encryption,
    host_of,
    is_directory,
    name_bytes_max,
)
from .unordered import folder_of, page_of

if TYPE_CHECKING:
    import botocore.config

CONNECTIONS_MAX = 64  # kept open for threads; more than that wait for one


def client_config(timeouts: Timeouts = TIMEOUTS) -> botocore.config.Config:
    """How a client has to be made: no retries, time-outs on everything."""
    from botocore.config import Config

    return Config(
        retries={"total_max_attempts": 1},
        connect_timeout=timeouts.connect_s,
        read_timeout=timeouts.request_s,
        max_pool_connections=CONNECTIONS_MAX,
        tcp_keepalive=True,
    )


def open_client(
    session: Any,
    endpoint: str | None = None,
    region: str | None = None,
    options: S3Options = PLAIN,
) -> Any:
    """A boto3 S3 client of the right make."""
    from botocore.config import Config

    config = client_config(options.timeouts)
    # A server of one's own seldom has a host name for each bucket.
    if (style := options.addressing or (None if endpoint is None else "path")) is not None:
        config = config.merge(Config(s3={"addressing_style": style}))
    return session.client("s3", endpoint_url=endpoint, region_name=region, config=config, verify=options.ca)


class BotoStore(Store):
    """Objects in a bucket, below a prefix, through a boto3 session or S3 client.

    A client has to be made with ``client_config()``: one that retries by itself is refused, because a
    repeated conditional PUT turns its own success into a 412. Of ``options`` it has the time-outs, the host and
    the authorities already.
    """

    def __init__(
        self,
        session_or_client: Any,
        bucket: str,
        prefix: str = "",
        endpoint: str | None = None,
        region: str | None = None,
        options: S3Options = PLAIN,
    ) -> None:
        self.bucket = bucket
        self.prefix = full_prefix(prefix)
        self.key_bytes_max = KEY_BYTES_MAX - len(self.prefix.encode())
        self.ordered = not is_directory(bucket)
        self._session = None if hasattr(session_or_client, "put_object") else session_or_client
        self._client_now = session_or_client if self._session is None else None
        self._endpoint = endpoint  # with the region, for clients made from a session
        self._region = region
        self._options = options
        self.reply_s_max = options.timeouts.reply_s_max
        self._bare_etags = options.bare_etags
        self._encryption = {} if options.kms is None else encryption(options.kms)
        known = endpoint or (
            default_endpoint() if self._client_now is None else session_or_client.meta.endpoint_url
        )
        self.name_bytes_max = name_bytes_max(known)
        if options.addressing == "virtual" and known is not None:
            host_of(bucket, known)
        self._signer: Any = None  # made when first needed
        self._idle = IdleTime()
        self._pid = forks.process()
        self._lock = forks.lock()
        if self._session is None:
            attempts = (session_or_client.meta.config.retries or {}).get("total_max_attempts")
            if attempts != 1:
                raise Rejected(
                    "this boto3 client repeats requests by itself; make it with "
                    "config=osqueue.stores.s3_boto.client_config(), or pass the session instead",
                    field="session_or_client",
                )

    # ── The port ─────────────────────────────────────────────────────────────

    def get(self, request: Get) -> Found | Missing | Unchanged:
        options: dict[str, str] = {}
        if request.unless is not None:
            options["IfNoneMatch"] = condition(request.unless, self._bare_etags)
        start = request.start or 0
        if request.length is not None:
            options["Range"] = f"bytes={start}-{start + request.length - 1}"
        elif start:
            options["Range"] = f"bytes={start}-"
        try:
            if request.length == 0:  # HTTP has no empty range
                del options["Range"]
                return self._found(self._ask("head_object", Key=self.prefix + request.key, **options), b"")
            answer = self._ask("get_object", Key=self.prefix + request.key, **options)
            try:
                return self._found(answer, answer["Body"].read())
            except Exception as error:  # noqa: BLE001 - the connection broke in the middle of the body
                raise _Faulty(self._fault(error)) from None
        except _Faulty as faulty:
            if faulty.fault.status == 304:
                return Unchanged()
            if faulty.fault.absent:
                return Missing()
            if faulty.fault.status == 416:  # the range begins after the last byte
                return self.get(Get(request.key, length=0))
            raise faulty.fault.explained(self.bucket) from None

    def put(self, request: Put) -> Written:
        return self._definite(self._put(request.key, request.body))

    def put_if_absent(self, request: PutIfAbsent) -> Written | Refused:
        return self._definite_or_refused(self._put(request.key, request.body, IfNoneMatch="*"))

    def put_if_match(self, request: PutIfMatch) -> Written | Refused:
        version = condition(request.version, self._bare_etags)
        return self._definite_or_refused(
            self._put(request.key, request.body, IfMatch=version), absent_too=True
        )

    def list(self, request: List) -> Listed:
        options: dict[str, Any] = {"MaxKeys": request.page(LIST_KEYS_MAX)}
        if request.after:
            options["StartAfter"] = self.prefix + request.after
        try:
            if not self.ordered:
                return page_of(self._folder(folder_of(self.prefix + request.prefix)), request)
            answer = self._ask("list_objects_v2", Prefix=self.prefix + request.prefix, **options)
        except _Faulty as faulty:
            raise faulty.fault.explained(self.bucket) from None
        return Listed(tuple(self._keys(answer)), more=bool(answer["IsTruncated"]))

    def delete(self, request: Delete) -> Deleted:
        for first in range(0, len(request.keys), PAGE_KEYS_MAX):
            page = request.keys[first : first + PAGE_KEYS_MAX]
            objects = [{"Key": self.prefix + key} for key in page]
            try:
                answer = self._ask("delete_objects", Delete={"Objects": objects, "Quiet": True})
            except _Faulty as faulty:
                raise faulty.fault.explained(self.bucket) from None
            for refusal in answer.get("Errors", ()):
                if refusal.get("Code") != "NoSuchKey":
                    status = 403 if refusal.get("Code") == "AccessDenied" else 500
                    raise S3Fault(status, refusal.get("Code", "")).explained(self.bucket)
        return Deleted()

    def delete_if_match(self, request: DeleteIfMatch) -> Deleted | Refused:
        try:
            version = condition(request.version, self._bare_etags)
            self._ask("delete_object", Key=self.prefix + request.key, IfMatch=version)
        except _Faulty as faulty:
            if faulty.fault.refused or faulty.fault.absent:
                return Refused()
            raise faulty.fault.explained(self.bucket) from None
        return Deleted()

    def presigned(self, request: Get | AnnouncedPut, seconds: int) -> PresignedRequest | None:
        from .s3_presigned import open_signer, presigned

        # A client of somebody's own signs as its maker wished. What a session signs is good for minutes only.
        if self._session is None or not self.ordered:
            return None
        try:
            if self._signer is None:
                endpoint = self._endpoint or default_endpoint()
                self._signer = open_signer(self._session, endpoint, self._region, self._options)
            key = self.prefix + request.key
            return presigned(self._signer, self.bucket, key, request, seconds, self._options.kms)
        except Exception as error:  # noqa: BLE001 - finding credentials may call any service
            raise self._fault(error).explained(self.bucket) from None

    def close(self) -> None:
        with self._lock:
            if self._client_now is not None:
                self._client_now.close()  # botocore opens connections anew if it is asked again

    def _keys(self, answer: Mapping[str, Any]) -> Iterator[str]:
        return (item["Key"][len(self.prefix) :] for item in answer.get("Contents", ()))

    def _folder(self, folder: str) -> Iterator[str]:
        """All keys of a folder, in the order in which they come."""
        options: dict[str, str] = {}
        while True:
            answer = self._ask("list_objects_v2", Prefix=folder, **options)
            yield from self._keys(answer)
            if not answer["IsTruncated"]:
                return
            options["ContinuationToken"] = answer["NextContinuationToken"]

    # ── The client ───────────────────────────────────────────────────────────

    def _put(self, key: str, body: bytes, **condition: str) -> Written | S3Fault:
        about = {"Key": self.prefix + key, **condition, **self._encryption}
        try:
            return Written(self._ask("put_object", Body=body, **about)["ETag"])
        except _Faulty as faulty:
            return faulty.fault

    def _definite(self, result: Written | S3Fault) -> Written:
        if isinstance(result, S3Fault):
            raise result.explained(self.bucket)
        return result

    def _definite_or_refused(self, result: Written | S3Fault, absent_too: bool = False) -> Written | Refused:
        if isinstance(result, S3Fault) and (result.refused or (absent_too and result.absent)):
            return Refused()
        return self._definite(result)

    def _found(self, answer: Mapping[str, Any], body: bytes) -> Found:
        return Found(body, answer["ETag"], int(answer["LastModified"].timestamp() * 1000))

    def _ask(self, operation: str, **arguments: Any) -> Any:
        client = self._client()
        try:
            return getattr(client, operation)(Bucket=self.bucket, **arguments)
        except Exception as error:  # noqa: BLE001 - botocore's errors have no common base but this
            raise _Faulty(self._fault(error)) from None

    def _fault(self, error: Exception) -> S3Fault:
        return _fault(error, self._options.timeouts)

    def _client(self) -> Any:
        pid = forks.process()
        if self._client_now is None or self._pid != pid:
            # Two processes must not talk through one connection: a forked child opens its own.
            with self._lock:
                if self._session is None:
                    raise Unavailable(
                        "a boto3 client cannot be used in a forked process. "
                        "Remedy: give BotoStore the session instead, or open the store after the fork."
                    )
                if self._client_now is None or self._pid != pid:
                    self._client_now = open_client(self._session, self._endpoint, self._region, self._options)
                    self._pid = pid
        if self._idle.use() >= HTTP_IDLE_MS_MAX:
            self._client_now.close()  # its connections; it opens others
        return self._client_now


class _Faulty(Exception):
    """A fault on its way to the method that knows what it means there."""

    def __init__(self, fault: S3Fault) -> None:
        self.fault = fault


def _fault(error: Exception, timeouts: Timeouts) -> S3Fault:
    pass_on_interruption(error)
    from botocore.exceptions import (
        ClientError,
        ConnectTimeoutError,
        NoCredentialsError,
        PartialCredentialsError,
        ReadTimeoutError,
    )

    if isinstance(error, ClientError):
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
        code = str(error.response.get("Error", {}).get("Code", ""))
        return S3Fault(status, "" if code.isdigit() else code)
    if isinstance(error, (NoCredentialsError, PartialCredentialsError)):
        return S3Fault(unidentified=True)
    return S3Fault(
        timed_out=timeouts if isinstance(error, (ConnectTimeoutError, ReadTimeoutError)) else None,
        certificate=certificate_refused(str(error), S3Fault.words.trust),
        detail=presentable(f"{type(error).__name__}: {error}"),
    )
