"""Requests made up from openapi.json: how many, and what of their answers the contract cannot say."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, settings
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance

from osqueue.contract.operations import ROUTES

BATCHES = {
    "enqueue",
    "complete",
    "turn",
    "heartbeat",
}  # a bad item of theirs fails alone, so the request succeeds
OPERATIONS = [
    route.name for route in ROUTES if route.name != "openapi"
]  # the contract does not ask for itself


def made_up(examples: int) -> settings:
    """So many requests to an operation, the same ones each time."""
    return settings(
        max_examples=examples,
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


def unsaid(operation: str) -> list[Any]:
    """Checks that say nothing of an operation."""
    # What the schema cannot say (printable text, either a delay or a time) may be refused all the same.
    return [positive_data_acceptance, *([negative_data_rejection] if operation in BATCHES else [])]
