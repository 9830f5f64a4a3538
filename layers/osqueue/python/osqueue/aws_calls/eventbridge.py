"""PutEvents of EventBridge, with the answer that a client of boto3 would give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ..clock import MACHINE, Machine
from ..errors import Unavailable
from .caller import AwsCaller

HEADERS = {"content-type": "application/x-amz-json-1.1", "x-amz-target": "AWSEvents.PutEvents"}


class EventBridgeCaller:
    """What a sink needs of EventBridge."""

    def __init__(self, machine: Machine = MACHINE) -> None:
        self._caller = AwsCaller("events", machine=machine)

    def put_events(self, Entries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:  # noqa: N803 - as boto3 has it
        """Send entries once. Raises Unavailable."""
        told = [{**entry, "Time": entry["Time"].timestamp()} for entry in Entries]
        answer = self._caller.post("/", HEADERS, msgspec.json.encode({"Entries": told}))
        if answer.status != 200:
            raise Unavailable(f"EventBridge refused the events ({answer.status} {error_code(answer.body)})")
        found: dict[str, Any] = msgspec.json.decode(answer.body)
        return found


def error_code(body: bytes) -> str:
    """The code of an error that AWS answered; its message may hold anything."""
    try:
        told = msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return ""
    return str(told.get("__type") or told.get("Type") or "").rpartition("#")[2][:80]
