"""Does a deployment work? One job goes through its whole life over the API: ``make smoke ENV=dev``.

    python -m infra.smoke --env dev                      looks the address up in the stack's outputs
    python -m infra.smoke --address lambda://osqueue-dev is told an address: also http://127.0.0.1:8787 of `osqueue dev`

It touches no job but its own, whoever else runs it: the queue is ``smoke``, and the job has a kind of its own.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import Any

from osqueue import OsqueueError, Queue
from osqueue.clock import MACHINE
from osqueue_cdk.settings import Misconfigured

from .config import environments, load

QUEUE = "smoke"
WAIT_S = 10.0  # for the job to be claimed
TIMEOUT_S = 60.0  # for each call: functions that have not run yet take seconds to start
RESULT = {"smoke": "passed"}


class SmokeFailed(Exception):
    """A call was answered, and not as it should be."""


def address_of(env: str) -> str:
    """Where the API of an environment is. Raises Misconfigured where there is no such environment, or none deployed."""
    import boto3
    from botocore.exceptions import BotoCoreError, ClientError

    config = load(env, environments())
    stack = f"{config.prefix}-api"
    try:
        client = boto3.client("cloudformation", region_name=config.region)
        (found,) = client.describe_stacks(StackName=stack)["Stacks"]
    except (BotoCoreError, ClientError) as error:
        raise Misconfigured(f"stack {stack} is not found: {error}. Remedy: make deploy ENV={env}") from None
    told = {each["OutputKey"]: each["OutputValue"] for each in found.get("Outputs", ())}
    auth = "&auth=bearer" if config.jwt is not None else ""  # the token is in OSQUEUE_TOKEN
    return f"{told['Endpoint']}?region={client.meta.region_name}{auth}"


def steps(queue: Queue[Any]) -> Iterator[str]:
    """A job's life, and the names of its calls, each once it has been answered well. Raises SmokeFailed."""
    kind = f"smoke-{MACHINE.bits(64):016x}"
    job = queue.enqueue({"smoke": kind}, kind=kind, max_attempts=1)
    yield "enqueue"
    leases = queue.claim(kinds=[kind], wait=WAIT_S)
    if [each.job_id for each in leases] != [job.job_id]:
        raise SmokeFailed(
            f"claim: job {job.job_id} was not handed out within {WAIT_S:g} s. Is queue {QUEUE!r} paused?"
        )
    yield "claim"
    (lease,) = leases
    lease.heartbeat()
    yield "heartbeat"
    lease.complete(RESULT)
    yield "complete"
    if (found := queue.result(lease.job_id)) != RESULT:
        raise SmokeFailed(f"result: job {job.job_id} has {found!r} and not {RESULT!r}")
    yield "result"
    queue.reap()
    yield "reap"


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m infra.smoke", description="Run one job through a deployment."
    )
    place = parser.add_mutually_exclusive_group(required=True)
    place.add_argument("--env", help="an environment that is deployed")
    place.add_argument("--address", help="an address instead: https://, http:// or lambda://")
    asked = parser.parse_args(arguments)
    last = "connect"
    try:
        address = asked.address or address_of(asked.env)
        print(address)
        for last in steps(Queue.connect(address, QUEUE, timeout=TIMEOUT_S)):
            print(f"  {last}: ok")
    except (Misconfigured, SmokeFailed, OsqueueError) as error:
        after = "" if isinstance(error, Misconfigured) else f" (after {last})"
        sys.exit(f"error: {error}{after}")


if __name__ == "__main__":
    main()
