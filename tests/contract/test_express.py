"""S3 Express One Zone: stores and queues in a directory bucket, what a walk through one costs, and the stand-in for it.

Of the stores' contract those rules are run that ask a directory bucket for something else than any bucket.
"""

from __future__ import annotations

from collections.abc import Callable

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from osqueue.stores.base import Store
from osqueue.stores.s3 import S3Store
from osqueue.stores.s3_boto import BotoStore
from osqueue.testing.store_contract.listing import ListingRules
from osqueue.testing.store_contract.opening import StoreOpener
from osqueue.testing.store_contract.writing import WritingRules
from tests.contract import test_purge, test_queue
from tests.support import express_server


class TestDirectoryBuckets(ListingRules, WritingRules, StoreOpener):
    """What is written there is listed in order, whatever the order in which the bucket lists."""

    @pytest.fixture
    def open_store(self, directory_bucket: str) -> Callable[[], Store]:
        return lambda: S3Store(directory_bucket, "some/prefix")


class TestDirectoryBucketsThroughBoto(StoreOpener):
    """Pages through boto3, which children of a fork use."""

    test_a_listing_starts_behind_the_key_named = ListingRules.test_a_listing_starts_behind_the_key_named
    test_pages_join_to_the_whole_listing = ListingRules.test_pages_join_to_the_whole_listing

    @pytest.fixture
    def open_store(self, directory_bucket: str) -> Callable[[], Store]:
        return lambda: BotoStore(boto3.Session(), directory_bucket, "some/prefix")


@pytest.mark.parametrize("address", ["s3-express"], indirect=True)
class TestAQueueInADirectoryBucket:
    """A mark of the class, which leaves the functions as the other modules collect them."""

    test_a_job_goes_all_the_way = staticmethod(test_queue.test_a_job_goes_all_the_way)
    test_two_objects_see_one_queue = staticmethod(
        test_queue.test_two_objects_see_one_queue_and_another_queue_sees_nothing
    )
    test_a_stalled_job_comes_back = staticmethod(
        test_queue.test_a_stalled_job_comes_back_and_its_first_worker_is_too_late
    )
    test_a_bulk_is_one_commit = staticmethod(
        test_queue.test_a_bulk_is_one_commit_in_order_with_delays_lanes_and_large_payloads
    )


@pytest.mark.parametrize("address", ["s3-express", "s3-express-archive"], indirect=True)
class TestAQueueWithAnArchiveElsewhere:
    """A directory bucket beside which the archive may be in another bucket."""

    test_a_reap_pass_archives_what_is_over = staticmethod(test_queue.test_a_reap_pass_archives_what_is_over)
    test_large_results_are_wiped = staticmethod(test_purge.test_large_results_are_wiped)


# ── The stand-in ─────────────────────────────────────────────────────────────
def test_the_stand_in_refuses_what_a_directory_bucket_refuses(directory_bucket: str) -> None:
    client = boto3.Session().client("s3", region_name=express_server.REGION)
    for number in range(9):
        client.put_object(Bucket=directory_bucket, Key=f"a/{number}")
    listed = client.list_objects_v2(Bucket=directory_bucket, Prefix="a/")
    keys = [each["Key"] for each in listed["Contents"]]
    assert listed["IsTruncated"]
    assert keys != sorted(keys)
    for refused in ({"Prefix": "a"}, {"StartAfter": "a/3"}, {"Delimiter": "-"}):
        with pytest.raises(ClientError):
            client.list_objects_v2(Bucket=directory_bucket, **refused)
    without_a_session = boto3.Session().client(
        "s3",
        region_name=express_server.REGION,
        config=Config(s3={"disable_s3_express_session_auth": True}),
    )
    with pytest.raises(ClientError, match="AccessDenied"):
        without_a_session.get_object(Bucket=directory_bucket, Key="a/1")
