"""The configuration of one environment: read from the environments' map and a local file, checked, and frozen."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from osqueue.contract.functions import BY_NAME as FUNCTIONS

from .environments import ENVIRONMENTS

# Entries that a clone keeps to itself: git ignores the file.
LOCAL = Path(__file__).resolve().parents[1] / "environments.local.json"

# What CloudWatch Logs takes.
LOG_DAYS = (
    1,
    3,
    5,
    7,
    14,
    30,
    60,
    90,
    120,
    150,
    180,
    365,
    400,
    545,
    731,
    1096,
    1827,
    2192,
    2557,
    2922,
    3288,
    3653,
)

Positive = Annotated[int, Meta(ge=1)]
Region = Annotated[str, Meta(pattern=r"^[a-z]{2}(-[a-z]+)+-[0-9]\Z")]
DomainName = Annotated[str, Meta(pattern=r"^[a-z0-9-]+(\.[a-z0-9-]+)+\Z")]
Share = Annotated[float, Meta(gt=0, le=1)]


class Misconfigured(Exception):
    """The environments' map or the command line asks for something that cannot be deployed."""


class _Part(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of everything in the map."""


class Jwt(_Part, frozen=True, kw_only=True):
    """Callers bring a token of this issuer instead of an AWS signature."""

    # Its /.well-known/openid-configuration is read.
    issuer: Annotated[str, Meta(pattern=r"^https://[^/\s]+\S*\Z")]
    audience: Annotated[tuple[str, ...], Meta(min_length=1)]


class Cors(_Part, frozen=True, kw_only=True):
    """Pages of these origins may call the API from a browser."""

    # "*" is every page; a signature or token is asked for all the same.
    origins: Annotated[
        tuple[Annotated[str, Meta(pattern=r"^(\*|https?://[^/\s]+)\Z")], ...], Meta(min_length=1)
    ]
    max_age_s: Annotated[int, Meta(ge=0, le=86_400)] = 3_600  # how long a browser remembers this


class Domain(_Part, frozen=True, kw_only=True):
    """A name of your own for the API."""

    name: DomainName
    # Of AWS Certificate Manager, for this name, in the region of the environment.
    certificate: Annotated[str, Meta(pattern=r"^arn:aws[a-z-]*:acm:[a-z0-9-]+:[0-9]{12}:certificate/\S+\Z")]
    # The hosted zone of Route 53 that gets the record; None: you write the record.
    zone: Annotated[str, Meta(pattern=r"^Z[A-Z0-9]+\Z")] | None = None


class RequestLimit(_Part, frozen=True, kw_only=True):
    """What the gateway lets through; the rest is answered 429."""

    rate: Positive = 200  # requests a second
    burst: Positive = 400  # requests at once


class ArchiveTiering(_Part, frozen=True, kw_only=True):
    """When parts of the archive move to cheaper storage. Both classes still answer at once."""

    infrequent_days: Annotated[int, Meta(ge=30)] | None = 30  # S3 takes nothing younger
    glacier_days: Annotated[int, Meta(ge=60)] | None = 180  # Glacier Instant Retrieval


class Pipeline(_Part, frozen=True, kw_only=True):
    """The Spark pipeline, once an hour: it costs money whether there are jobs or not, so it is there when asked for."""

    executors: Annotated[int, Meta(ge=1, le=100)] = 4  # at most, beside the driver; each has 2 vCPU and 8 GB
    hours: Annotated[int, Meta(ge=1, le=48)] = 6  # archived hours that each run compacts anew
    days: Annotated[int, Meta(ge=1, le=92)] = 7  # days that each run measures anew and reports


class Alarms(_Part, frozen=True, kw_only=True):
    """When somebody is told."""

    oldest_s: Positive = 900  # a job has been claimable for so long
    dead: Positive = 1  # dead letters that one queue holds
    errors: Positive = 5  # failed invocations of one function, or answers of 5xx, within five minutes
    conflict_share: Share = 0.5  # of commits that lost their race, over fifteen minutes
    pipeline_hours: Annotated[int, Meta(ge=2, le=24)] = 3  # without a run of the pipeline that ended well
    emails: tuple[Annotated[str, Meta(pattern=r"^[^@\s]+@[^@\s]+\Z")], ...] = ()  # told by the topic
    # A topic of yours that hears of alarms as well: what leads to a chat or a pager.
    topic: Annotated[str, Meta(pattern=r"^arn:aws[a-z-]*:sns:[a-z0-9-]+:[0-9]{12}:[\w-]+\Z")] | None = None

    @property
    def reach_somebody(self) -> bool:
        """Whether anybody is told."""
        return bool(self.emails) or self.topic is not None


class Config(_Part, frozen=True, kw_only=True):
    """One environment."""

    name: Annotated[str, Meta(pattern=r"^[a-z][a-z0-9-]{0,15}\Z")]
    account: Annotated[str, Meta(pattern=r"^[0-9]{12}\Z")] | None = None  # None: that of the credentials
    region: Region | None = None  # None: likewise
    jwt: Jwt | None = None  # None: requests are signed with AWS credentials (IAM)
    cors: Cors | None = None  # None: no page in a browser may call
    domain: Domain | None = None  # None: the name that the gateway gives
    # What the buckets are encrypted with; None: keys of S3.
    kms_key: Annotated[str, Meta(pattern=r"^arn:aws[a-z-]*:kms:[a-z0-9-]+:[0-9]{12}:key/[\w-]+\Z")] | None = (
        None
    )
    throttle: RequestLimit = RequestLimit()
    concurrency: dict[str, Annotated[int, Meta(ge=1)]] = {}  # reserved for a function, by its name
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    log_days: int = 30  # how long logs are kept
    events: bool = True  # a bus that is told of every transition
    events_archive_days: Positive | None = None  # how long the bus keeps what it was told
    archive: ArchiveTiering = ArchiveTiering()
    pipeline: Pipeline | None = None  # None: there is none
    alarms: Alarms = Alarms()
    queues_removable: bool = (
        False  # heads may be deleted, as 'osqueue queue rm' does: for as long as that takes
    )
    protected: bool = False  # CloudFormation refuses to delete the stacks, and alarms have to reach somebody

    @property
    def prefix(self) -> str:
        """Begins the names of everything deployed: ``lambda://osqueue-dev`` finds the functions by it."""
        return f"osqueue-{self.name}"


def environments(local: Path = LOCAL) -> dict[str, Mapping[str, Any]]:
    """The map, and what the local file adds: new environments, and keys in place of those that the map gives.

    Raises Misconfigured where the file is not a JSON object of objects.
    """
    known: dict[str, Mapping[str, Any]] = {**ENVIRONMENTS}
    if not local.exists():
        return known
    try:
        added = json.loads(local.read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        raise Misconfigured(f"{local.name}: not readable as JSON: {error}") from None
    if not isinstance(added, dict):
        raise Misconfigured(f'{local.name}: write an object of environments: {{"dev": {{…}}}}')
    for name, entry in added.items():
        if not isinstance(entry, dict):
            raise Misconfigured(
                f"{local.name}: {name}: its entry is no object of keys. Write {{}} for the defaults"
            )
        known[name] = {**known.get(name, {}), **entry}
    return known


def load(name: object, among: Mapping[str, Mapping[str, Any]] = ENVIRONMENTS) -> Config:
    """The configuration of an environment. Raises Misconfigured: what is wrong, and what is known."""
    known = ", ".join(among)
    if not isinstance(name, str) or not name:
        raise Misconfigured(f"no environment named: cdk deploy -c env=NAME, one of {known}")
    if name not in among:
        raise Misconfigured(f"env: there is no environment {name!r}; known are {known}")
    given = among[name]
    if not isinstance(given, Mapping):
        raise Misconfigured(f"environment {name}: its entry is no map of keys. Write {{}} for the defaults")
    _check_names(given, Config, name)
    try:
        config = msgspec.convert({"name": name, **given}, Config)
    except msgspec.ValidationError as error:
        raise Misconfigured(f"environment {name}: {_placed(error)}") from None
    _check_values(config)
    return config


def _check_names(given: Mapping[str, Any], kind: type[Struct], place: str) -> None:
    """Refuse unknown keys with the known ones: msgspec names the key alone."""
    fields = {field.name: field for field in msgspec.structs.fields(kind)}
    if kind is Config:
        del fields["name"]  # that of the entry
    for key, value in given.items():
        if key not in fields:
            known = ", ".join(fields)
            raise Misconfigured(f"environment {place}: unknown key {key!r}; known are {known}")
        part = next((each for each in _parts(fields[key].type)), None)
        if part is not None and isinstance(value, Mapping):
            _check_names(value, part, f"{place}, {key}")


def _parts(kind: Any) -> list[type[Struct]]:
    """The structs that a field may hold."""
    members = getattr(kind, "__args__", (kind,))
    return [each for each in members if isinstance(each, type) and issubclass(each, _Part)]


def _placed(error: msgspec.ValidationError) -> str:
    """msgspec's sentence with the field in front."""
    what, _, where = str(error).partition(" - at `$")
    return f"{where.strip('`').lstrip('.')}: {what}" if where else what


def _check_values(config: Config) -> None:
    place = f"environment {config.name}"
    if config.log_days not in LOG_DAYS:
        raise Misconfigured(
            f"{place}: log_days: {config.log_days} is none of {', '.join(map(str, LOG_DAYS))}"
        )
    for function in config.concurrency:
        if function not in FUNCTIONS:
            raise Misconfigured(
                f"{place}: concurrency: there is no function {function!r}; known are {', '.join(FUNCTIONS)}"
            )
    emails = config.alarms.emails
    if twice := sorted({each for each in emails if emails.count(each) > 1}):
        raise Misconfigured(f"{place}: alarms.emails: {', '.join(twice)} stands there more than once")
    if config.protected and not config.alarms.reach_somebody:
        raise Misconfigured(
            f"{place}: alarms.emails: alarms reach nobody, and the environment is protected. Name whom they tell "
            f'in {LOCAL.name}: {{"{config.name}": {{"alarms": {{"emails": ["you@example.com"]}}}}}}; or an SNS topic '
            "of yours as alarms.topic"
        )
    _check_places(config)
    if config.events_archive_days is not None and not config.events:
        raise Misconfigured(f"{place}: events_archive_days: there is no bus; set events to true")
    young, old = config.archive.infrequent_days, config.archive.glacier_days
    if young is not None and old is not None and old < young + 30:
        raise Misconfigured(
            f"{place}: archive.glacier_days: {old} is not 30 days after infrequent_days ({young})"
        )


def _check_places(config: Config) -> None:
    """What is named by an ARN has to lie where the stacks go: CloudFormation would find out late."""
    arns = {
        "kms_key": config.kms_key,
        "domain.certificate": None if config.domain is None else config.domain.certificate,
        "alarms.topic": config.alarms.topic,
    }
    for field, arn in arns.items():
        if arn is not None and config.region not in (None, arn.split(":")[3]):
            raise Misconfigured(
                f"environment {config.name}: {field}: it lies in {arn.split(':')[3]}, and region is {config.region}"
            )
