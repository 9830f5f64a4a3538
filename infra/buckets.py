"""What all buckets here have in common."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_s3 as s3
from constructs import Construct

UPLOADS_KEPT_DAYS = 1
TLS_MIN = 1.2


def private_bucket(scope: Construct, name: str, rules: Sequence[s3.LifecycleRule]) -> s3.Bucket:
    """A bucket that is not public, encrypted, reached over TLS alone, not versioned, and outlives its stack."""
    return s3.Bucket(
        scope,
        name,
        block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
        object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
        encryption=s3.BucketEncryption.S3_MANAGED,
        enforce_ssl=True,
        minimum_tls_version=TLS_MIN,
        versioned=False,
        removal_policy=RemovalPolicy.RETAIN,
        lifecycle_rules=[
            s3.LifecycleRule(
                id="end-abandoned-uploads",
                abort_incomplete_multipart_upload_after=Duration.days(UPLOADS_KEPT_DAYS),
            ),
            *rules,
        ],
    )
