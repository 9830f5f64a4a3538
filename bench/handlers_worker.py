"""One process of ``bench.handlers``: imports a handler, calls it once, then again and again, and prints the CPU.

It stands for the runtime: what that has loaded and set up before it loads a handler is there before the clock starts.
"""

from __future__ import annotations

import importlib.util
import io
import json
import os
import sys
import time
from types import SimpleNamespace
from typing import Any

CONTEXT = SimpleNamespace(
    aws_request_id="1-2-3",
    function_name="bench",
    memory_limit_in_mb=1024,
    invoked_function_arn="arn:aws:lambda:eu-west-1:123456789012:function:bench",
    function_version="1",
    get_remaining_time_in_millis=lambda: 25_000,
)


def event(path: str, body: object) -> dict[str, Any]:
    """What the gateway sends."""
    return {
        "version": "2.0",
        "routeKey": f"POST /v1/queues/{{queue}}/{path}",
        "rawPath": f"/v1/queues/bench/{path}",
        "rawQueryString": "",
        "headers": {"content-type": "application/json"},
        "requestContext": {
            "http": {"method": "POST", "path": f"/v1/queues/bench/{path}"},
            "requestId": "r",
            "timeEpoch": int(time.time() * 1000),
        },
        "pathParameters": {"queue": "bench"},
        "body": json.dumps(body),
        "isBase64Encoded": False,
    }


def loaded(path: str) -> Any:
    """The handler of a file."""
    spec = importlib.util.spec_from_file_location("handler", path)
    assert spec is not None, path
    assert spec.loader is not None, path
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.handler


def called(handler: Any, path: str, body: object) -> Any:
    found = handler(event(path, body), CONTEXT)
    assert found["statusCode"] == 200, found
    return json.loads(found["body"])


def main(kind: str, path: str, calls: int) -> dict[str, float]:
    """CPU milliseconds: of the import with the first call, and of each call afterwards."""
    job = {"payload": {"to": "ada"}}
    begun = time.process_time()
    handler = loaded(path)
    called(handler, "jobs", job) if kind == "enqueue" else called(handler, "claims", {"worker": "bench"})
    cold = time.process_time() - begun
    if kind == "enqueue":
        begun = time.process_time()
        for _ in range(calls):
            called(handler, "jobs", job)
        return {"cold enqueue": cold * 1000, "enqueue": (time.process_time() - begun) * 1000 / calls}
    from osqueue import Queue

    with Queue.connect(os.environ["OSQUEUE_STORE"], "bench") as queue:
        queue.enqueue_many([job for _ in range(calls)])
    complete = loaded(path.replace("/claim/", "/complete/"))
    claiming = completing = 0.0
    for _ in range(calls):
        begun = time.process_time()
        (lease,) = called(handler, "claims", {"worker": "bench"})["jobs"]
        claiming += time.process_time() - begun
        held = {"job_id": lease["job_id"], "token": lease["token"], "result": 1}
        begun = time.process_time()
        called(complete, "completions", {"completions": [held]})
        completing += time.process_time() - begun
    return {
        "cold claim": cold * 1000,
        "claim": claiming * 1000 / calls,
        "complete": completing * 1000 / calls,
    }


if __name__ == "__main__":
    from awslambdaric import bootstrap
    from awslambdaric.lambda_runtime_log_utils import LogFormat

    bootstrap._setup_logging(LogFormat.JSON, "INFO", bootstrap.StandardLogSink())
    out, sys.stdout = sys.stdout, io.StringIO()  # lines of logs and metrics are made, and go nowhere
    figures = main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
    print(json.dumps(figures), file=out)
