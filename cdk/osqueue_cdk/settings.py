"""What a deployment may be asked for: structs with their bounds, checked before anything is made of them."""

from __future__ import annotations

from typing import Annotated, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct

from osqueue import limits
from osqueue.contract.functions import BY_NAME as FUNCTIONS

# What CloudWatch Logs takes.
LOG_DAYS = (
    *(1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731),
    *(1096, 1827, 2192, 2557, 2922, 3288, 3653),
)

Name = Annotated[str, Meta(pattern=r"^[a-z][a-z0-9-]{0,15}\Z")]  # of a deployment
Positive = Annotated[int, Meta(ge=1)]
DomainName = Annotated[str, Meta(pattern=r"^[a-z0-9-]+(\.[a-z0-9-]+)+\Z")]
Share = Annotated[float, Meta(gt=0, le=1)]
KeyArn = Annotated[str, Meta(pattern=r"^arn:aws[a-z-]*:kms:[a-z0-9-]+:[0-9]{12}:key/[\w-]+\Z")]

S = TypeVar("S", bound=Struct)


class Misconfigured(Exception):
    """Something is asked for that cannot be deployed."""


class Part(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of everything that can be set."""


class Jwt(Part, frozen=True, kw_only=True):
    """Callers bring a token of this issuer instead of an AWS signature."""

    # Its /.well-known/openid-configuration is read.
    issuer: Annotated[str, Meta(pattern=r"^https://[^/\s]+\S*\Z")]
    audience: Annotated[tuple[str, ...], Meta(min_length=1)]
    # What scopes of ours begin with: then a token may do what its scopes say of which queues. None: everything.
    scopes: Annotated[str, Meta(pattern=r"^[\x21\x23-\x5B\x5D-\x7E]+\Z")] | None = None


class Cors(Part, frozen=True, kw_only=True):
    """Pages of these origins may call the API from a browser."""

    # "*" is every page; a signature or token is asked for all the same.
    origins: Annotated[
        tuple[Annotated[str, Meta(pattern=r"^(\*|https?://[^/\s]+)\Z")], ...], Meta(min_length=1)
    ]
    max_age_s: Annotated[int, Meta(ge=0, le=86_400)] = 3_600  # how long a browser remembers this


class Domain(Part, frozen=True, kw_only=True):
    """A name of your own for the API."""

    name: DomainName
    # Of AWS Certificate Manager, for this name, in the region of the deployment.
    certificate: Annotated[str, Meta(pattern=r"^arn:aws[a-z-]*:acm:[a-z0-9-]+:[0-9]{12}:certificate/\S+\Z")]
    # The hosted zone of Route 53 that gets the record; None: you write the record.
    zone: Annotated[str, Meta(pattern=r"^Z[A-Z0-9]+\Z")] | None = None


class Endpoints(Part, frozen=True, kw_only=True):
    """Ways to the bucket and to the functions from a VPC of yours that has none to the internet."""

    vpc: Annotated[str, Meta(pattern=r"^vpc-[0-9a-f]+\Z")]
    # Of the subnets that are to reach the bucket: by a gateway endpoint, which costs nothing.
    route_tables: tuple[Annotated[str, Meta(pattern=r"^rtb-[0-9a-f]+\Z")], ...] = ()
    # Where the functions are to be invoked from: an interface endpoint in each, which is paid for by the hour.
    subnets: tuple[Annotated[str, Meta(pattern=r"^subnet-[0-9a-f]+\Z")], ...] = ()
    # Of the interface endpoint: they let port 443 in.
    security_groups: tuple[Annotated[str, Meta(pattern=r"^sg-[0-9a-f]+\Z")], ...] = ()


class Canary(Part, frozen=True, kw_only=True):
    """New code of the functions gets a tenth of the calls first, and none where these fail."""

    minutes: Literal[5, 10, 15, 30] = 5  # until it gets all of them
    errors: Positive = (
        1  # of a function's invocations, within a minute, after which the old code takes over again
    )


class RequestLimit(Part, frozen=True, kw_only=True):
    """What the gateway lets through; the rest is answered 429."""

    rate: Positive = 200  # requests a second
    burst: Positive = 400  # requests at once


class ArchiveTiering(Part, frozen=True, kw_only=True):
    """When parts of the archive move to cheaper storage. Both classes still answer at once."""

    infrequent_days: Annotated[int, Meta(ge=30)] | None = 30  # S3 takes nothing younger
    glacier_days: Annotated[int, Meta(ge=60)] | None = 180  # Glacier Instant Retrieval


class Alarms(Part, frozen=True, kw_only=True):
    """When somebody is told."""

    oldest_s: Positive = 900  # a job has been claimable for so long
    dead: Positive = 1  # jobs that become dead letters within five minutes, in all queues
    error_share: Share = 0.01  # of requests or invocations that fail or are refused, within five minutes
    errors: Positive = 5  # below so many of them a share says nothing
    conflict_share: Share = 0.5  # of commits that lost their race, over fifteen minutes
    emails: tuple[Annotated[str, Meta(pattern=r"^[^@\s]+@[^@\s]+\Z")], ...] = ()  # told by the topic
    # A topic of yours that hears of alarms as well, and of their end: what leads to a chat or a pager.
    topic: Annotated[str, Meta(pattern=r"^arn:aws[a-z-]*:sns:[a-z0-9-]+:[0-9]{12}:[\w-]+\Z")] | None = None

    @property
    def reach_somebody(self) -> bool:
        """Whether anybody is told."""
        return bool(self.emails) or self.topic is not None


class DeploymentSettings(Part, frozen=True, kw_only=True):
    """What is special about one deployment. What is left out has its default."""

    jwt: Jwt | None = None  # None: requests are signed with AWS credentials (IAM)
    cors: Cors | None = None  # None: no page in a browser may call
    domain: Domain | None = None  # None: the name that the gateway gives
    endpoints: Endpoints | None = None  # None: what runs in a VPC has its own ways
    # A directory bucket of this zone holds what changes often: commits in single-digit milliseconds. None: one bucket.
    express_zone: Annotated[str, Meta(pattern=r"^[a-z0-9]+-az[0-9]+\Z")] | None = None
    kms_key: KeyArn | None = None  # what the bucket is encrypted with; None: keys of S3
    logs_kms_key: KeyArn | None = None  # what logs are encrypted with; None: keys of CloudWatch
    topic_kms_key: KeyArn | None = None  # what the alarms' topic is encrypted with; None: nothing
    throttle: RequestLimit = RequestLimit()
    concurrency: dict[str, Positive] = {}  # reserved for a function, by its name
    # How long an operation waits for those of other requests of its environment, to share a commit.
    window_s: Annotated[float, Meta(ge=0, le=limits.WINDOW_MS_MAX / 1000)] = 0.0
    canary: Canary | None = None  # None: new code gets all calls at once
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    log_days: int = 30  # how long logs are kept
    tracing: bool = False  # X-Ray samples what the functions do
    events: bool = True  # a bus that is told of every transition
    events_archive_days: Positive | None = None  # how long the bus keeps what it was told
    archive: ArchiveTiering = ArchiveTiering()
    alarms: Alarms = Alarms()
    # Heads may be deleted, as 'osqueue queue rm' does: for as long as that takes.
    queues_removable: bool = False
    bucket_stays: bool = True  # when its stack is deleted; False: CloudFormation deletes it, if it is empty
    # Alarms have to reach somebody, and logs outlive their stack.
    protected: bool = False


def checked(name: str, settings: DeploymentSettings, region: str | None) -> DeploymentSettings:
    """DeploymentSettings that were made in Python, all bounds held. Raises Misconfigured with the field.

    ``region`` is None where it is not known before the deployment.
    """
    converted({"name": name}, _Named)
    same = converted(msgspec.to_builtins(settings), DeploymentSettings)
    check(same, region)
    return same


class _Named(Part, frozen=True, kw_only=True):
    name: Name


def converted(given: object, kind: type[S]) -> S:
    """Plain data as a struct. Raises Misconfigured with the field in front of msgspec's sentence."""
    try:
        return msgspec.convert(given, kind)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `$")
        raise Misconfigured(f"{where.strip('`').lstrip('.')}: {what}" if where else what) from None


def check(settings: DeploymentSettings, region: str | None) -> None:
    """Refuse what no single field shows to be wrong. Raises Misconfigured with the field."""
    if settings.log_days not in LOG_DAYS:
        raise Misconfigured(f"log_days: {settings.log_days} is none of {', '.join(map(str, LOG_DAYS))}")
    for function in settings.concurrency:
        if function not in FUNCTIONS:
            raise Misconfigured(
                f"concurrency: there is no function {function!r}; known are {', '.join(FUNCTIONS)}"
            )
    emails = settings.alarms.emails
    if twice := sorted({each for each in emails if emails.count(each) > 1}):
        raise Misconfigured(f"alarms.emails: {', '.join(twice)} stands there more than once")
    if settings.protected and not settings.alarms.reach_somebody:
        raise Misconfigured(
            "alarms.emails: alarms reach nobody, and the deployment is protected. Name whom they tell, or an SNS"
            " topic of yours as alarms.topic"
        )
    _check_places(settings, region)
    _check_removal(settings)
    _check_endpoints(settings.endpoints)
    if settings.events_archive_days is not None and not settings.events:
        raise Misconfigured("events_archive_days: there is no bus; set events to true")
    young, old = settings.archive.infrequent_days, settings.archive.glacier_days
    if young is not None and old is not None and old < young + 30:
        raise Misconfigured(f"archive.glacier_days: {old} is not 30 days after infrequent_days ({young})")


def _check_removal(settings: DeploymentSettings) -> None:
    if settings.bucket_stays:
        return
    if settings.protected:
        raise Misconfigured(
            "bucket_stays: the deployment is protected, and its bucket with it. Set one of them"
        )
    if not settings.queues_removable:
        raise Misconfigured(
            "bucket_stays: only an empty bucket can be deleted, and heads cannot be. Set queues_removable to true as"
            " well"
        )


def _check_endpoints(endpoints: Endpoints | None) -> None:
    if endpoints is None:
        return
    if not endpoints.route_tables and not endpoints.subnets:
        raise Misconfigured(
            "endpoints: name route_tables for a way to the bucket, subnets and security_groups for one to the"
            " functions, or both"
        )
    if bool(endpoints.subnets) != bool(endpoints.security_groups):
        raise Misconfigured(
            "endpoints: subnets and security_groups belong to one endpoint. Name both, or neither"
        )


def _check_places(settings: DeploymentSettings, region: str | None) -> None:
    """What is named by an ARN has to lie where the stacks go: CloudFormation would find out late."""
    arns = {
        "kms_key": settings.kms_key,
        "logs_kms_key": settings.logs_kms_key,
        "topic_kms_key": settings.topic_kms_key,
        "domain.certificate": None if settings.domain is None else settings.domain.certificate,
        "alarms.topic": settings.alarms.topic,
    }
    for field, arn in arns.items():
        if arn is not None and region not in (None, arn.split(":")[3]):
            raise Misconfigured(f"{field}: it lies in {arn.split(':')[3]}, and region is {region}")
