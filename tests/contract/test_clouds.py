"""A queue on Google Cloud Storage and on Azure: of the contract, what reaches every kind of request of the store."""

from __future__ import annotations

import pytest

from tests.contract import test_purge, test_queue, test_removal

pytestmark = pytest.mark.parametrize("address", ["gs", "az"], indirect=True)

test_a_job_goes_all_the_way = test_queue.test_a_job_goes_all_the_way
test_two_objects_see_one_queue = test_queue.test_two_objects_see_one_queue_and_another_queue_sees_nothing
test_a_stalled_job_comes_back = test_queue.test_a_stalled_job_comes_back_and_its_first_worker_is_too_late
test_a_bulk_is_one_commit = test_queue.test_a_bulk_is_one_commit_in_order_with_delays_lanes_and_large_payloads
test_a_reap_pass_archives_what_is_over = test_queue.test_a_reap_pass_archives_what_is_over
test_large_results_are_wiped = test_purge.test_large_results_are_wiped
test_an_id_is_free_after_a_removal = test_removal.test_an_id_is_free_and_the_results_of_old_jobs_are_not_found
test_a_head_that_comes_back_with_equal_bytes_is_worked_with = (
    test_removal.test_heads_marked_before_the_one_that_changed_are_put_back
)
