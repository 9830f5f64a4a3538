"""What a command of the line answered, and dead letters for it to find."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from click.testing import Result

from osqueue import Queue

Run = Callable[..., Result]


def answers(result: Result) -> list[Any]:
    assert result.exit_code == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def answer(result: Result) -> Any:
    (found,) = answers(result)
    return found


def dead(q: Queue[Any], *errors: str) -> list[str]:
    ids = [str(q.enqueue(error, max_attempts=1).job_id) for error in errors]
    for lease in q.claim(len(errors)):
        lease.fail(lease.payload)
    return ids
