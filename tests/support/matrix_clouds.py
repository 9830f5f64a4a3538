"""The stores behind HTTP of the fault matrix."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

import pytest

from tests.support import azure_server, express_server
from tests.support.express_server import DirectoryBucket
from tests.support.fault_listeners import HOST, Listener, ObjectHandler, Reply, listen_http
from tests.support.fault_switch import FaultSwitch
from tests.support.gcs_server import GcsServer
from tests.support.light_s3 import LightS3
from tests.support.matrix_stores import SECRET, Place, StoreKind, numbers
from tests.support.s3_relay import Relay


class ObjectKind(StoreKind):
    """A store behind HTTP: a port whose requests meet the fault, and another one around it."""

    replies: ClassVar[Mapping[str, Reply]]
    absent: ClassVar = {"full": "it has no limit that an error names"}
    secrets: ClassVar[tuple[str, ...]] = ()  # variables of the environment
    rotated: ClassVar[str] = ""  # the one that is rotated
    behind: type[Any] = ObjectHandler

    def __init__(self, given: Callable[[str], Any], folder: Path) -> None:
        self.wanted = ""  # what the credentials of a request have to contain
        self.attributes: dict[str, Any] = {}  # of handlers
        self.begin(given, folder)
        self.direct = listen_http(self.behind, None, self.replies, **self.attributes)

    def begin(self, given: Callable[[str], Any], folder: Path) -> None:
        """Start what stands behind the ports."""

    def close(self) -> None:
        self.direct.refuse()

    def address(self, listener: Listener) -> str:
        """The address of an empty place, but for its number."""
        raise NotImplementedError

    @contextlib.contextmanager
    def open(self, switch: FaultSwitch, patch: pytest.MonkeyPatch) -> Iterator[Place]:
        self.wanted = ""
        for name in self.secrets:
            patch.setenv(name, SECRET)
        listener = listen_http(self.behind, switch, self.replies, self.accepts, **self.attributes)

        def begin(fault: str) -> None:
            if fault == "gone":
                listener.refuse()
            if fault == "rotated":
                self.wanted = f"{os.environ[self.rotated]}2"

        def end(fault: str) -> None:
            if fault == "gone":
                listener.open()
            if fault == "rotated":
                patch.setenv(self.rotated, self.wanted)

        switch.on_begin, switch.on_end = begin, end
        number = next(numbers)
        try:
            with self.around(listener, patch) as (address, direct):
                yield Place(self, address.format(number), direct.format(number), switch)
        finally:
            listener.refuse()

    @contextlib.contextmanager
    def around(self, listener: Listener, patch: pytest.MonkeyPatch) -> Iterator[tuple[str, str]]:
        yield self.address(listener), self.address(self.direct)

    def accepts(self, headers: Mapping[str, str]) -> bool:
        return self.wanted in headers.get("Authorization", "")


class StandInKind(ObjectKind):
    """One whose server is in this process."""

    server: type[GcsServer]

    def begin(self, given: Callable[[str], Any], folder: Path) -> None:
        self.objects = self.server()
        self.objects.buckets["bucket"] = {}
        self.attributes = {"objects": self.objects}


class S3Kind(StandInKind):
    """S3, and servers that speak its language."""

    name = "s3"
    schemes = ("s3",)
    server = LightS3
    absent: ClassVar = {}
    secrets = ("AWS_SECRET_ACCESS_KEY",)
    rotated = "AWS_ACCESS_KEY_ID"
    replies: ClassVar = {
        "refused": (403, "AccessDenied"),
        "throttled": (503, "SlowDown"),
        "credentials": (403, "InvalidAccessKeyId"),
        "missing": (404, "NoSuchBucket"),
        "full": (507, "XMinioStorageFull"),
    }
    names: ClassVar = {
        "refused": "403 AccessDenied",
        "throttled": "503 SlowDown",
        "hung": "no answer in time",
        "cut": "connection ended|[Cc]onnection was closed|Connection reset|IncompleteRead|RemoteDisconnected",
        "credentials": "403 InvalidAccessKeyId",
        "rotated": "403 InvalidAccessKeyId",
        "gone": "[Cc]onnection refused|Could not connect|connection ended|[Cc]onnection was closed|Connection reset",
        "missing": "404 NoSuchBucket",
        "full": "507 XMinioStorageFull",
    }

    def begin(self, given: Callable[[str], Any], folder: Path) -> None:
        given("aws_environment")
        super().begin(given, folder)

    def address(self, listener: Listener) -> str:
        return f"s3://bucket/{{}}?endpoint=http://{HOST}:{listener.port}"


class ExpressKind(S3Kind):
    """A directory bucket: S3 Express One Zone."""

    name = "s3-express"
    absent: ClassVar = {
        "full": "it has no limit that an error names",
        "rotated": "requests carry a session's credentials, whose end is the fault 'credentials'",
    }
    behind = DirectoryBucket

    def begin(self, given: Callable[[str], Any], folder: Path) -> None:
        super().begin(given, folder)
        certificate, key = express_server.write_certificate(folder)
        self.trusted = {"SSL_CERT_FILE": str(certificate), "AWS_CA_BUNDLE": str(certificate)}
        self.bucket = f"matrix{express_server.SUFFIX}"
        self.objects.buckets[self.bucket] = self.objects.buckets["bucket"]  # a name for the way around
        self.plain = listen_http(ObjectHandler, None, self.replies, objects=self.objects)
        behind = f"http://{HOST}:{self.plain.port}"
        self.attributes = {"behind": behind, "tls": express_server.context_of(certificate, key)}

    def close(self) -> None:
        super().close()
        self.plain.refuse()

    @contextlib.contextmanager
    def around(self, listener: Listener, patch: pytest.MonkeyPatch) -> Iterator[tuple[str, str]]:
        for name, text in self.trusted.items():
            patch.setenv(name, text)
        proxy = f"http://{HOST}:{listener.port}"
        led = {
            **dict.fromkeys(("HTTPS_PROXY", "https_proxy"), proxy),
            **dict.fromkeys(("NO_PROXY", "no_proxy"), HOST),
        }
        for name, text in led.items():
            patch.setenv(name, text)
        yield f"s3://{self.bucket}/{{}}", self.address(self.plain)


class GoogleKind(StandInKind):
    """Google Cloud Storage."""

    name = "gs"
    schemes = ("gs",)
    server = GcsServer
    secrets = ("GOOGLE_BEARER_TOKEN",)
    rotated = "GOOGLE_BEARER_TOKEN"
    replies: ClassVar = {
        "refused": (403, "AccessDenied"),
        "throttled": (429, "SlowDown"),
        "credentials": (401, "AuthenticationRequired"),
        "missing": (404, "NoSuchBucket"),
    }
    names: ClassVar = {
        **S3Kind.names,
        "throttled": "429 SlowDown",
        "credentials": "401 AuthenticationRequired",
        "rotated": "401 AuthenticationRequired",
    }

    def begin(self, given: Callable[[str], Any], folder: Path) -> None:
        given("gcs")
        super().begin(given, folder)

    def address(self, listener: Listener) -> str:
        return f"gs://bucket/{{}}?endpoint=http://{HOST}:{listener.port}"


class AzureKind(ObjectKind):
    """Azure Blob Storage."""

    name = "az"
    schemes = ("az",)
    secret = azure_server.KEY
    own_clock = True
    behind = Relay
    absent: ClassVar = {
        "full": "it has no limit that an error names",
        "rotated": "the emulator knows one key",
    }
    replies: ClassVar = {
        "refused": (403, "AuthorizationPermissionMismatch"),
        "throttled": (503, "ServerBusy"),
        "credentials": (403, "AuthenticationFailed"),
        "missing": (404, "ContainerNotFound"),
    }
    names: ClassVar = {
        **S3Kind.names,
        "refused": "403 AuthorizationPermissionMismatch",
        "throttled": "503 ServerBusy",
        "credentials": "403 AuthenticationFailed",
        "missing": "404 ContainerNotFound",
    }

    def begin(self, given: Callable[[str], Any], folder: Path) -> None:
        endpoint = urlsplit(given("azure_endpoint"))
        self.attributes = {"behind": f"http://{endpoint.netloc}"}

    def address(self, listener: Listener) -> str:
        endpoint = f"http://{HOST}:{listener.port}/{azure_server.ACCOUNT}"
        return f"az://{azure_server.CONTAINER}/matrix/{{}}?endpoint={endpoint}"
