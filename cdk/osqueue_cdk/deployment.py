"""A deployment: all of it in one stack, or one that is there already, by its name."""

from __future__ import annotations

from functools import cached_property

from aws_cdk import Stack, Tags, Token
from aws_cdk import aws_events as events
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_ssm as ssm
from constructs import Construct

from .api import API_ID, ENDPOINT, HttpApi
from .assets import Assets, packaged
from .bus import Bus
from .endpoints import VpcEndpoints
from .functions import LAYER, Functions
from .grants import DeployedQueue, Via
from .names import STORE, Names
from .operations import Operations
from .rights import to_wake
from .schedule import ReaperSchedule
from .settings import DeploymentSettings, checked
from .storage import Storage


class Deployment(Construct):
    """A deployment of this account and region, wherever it is defined, for those who use its queues.

    ``kms_key`` is the ARN of the key that its bucket is encrypted with, where it is one of yours: grants on the bucket
    need it. ``express_zone`` is the zone of its directory bucket, where it has one.
    """

    takes_tokens = False  # as far as is known here
    has_bus = True  # likewise

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        name: str,
        kms_key: str | None = None,
        express_zone: str | None = None,
    ) -> None:
        super().__init__(scope, construct_id)
        self.names = Names(self, name, express_zone)
        self.kms_key = kms_key
        self.consumers: dict[
            str, tuple[bool, bool]
        ] = {}  # functions that are some, with layer and with events
        self.made: tuple[Construct, ...] = ()  # what of it this stack makes, and attaching consumers needs

    def queue(self, name: str) -> DeployedQueue:
        """A queue of it. Raises ``osqueue.Rejected`` for what is no queue's name."""
        return DeployedQueue(self, name)

    def address(self, via: Via = "http") -> str:
        """What ``Queue.connect`` takes: the way that grants lead over."""
        addresses = {
            "http": lambda: f"{self.endpoint}?region={Stack.of(self).region}",
            "lambda": lambda: f"lambda://{self.names.prefix}",
            "bucket": lambda: self._store,
        }
        return addresses[via]()

    def grant_wake(self, grantee: iam.IGrantable) -> iam.Grant:
        """Invoke consumers: for what commits in the bucket itself, and is told so by ``OSQUEUE_WAKES=lambda``."""
        return to_wake(self.names, grantee)

    @cached_property
    def layer(self) -> lambda_.ILayerVersion:
        """Its layer: the library, with what it needs on S3."""
        return lambda_.LayerVersion.from_layer_version_arn(self, "LayerByName", self._parameter(LAYER))

    @cached_property
    def event_bus(self) -> events.IEventBus:
        """The bus that is told of every transition, for rules of yours."""
        return events.EventBus.from_event_bus_name(self, "BusByName", self.names.bus)

    @cached_property
    def api_id(self) -> str:
        """The id of its HTTP API."""
        return self._parameter(API_ID)

    @cached_property
    def endpoint(self) -> str:
        """Where its HTTP API is."""
        return self._parameter(ENDPOINT)

    @cached_property
    def _store(self) -> str:
        """The address of the store."""
        return self._parameter(STORE)

    def _parameter(self, what: str) -> str:
        """What AWS has named, as CloudFormation reads it from SSM."""
        return ssm.StringParameter.value_for_string_parameter(self, self.names.parameter(what))


class Osqueue(Deployment):
    """A whole deployment: bucket, functions, HTTP API, schedule, event bus, alarms.

    ``name`` begins the names of everything, so an account has one of it in a region. Raises Misconfigured with the
    field that cannot be deployed.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        name: str,
        settings: DeploymentSettings | None = None,
        assets: Assets | None = None,
    ) -> None:
        region = Stack.of(scope).region
        settings = checked(
            name, settings or DeploymentSettings(), None if Token.is_unresolved(region) else region
        )
        super().__init__(
            scope, construct_id, name=name, kms_key=settings.kms_key, express_zone=settings.express_zone
        )
        Tags.of(self).add("osqueue", name)
        self.takes_tokens = settings.jwt is not None
        self.storage = Storage(self, "Storage", name=name, settings=settings)
        self._store = self.names.store
        made = Functions(self, "Functions", name=name, settings=settings, assets=assets or packaged())
        made.node.add_dependency(self.storage)
        self.functions, self.layer, self.made = made.functions, made.layer, (made,)
        self.has_bus = settings.events
        if self.has_bus:
            bus = Bus(self, "Bus", name=name, settings=settings)
            made.node.add_dependency(bus)
            self.event_bus = bus.bus
        self.api = HttpApi(self, "HttpApi", name=name, settings=settings, functions=made.targets)
        self.api_id, self.endpoint = self.api.api.ref, self.api.endpoint
        ReaperSchedule(self, "ReaperSchedule", name=name, functions=made.targets)
        if settings.endpoints is not None:
            VpcEndpoints(self, "VpcEndpoints", settings=settings)
        self.operations = Operations(self, "Operations", name=name, settings=settings, api_id=self.api_id)

    @staticmethod
    def from_name(
        scope: Construct,
        construct_id: str,
        name: str,
        *,
        kms_key: str | None = None,
        express_zone: str | None = None,
    ) -> Deployment:
        """One that is there already, in this account and region. No stack imports another one's outputs for it."""
        return Deployment(scope, construct_id, name=name, kms_key=kms_key, express_zone=express_zone)
