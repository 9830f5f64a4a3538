"""What all buckets here have in common."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from constructs import Construct

UPLOADS_KEPT_DAYS = 1
TLS_MIN = 1.2


def private_bucket(
    scope: Construct,
    title: str,
    rules: Sequence[s3.LifecycleRule],
    kms_key: str | None,
    bucket_name: str | None = None,
    stays: bool = True,
) -> s3.Bucket:
    """A bucket that is not public, encrypted, reached over TLS alone, not versioned, and mostly outlives its stack.

    With a key of KMS, S3 asks for it once for many objects (a bucket key): KMS charges by the request.
    ``bucket_name`` is one of the account's own namespace (``names.Names.bucket``).
    """
    key = None if kms_key is None else kms.Key.from_key_arn(scope, f"{title}Key", kms_key)
    bucket = s3.Bucket(
        scope,
        title,
        bucket_name=bucket_name,
        block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
        object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
        encryption=s3.BucketEncryption.S3_MANAGED if key is None else s3.BucketEncryption.KMS,
        encryption_key=key,
        bucket_key_enabled=None if key is None else True,
        enforce_ssl=True,
        minimum_tls_version=TLS_MIN,
        versioned=False,
        removal_policy=RemovalPolicy.RETAIN if stays else RemovalPolicy.DESTROY,
        lifecycle_rules=[
            s3.LifecycleRule(
                id="end-abandoned-uploads",
                abort_incomplete_multipart_upload_after=Duration.days(UPLOADS_KEPT_DAYS),
            ),
            *rules,
        ],
    )
    if bucket_name is not None:
        resource = bucket.node.default_child
        assert isinstance(resource, s3.CfnBucket)
        # The bucket's own construct takes this with a prefix only, of which nobody could tell the name from.
        resource.bucket_namespace = "account-regional"
    return bucket


def use_of_key(kms_key: str) -> iam.PolicyStatement:
    """Leave for a role to have S3 read and write what the key encrypts."""
    return iam.PolicyStatement(sid="Key", actions=["kms:Decrypt", "kms:GenerateDataKey"], resources=[kms_key])
