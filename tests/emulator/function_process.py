"""One execution environment of a function: reads invocations, a JSON line each, and writes what the handler answers.

Started by ``with_processes.py``, with the deployed code in the current folder.
"""

import importlib
import json
import os
import sys
import time
import traceback
from typing import Any


class Context:
    """What Lambda tells a function of an invocation."""

    function_name = os.environ["AWS_LAMBDA_FUNCTION_NAME"]
    memory_limit_in_mb = int(os.environ["AWS_LAMBDA_FUNCTION_MEMORY_SIZE"])

    def __init__(self, request_id: str, arn: str) -> None:
        self.aws_request_id = request_id
        self.invoked_function_arn = arn
        self._ends = time.monotonic() + int(os.environ["AWS_LAMBDA_FUNCTION_TIMEOUT"])

    def get_remaining_time_in_millis(self) -> int:
        """Until the function would be stopped."""
        return max(0, round((self._ends - time.monotonic()) * 1000))


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a handler prints is its log
    module, _, name = os.environ["_HANDLER"].rpartition(".")
    handler: Any = getattr(importlib.import_module(module.replace("/", ".")), name)
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            answer = handler(
                json.loads(asked["payload"] or "null"),
                Context(asked["invoke-id"], asked["invoked-function-arn"]),
            )
            found = {"error": False, "answer": answer}
        except Exception as error:  # as the runtime tells it
            traceback.print_exc()
            found = {"error": True, "answer": {"errorType": type(error).__name__, "errorMessage": str(error)}}
        print(json.dumps(found), file=answers, flush=True)


main()
