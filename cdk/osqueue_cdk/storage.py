"""The bucket: all state of an environment, and what nobody may do to it.

**Not versioned.** Each commit replaces a head of up to some hundred kilobytes; with versions, ten commits a second
would keep tens of gigabytes a day of heads that nobody reads, and erased payloads would live on in old versions.
Instead the reaper copies every head once an hour (``osqueue doctor --restore``).

**Lifecycle rules** run whatever a bucket policy says, so there is none for heads, ids, segments, bodies and tables. One
removes announcements (intents) that nobody has looked at for a week, though the reaper applies and deletes them once a
minute; one ends abandoned multipart uploads (osqueue makes none); one moves the archive to cheaper storage.

**With a zone** a directory bucket holds everything but the archive and the backups, which outlive the zone. Its policy
knows sessions and no keys, so nothing at S3 keeps its heads from being written without a condition, or deleted. It has
no lifecycle rule: that would want a policy for S3's own service, and the reaper deletes announcements anyway.
"""

from __future__ import annotations

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_s3express as s3express
from aws_cdk import aws_ssm as ssm
from constructs import Construct

from .access import ARCHIVE, HEADS, INTENTS
from .acknowledged import because
from .buckets import private_bucket
from .names import STORE, Names
from .settings import ArchiveTiering, DeploymentSettings

INTENTS_KEPT_DAYS = 7  # a request is answered within a day at most; its announcement is of no use then


class Storage(Construct):
    """The bucket and its policy. It outlives the stack: deleting queues takes a decision of its own."""

    def __init__(
        self, scope: Construct, construct_id: str, *, name: str, settings: DeploymentSettings
    ) -> None:
        super().__init__(scope, construct_id)
        names = Names(self, name, settings.express_zone)
        self.bucket = private_bucket(
            self,
            "Bucket",
            [
                s3.LifecycleRule(
                    id="drop-old-announcements",
                    prefix=INTENTS.removesuffix("*"),
                    expiration=Duration.days(INTENTS_KEPT_DAYS),
                ),
                *_archive_rules(settings.archive),
            ],
            settings.kms_key,
            names.bucket,
            settings.bucket_stays,
        )
        if settings.express_zone is not None:
            self._directory_bucket(names, settings, settings.express_zone)
        ssm.StringParameter(
            self,
            "Address",
            parameter_name=names.parameter(STORE),
            string_value=names.store,
            description=f"osqueue {name}: the address of the store, for whoever works in it",
        )
        heads = self.bucket.arn_for_objects(HEADS)
        self._deny(
            "HeadsChangeByCompareAndSwapOnly",
            [
                "s3:PutObject"
            ],  # also the right to copy, and to begin a multipart upload, which has no condition
            heads,
            {"Null": {"s3:if-match": "true", "s3:if-none-match": "true"}},
        )
        if not settings.queues_removable:
            self._deny("HeadsAreNeverDeleted", ["s3:DeleteObject", "s3:DeleteObjectVersion"], heads)
        because(
            self.bucket,
            "AwsSolutions-S1",
            "Server access logs would double the cost of small requests. Who called what is in the API's access log; "
            "for the bucket itself, CloudTrail data events can be switched on (docs/security.md).",
        )

    def _directory_bucket(self, names: Names, settings: DeploymentSettings, zone: str) -> None:
        directory = s3express.CfnDirectoryBucket
        encryption = None
        if settings.kms_key is not None:
            by = directory.ServerSideEncryptionByDefaultProperty(
                sse_algorithm="aws:kms", kms_master_key_id=settings.kms_key
            )
            rule = directory.ServerSideEncryptionRuleProperty(
                bucket_key_enabled=True, server_side_encryption_by_default=by
            )
            encryption = directory.BucketEncryptionProperty(server_side_encryption_configuration=[rule])
        made = directory(
            self,
            "DirectoryBucket",
            bucket_name=names.directory_bucket,
            data_redundancy="SingleAvailabilityZone",
            location_name=zone,
            bucket_encryption=encryption,
        )
        made.apply_removal_policy(RemovalPolicy.RETAIN if settings.bucket_stays else RemovalPolicy.DESTROY)

    def _deny(
        self, sid: str, actions: list[str], resource: str, conditions: dict[str, dict[str, str]] | None = None
    ) -> None:
        self.bucket.add_to_resource_policy(
            iam.PolicyStatement(
                sid=sid,
                effect=iam.Effect.DENY,
                principals=[iam.AnyPrincipal()],
                actions=actions,
                resources=[resource],
                conditions=conditions,
            )
        )


def _archive_rules(archive: ArchiveTiering) -> list[s3.LifecycleRule]:
    """Both classes answer at once, as history and purging need. S3 leaves objects under 128 KB where they are."""
    wished = {
        archive.infrequent_days: s3.StorageClass.INFREQUENT_ACCESS,
        archive.glacier_days: s3.StorageClass.GLACIER_INSTANT_RETRIEVAL,
    }
    moves = [
        s3.Transition(storage_class=kind, transition_after=Duration.days(days))
        for days, kind in wished.items()
        if days is not None
    ]
    if not moves:
        return []
    return [s3.LifecycleRule(id="move-the-archive", prefix=ARCHIVE.removesuffix("*"), transitions=moves)]
