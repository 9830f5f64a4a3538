"""The functions' handlers as Lambda loads them, each in a module of its own, with a context that tells the time."""

from __future__ import annotations

import importlib.util
import json
from typing import Any

from osqueue.contract.functions import BY_NAME, SERVICE, STORE
from tests.support.places import ROOT


class Context:
    """What Lambda tells a function of an invocation."""

    aws_request_id = "c6af9ac6-7b61-11e6-9a41-93e8deadbeef"
    function_name = "osqueue-test-function"
    memory_limit_in_mb = 512
    invoked_function_arn = "arn:aws:lambda:eu-west-1:123456789012:function:osqueue-test-function"

    def __init__(self, seconds: float = 28.0) -> None:
        self.seconds = seconds

    def get_remaining_time_in_millis(self) -> int:
        """Until the function is stopped."""
        return round(self.seconds * 1000)


def environment(store: str, service: str = "osqueue-test") -> dict[str, str]:
    """What the functions find around them."""
    return {STORE: store, SERVICE: service}


def load(name: str) -> Any:
    """A function's handler, from a new process as far as it can tell."""
    place = ROOT / "functions" / name / "handler.py"
    spec = importlib.util.spec_from_file_location(f"handler_of_{name}", place)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.handler


class Handlers(dict[str, Any]):
    """Each is loaded when the test first calls it: its log goes to what is stdout then."""

    def __missing__(self, name: str) -> Any:
        return self.setdefault(name, load(name))


def printed(text: str) -> list[dict[str, Any]]:
    """What was printed, every line of it JSON."""
    return [json.loads(line) for line in text.splitlines()]


def measured(lines: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The values of metrics by their names: of each queue by its name, of the deployment under ""."""
    found: dict[str, dict[str, Any]] = {}
    for line in lines:
        for directive in line.get("_aws", {}).get("CloudWatchMetrics", ()):
            (dimensions,) = directive["Dimensions"]
            values = {each["Name"]: line[each["Name"]] for each in directive["Metrics"]}
            found.setdefault(line["queue"] if "queue" in dimensions else "", {}).update(values)
    return found


def events() -> dict[str, tuple[str, Any]]:
    """The sample events by name, each with the function it is for."""
    found: dict[str, tuple[str, Any]] = {}
    for path in sorted((ROOT / "events").glob("*.json")):
        function = next(name for name in BY_NAME if path.stem.startswith(f"{name}-"))
        found[path.stem] = (function, json.loads(path.read_text()))
    return found


def http(method: str, path: str, body: str | None = None, **more: Any) -> dict[str, Any]:
    """An event of the HTTP API."""
    event: dict[str, Any] = {
        "version": "2.0",
        "routeKey": "$default",
        "rawPath": path,
        "rawQueryString": "",
        "headers": {"content-type": "application/json"},
        "requestContext": {
            "http": {"method": method, "path": path},
            "requestId": "JKJaXmPLvHcESHA=",
            "stage": "$default",
        },
        "isBase64Encoded": False,
        **more,
    }
    if body is not None:
        event["body"] = body
    return event


def direct(method: str, path: str, body: Any = None, **more: Any) -> dict[str, Any]:
    """A direct invocation."""
    event: dict[str, Any] = {"method": method, "path": path, **more}
    if body is not None:
        event["body"] = body
    return event
