"""CPU of the enqueue function, cold and warm, over handlers by hand with the same library; of claim and complete.

Cold is the import and the first call, in a fresh interpreter that has what the runtime client loads. One handler by
hand does nothing but enqueue, the other one logs as well, with Powertools, as the function does. The store is S3 on
this machine, whose server is another process; then memory, which shows what is ours beside a store's client.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.fleet import ROOT
from bench.row import BenchOptions, Figure, at_most, ratio
from osqueue.contract.functions import BY_NAME, HANDLER
from osqueue.devstack.environment import environment_of
from tests.support.s3_server import ENVIRONMENT, create_bucket, s3_server

TIMES = 9  # processes of each kind and store, in turn
CALLS = {"S3": 100, "memory": 300}
COLD_GOAL, WARM_GOAL = 1.07, 1.13  # over the handler that logs

BY_HAND = """
import json
import os

from osqueue import Queue

queue = Queue.connect(os.environ["OSQUEUE_STORE"], "bench")


def handler(event, context):
    job = queue.enqueue(json.loads(event["body"])["payload"])
    return {"statusCode": 200, "body": json.dumps({"job_id": job.job_id})}
"""
LOGGING = """
import json
import os

from aws_lambda_powertools import Logger
from osqueue import Queue

logger = Logger()
queue = Queue.connect(os.environ["OSQUEUE_STORE"], "bench")


@logger.inject_lambda_context
def handler(event, context):
    job = queue.enqueue(json.loads(event["body"])["payload"])
    logger.info("enqueued", extra={"job_id": job.job_id, "queue": "bench"})
    return {"statusCode": 200, "body": json.dumps({"job_id": job.job_id})}
"""


def run(options: BenchOptions) -> Iterator[Figure]:
    with s3_server() as endpoint:
        create_bucket(endpoint, "bench")
        yield from compared(options, "S3", f"s3://bench/jobs?endpoint={endpoint}&region=us-east-1")
    yield from compared(options, "memory", "memory://bench")


def compared(options: BenchOptions, store: str, address: str) -> Iterator[Figure]:
    """The figures of one store."""
    times = max(3, int(TIMES * options.scale))
    calls = max(30, int(CALLS[store] * options.scale))
    with TemporaryDirectory(prefix="osqueue-bench-") as folder:
        paths = {
            "by hand": Path(folder) / "by_hand.py",
            "by hand, logging": Path(folder) / "logging_too.py",
            "the function": ROOT / "functions/enqueue/handler.py",
        }
        paths["by hand"].write_text(BY_HAND)
        paths["by hand, logging"].write_text(LOGGING)
        took: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
        for _ in range(times):
            for name, path in paths.items():
                for what, ms in measured("enqueue", path, calls, address).items():
                    took[what, name].append(ms)
            for what, ms in measured("claim", ROOT / "functions/claim/handler.py", calls, address).items():
                took[what, "the function"].append(ms)
    # The rest of a machine only ever adds to the time of a processor, so the least is nearest to what it takes.
    least = {key: min(values) for key, values in took.items()}
    for (what, name), ms in least.items():
        median = statistics.median(took[what, name])
        yield Figure(
            f"{store}: {what}, {name}",
            ms,
            "ms",
            note=f"CPU, least of {len(took[what, name])}; median {median:.2f}",
        )
    for what, goal in (("cold enqueue", COLD_GOAL), ("enqueue", WARM_GOAL)):
        ours = least[what, "the function"]
        logging = ratio(ours, least[what, "by hand, logging"])
        if store == "S3":
            yield at_most(f"{store}: {what}, over the one that logs", logging, goal)
        else:
            yield Figure(f"{store}: {what}, over the one that logs", logging, "x")
        yield Figure(f"{store}: {what}, over the one that does not", ratio(ours, least[what, "by hand"]), "x")


def measured(kind: str, path: Path, calls: int, address: str) -> dict[str, float]:
    """What one process of ``bench.handlers_worker`` says."""
    environment = environment_of(BY_NAME[kind], "osqueue-dev", address, path.parent, HANDLER) | ENVIRONMENT
    environment["PYTHONPATH"] = os.pathsep.join((str(ROOT / "layers/osqueue/python"), str(ROOT)))
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    answer = subprocess.run(
        [sys.executable, "-m", "bench.handlers_worker", kind, str(path), str(calls)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return {str(name): float(ms) for name, ms in json.loads(answer.stdout.splitlines()[-1]).items()}
