"""The contract as an OpenAPI 3.1 document, made from the tables of ``contract/``.

``python -m osqueue.server.openapi`` prints it; ``/openapi.json`` at the repository's top is that output.
"""

from __future__ import annotations

import json
import sys
from functools import lru_cache
from inspect import cleandoc
from types import UnionType
from typing import Any, get_args

import msgspec

from .. import __version__, limits
from ..contract.content import CODEC_CHARS_MAX
from ..contract.examples import EXAMPLES, FAILURE
from ..contract.functions import PAYLOAD_BYTES_MAX, WAIT_S_MAX
from ..contract.operations import HISTORY_MAX, QUEUES_MAX, ROUTES
from ..contract.pacers import PACERS_MAX
from ..contract.route import Query, Route
from ..contract.schemas import Failure
from ..core.state import STATES
from ..model.included import INCLUDES
from ..model.schedule import SCHEDULE_NAME
from ..model.settings import DEFAULTS, NESTED, SETTINGS
from ..model.validation import QUEUE_NAME
from ..model.worker import WORKER_ID

Schema = dict[str, Any]

TITLE = "osqueue"
ABOUT = (
    "A job queue whose state is objects in S3. Times are RFC 3339 in UTC, durations seconds. Payloads and results are"
    " JSON values; what another serialiser wrote travels as base64 in `data`, its name in `codec`. In front of it"
    " stands an HTTP API with IAM (SigV4) or JWT authorization. It answers 401, 403, 404 to a route or a method that"
    " is not here, and 413, 429, 500 and 503 where no function answered, with a body of its own: `{message}`. The"
    " Lambda functions take the same bodies by direct invocation: `{method, path, query, body}` in,"
    " `{status, body}` out."
)
UUID7 = "^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$"
ID_CHARS_MAX = 1 + (limits.ID_CHARS_MAX * 4 * 4 + 2) // 3  # "~" and base64url of UTF-8
ANY_JSON: Schema = {"description": "Any JSON value."}
_REF = "#/components/schemas/"

# Statuses that every request may answer, beside its own.
COMMON: dict[int, str] = {
    400: "The request cannot be read.",
    401: "Nobody knows who calls.",
    403: "The caller may not do this.",
    404: "There is no such thing, or no such route.",
    405: "By direct invocation alone: the path does not take this method. The gateway answers 404.",
    408: "The request did not arrive in time, and nothing was done.",
    413: "Something is too large.",
    422: "A field is wrong; the body says which, and why.",
    429: "The queue is busy, and nothing was done. Repeat it.",
    431: "The headers or the query are too large.",
    500: "A defect of the server.",
    503: "The store did not answer, or not in time. The body says whether something may have been done.",
}
OWN: dict[int, str] = {
    202: "Not finished yet.",
    409: "It is in a state that forbids this; or the job failed, or was cancelled.",
    410: "The result is not kept any more.",
}
# What the gateway says itself, without a function: no such route, too large, too many, no answer.
GATEWAY = (401, 403, 404, 413, 429, 500, 503)
MESSAGE: Schema = {
    "title": "Message",
    "description": "What the gateway says itself, where no function answered.",
    "type": "object",
    "required": ["message"],
    "properties": {"message": {"type": "string"}},
}
JOB_ID = (
    "A UUID of version 7 that the caller draws for this job, so that a repeated request is the same jobs: the"
    " whole request, with the same items in the same order. Another request with this item is the same job only"
    " where the first job_id drawn for each of the two has the same last byte, which picks the shard of all their"
    " jobs. The last byte is replaced by the number of that shard: the job_id of the answer counts, and two of one"
    " request may not differ in that byte alone. A repeat with another payload is a conflict. A repeat after the"
    " number of shards has grown may be a second job."
)


def _seconds(least_ms: float, most_ms: float) -> Schema:
    return {"minimum": least_ms / 1000, "maximum": most_ms / 1000}


def _chars(most: int, least: int = 1) -> Schema:
    return {"minLength": least, "maxLength": most}


_KINDS: Schema = {
    "minItems": 1,
    "maxItems": limits.KINDS_PER_CLAIM_MAX,
    "items": {"type": "string", **_chars(limits.KIND_CHARS_MAX, 0)},
}
_UNITS: Schema = {"minimum": 1, "maximum": limits.PACER_BURST_MAX}
_DELAY = _seconds(0, limits.DELAY_MS_MAX)
_CLAIM: dict[str, Schema] = {
    "worker": _chars(limits.WORKER_CHARS_MAX),
    "limit": {"minimum": 1, "maximum": limits.CLAIM_LIMIT_MAX},
    "lease": _seconds(limits.LEASE_MS_MIN, limits.LEASE_MS_MAX),
    "kinds": _KINDS,
}
_ENDINGS: dict[str, Schema] = {
    "completions": {"items": {"$ref": f"{_REF}Ending"}, "maxItems": limits.ITEMS_PER_REQUEST_MAX},
    "codec": _chars(CODEC_CHARS_MAX),
}

# What is said of single fields beside their type.
FIELDS: dict[str, dict[str, Schema]] = {
    "NewJob": {
        "payload": ANY_JSON,
        "codec": _chars(CODEC_CHARS_MAX),
        "job_id": {"pattern": UUID7, "description": JOB_ID},
    },
    "NewJobs": {"jobs": {"items": {"$ref": f"{_REF}NewJob"}, "maxItems": limits.ITEMS_PER_REQUEST_MAX}},
    "TurnClaim": _CLAIM,
    "NewClaim": {**_CLAIM, "wait": {"minimum": 0, "maximum": WAIT_S_MAX}},
    "Ending": {
        "result": ANY_JSON,
        "token": _chars(limits.TOKEN_CHARS_MAX),
        "retry_in": _DELAY,
    },
    "Endings": _ENDINGS,
    "NewTurn": {
        **_ENDINGS,
        "claims": {"items": {"$ref": f"{_REF}TurnClaim"}, "maxItems": limits.ITEMS_PER_REQUEST_MAX},
    },
    "Held": {"token": _chars(limits.TOKEN_CHARS_MAX)},
    "HeartbeatRequest": {
        "leases": {"items": {"$ref": f"{_REF}Held"}, "maxItems": limits.ITEMS_PER_REQUEST_MAX},
        "lease": _seconds(limits.LEASE_MS_MIN, limits.LEASE_MS_MAX),
    },
    "Redrive": {
        "limit": {"minimum": 1, "maximum": limits.ITEMS_PER_CALL_MAX},
        "kinds": _KINDS,
        "error": _chars(limits.ERROR_CHARS_MAX, 0),
        "fingerprint": {"pattern": "^[0-9a-f]{8}$"},
    },
    "StatusRequest": {
        "jobs": {
            "items": {"type": "string", **_chars(limits.ID_CHARS_MAX)},
            "maxItems": limits.ITEMS_PER_REQUEST_MAX,
        },
        "include": {"items": {"enum": list(INCLUDES)}},
    },
    "NewPacer": {
        "interval": _seconds(limits.PACER_INTERVAL_MS_MIN, limits.PACER_INTERVAL_MS_MAX),
        "burst": _UNITS,
        "if_exists": {"enum": ["keep", "reset", "fail"]},
    },
    "NewReservation": {
        "units": _UNITS,
        "max_ahead": _seconds(0, limits.PACER_AHEAD_MS_MAX),
        "lead": _seconds(0, limits.PACER_LEAD_MS_MAX),
    },
    "SlotReturn": {
        "number": {"minimum": 1, "maximum": limits.PACER_NUMBER_MAX},
        "units": _UNITS,
        "epoch": {"minimum": 0, "maximum": limits.PACER_NUMBER_MAX},
    },
    "JobAnswer": {"payload": ANY_JSON, "result": ANY_JSON},
    "DeadLetterAnswer": {"payload": ANY_JSON},
    "Purge": {
        "jobs": {
            "items": {"type": "string", **_chars(limits.ID_CHARS_MAX)},
            "maxItems": limits.ITEMS_PER_REQUEST_MAX,
        }
    },
}
QUERY: dict[tuple[str, str], Schema] = {
    ("list_jobs", "state"): {"enum": list(STATES)},
    ("history", "limit"): {"minimum": 1, "maximum": HISTORY_MAX},
    ("list_pacers", "limit"): {"minimum": 1, "maximum": PACERS_MAX},
    ("list_queues", "limit"): {"minimum": 1, "maximum": QUEUES_MAX},
    ("history", "since"): {"minimum": 0, "maximum": limits.AT_MS_MAX / 1000},
    ("history", "until"): {"minimum": 0, "maximum": limits.AT_MS_MAX / 1000},
}
NAMED_QUERY: dict[str, Schema] = {
    "limit": {"minimum": 1, "maximum": 1_000},
    "wait": {"minimum": 0, "maximum": WAIT_S_MAX},
    "error": {"maxLength": limits.ERROR_CHARS_MAX},
    "fingerprint": {"pattern": "^[0-9a-f]{8}$"},
    "kind": {"maxLength": limits.KIND_CHARS_MAX},
}
_TYPES: dict[type, Any] = {
    int: "integer",
    float: "number",
    bool: "boolean",
    str: "string",
    dict: "object",
    tuple: "array",
}


def _type_told(setting: str) -> Any:
    """What statistics tell of a setting: null, too, where it is None unless somebody sets it."""
    name = _TYPES[SETTINGS[setting].type]
    return [name, "null"] if DEFAULTS[setting] is None else name


_COUNT: Schema = {"type": "integer", "minimum": 0}
STATS: Schema = {
    "title": "Statistics",
    "description": "How a queue stands. Where it cannot be read, its name and the error alone.",
    "type": "object",
    "required": ["queue"],
    "properties": {
        "queue": {"type": "string"},
        "shards": {"type": "integer", "minimum": 1},
        "paused": {"type": "boolean"},
        "paused_until": {"type": ["string", "null"], "format": "date-time"},
        **dict.fromkeys(STATES, _COUNT),
        "finished": {**_COUNT, "description": "about how many jobs that are over are still known"},
        "oldest_seconds": {
            "type": ["number", "null"],
            "description": "how long the oldest waiting job has waited",
        },
        "commits": _COUNT,
        "head_bytes": {**_COUNT, "description": "of the largest head"},
        "budgets": {
            "type": "object",
            "additionalProperties": {"type": "number", "minimum": 0},
            "description": "by part of a head: the share of its budget that the fullest shard uses; 1 is all",
        },
        "counters": {"type": "object", "additionalProperties": _COUNT},
        "settings": {
            "type": "object",
            "properties": {name: {"type": _type_told(name)} for name in NESTED},
        },
        "groups": {
            "type": "object",
            "additionalProperties": {"type": "object"},
            "description": "what single groups have of their own",
        },
        "error": {"$ref": f"{_REF}Fault"},
    },
}


# ── The document ─────────────────────────────────────────────────────────────
def document() -> Schema:
    """The whole contract."""
    paths: dict[str, Schema] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": TITLE,
            "version": __version__,
            "description": ABOUT,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "tags": [{"name": name} for name in dict.fromkeys(route.function for route in ROUTES)],
        "paths": paths,
        "components": {"schemas": _schemas(), "responses": _failures()},
    }


@lru_cache(maxsize=1)
def document_bytes() -> bytes:
    """The same, encoded, made once for each process."""
    return msgspec.json.encode(document())


def _operation(route: Route) -> Schema:
    example = EXAMPLES.get(route.name, (None, None))
    operation: Schema = {
        "operationId": route.name,
        "summary": route.what,
        "tags": [route.function],
        "parameters": [*_path_parameters(route), *(_query(route, each) for each in route.query)],
        "responses": _responses(route, example[1]),
    }
    if route.request is not None:
        operation["requestBody"] = {
            "required": not route.body_optional,
            "content": {"application/json": _media(route.request, example[0])},
        }
    return operation


def _path_parameters(route: Route) -> list[Schema]:
    found: list[Schema] = []
    if "{queue}" in route.path:
        name = {"type": "string", "pattern": f"^{QUEUE_NAME}$", "example": "emails"}
        found.append({"name": "queue", "in": "path", "required": True, "schema": name})
    if "{pacer}" in route.path:
        name = {"type": "string", "pattern": f"^{QUEUE_NAME}$", "example": "stripe"}
        found.append({"name": "pacer", "in": "path", "required": True, "schema": name})
    if "{id}" in route.path:
        what = (
            "The job id that enqueue answered, or the client's own id. Ids with other characters than A-Z, a-z, 0-9,"
            " '.', '_' and '-', and ids that begin with '~', travel as '~' and the base64url of their UTF-8."
        )
        form = {"type": "string", **_chars(ID_CHARS_MAX), "example": "order-7"}
        found.append({"name": "id", "in": "path", "required": True, "description": what, "schema": form})
    if "{batch}" in route.path:
        found.append(
            {"name": "batch", "in": "path", "required": True, "schema": {"type": "string", "format": "uuid"}}
        )
    if "{schedule}" in route.path:
        name = {"type": "string", "pattern": f"^{SCHEDULE_NAME}$", "example": "nightly"}
        found.append({"name": "schedule", "in": "path", "required": True, "schema": name})
    if "{worker}" in route.path:
        what = "drawn at random by the worker, when it starts"
        form = {"type": "string", "pattern": f"^{WORKER_ID}$", "example": "5f1d3c2b9a8e7f60"}
        found.append({"name": "worker", "in": "path", "required": True, "description": what, "schema": form})
    if "{group}" in route.path:
        group: Schema = {"type": "string", "minLength": 1, "maxLength": limits.GROUP_CHARS_MAX}
        what = "percent-encoded; one with a slash is changed by the settings of its queue, in `groups`"
        found.append({"name": "group", "in": "path", "required": True, "description": what, "schema": group})
    return found


def _query(route: Route, query: Query) -> Schema:
    more = QUERY.get((route.name, query.name)) or NAMED_QUERY.get(query.name, {})
    schema: Schema = {"type": _TYPES[query.type], **more}
    if query.many:
        schema = {"type": "array", "items": schema, "maxItems": limits.KINDS_PER_CLAIM_MAX}
    return {"name": query.name, "in": "query", "required": False, "description": query.what, "schema": schema}


def _responses(route: Route, example: Any) -> Schema:
    found: Schema = {}
    if route.answer is None:
        found["204"] = {"description": "Done."}
    else:
        found["200"] = {
            "description": "Done.",
            "content": {"application/json": _media(route.answer, example)},
        }
    for status in sorted({*COMMON, *route.faults}):
        found[str(status)] = {"$ref": f"#/components/responses/{_named(status)}"}
    return found


def _named(status: int) -> str:
    return f"Status{status}"


def _failures() -> Schema:
    """The answers that are no success, by name."""
    found: Schema = {}
    for status, what in sorted({**COMMON, **OWN}.items()):
        media = _media(Failure, FAILURE)
        if status in GATEWAY:
            media["schema"] = {"oneOf": [media["schema"], {"$ref": f"{_REF}Message"}]}
        failure: Schema = {"description": what, "content": {"application/json": media}}
        if status in (429, 503):
            header = {"description": "seconds", "schema": {"type": "integer", "minimum": 1}}
            failure["headers"] = {"Retry-After": header}
        found[_named(status)] = failure
    return found


def _media(type: Any, example: Any) -> Schema:
    members = get_args(type) if isinstance(type, UnionType) else (type,)
    schemas = [_schema(each) for each in members]
    found: Schema = {"schema": schemas[0] if len(schemas) == 1 else {"oneOf": schemas}}
    if example is not None:
        found["example"] = example
    return found


def _schema(type: Any) -> Schema:
    if type is dict:
        return {"type": "object"}
    if type == dict[str, Any]:
        return {"$ref": f"{_REF}Statistics"}
    return {"$ref": f"{_REF}{type.__name__}"}


# ── Schemas ──────────────────────────────────────────────────────────────────
def _schemas() -> dict[str, Schema]:
    from ..contract import schemas as bodies

    types: list[Any] = [Failure, bodies.Ending, bodies.Held, bodies.TurnClaim]
    for route in ROUTES:
        for each in (route.request, route.answer):
            types += get_args(each) if isinstance(each, UnionType) else [each]
    structs = [each for each in types if isinstance(each, type) and issubclass(each, msgspec.Struct)]
    _, found = msgspec.json.schema_components(structs, ref_template=_REF + "{name}")
    schemas: dict[str, Schema] = dict(sorted(found.items()))
    for name, schema in schemas.items():
        if "description" in schema:  # a docstring, which Python keeps indented before 3.13
            schema["description"] = cleandoc(schema["description"])
        for field, form in schema.get("properties", {}).items():
            _refine(form, FIELDS.get(name, {}).get(field, {}))
            if field.endswith("_at") or field in ("at", "kept_until"):
                _refine(form, {"format": "date-time"}, only="string")
            for branch in form.get("anyOf", ()):
                if "description" in branch:
                    form["description"] = branch.pop("description")
        if not schema.get("required", True):
            del schema["required"]
    schemas["Statistics"] = STATS
    schemas["Message"] = MESSAGE
    schemas["Queues"]["properties"]["queues"]["items"] = {"$ref": f"{_REF}Statistics"}
    # One of the two, and no more than that.
    schemas["NewJob"]["oneOf"] = [{"required": ["payload"]}, {"required": ["data"]}]
    schemas["NewJob"]["description"] += f" Its payload has at most {PAYLOAD_BYTES_MAX:,} bytes."
    return schemas


def _refine(form: Schema, more: Schema, only: str = "") -> None:
    """Say more of a field, in the branch of it that is not null."""
    branches = [each for each in form.get("anyOf", [form]) if each.get("type") != "null"]
    for branch in branches:
        if not only or branch.get("type") == only:
            branch.update(more)


def text() -> str:
    """Return the document as ``openapi.json`` has it."""
    return json.dumps(document(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    sys.stdout.write(text())
