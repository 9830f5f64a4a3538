"""Examples of requests and answers, for the documentation of the API."""

from __future__ import annotations

from typing import Any

from ..model.settings import DEFAULTS, NESTED

_JOB = "0197a3c5-7c4e-7000-8d2f-5b6c9e1f2a00"
_TOKEN = "5f1d3c2b9a8e7f60-0"  # noqa: S105 - a lease's, and an example
_NOON = "2030-01-31T12:00:00Z"
_STATISTICS: dict[str, Any] = {
    "queue": "emails",
    "shards": 1,
    "paused": False,
    "paused_until": None,
    "scheduled": 0,
    "queued": 12,
    "processing": 3,
    "failing": 1,
    "completed": 40,
    "failed": 2,
    "cancelled": 0,
    "finished": 40,
    "oldest_seconds": 4.2,
    "commits": 97,
    "head_bytes": 4_211,
    "budgets": {"ready": 0.021, "leases": 0.004},
    "counters": {"enqueued": 58, "claimed": 47, "completed": 40},
    "settings": {name: DEFAULTS[name] for name in NESTED},
    "groups": {"customer-7": {"running": 5, "rate": [50, 60.0]}},
}
_VIEW: dict[str, Any] = {
    "job_id": _JOB,
    "state": "queued",
    "kind": "welcome",
    "priority": 5,
    "enqueued_at": _NOON,
    "attempt": 0,
    "max_attempts": 3,
    "payload_bytes": 24,
    "id": "order-7",
    "run": 0,
}
_LEASED: dict[str, Any] = {
    "job_id": _JOB,
    "token": _TOKEN,
    "attempt": 1,
    "max_attempts": 5,
    "run": 1,
    "priority": 5,
    "enqueued_at": _NOON,
    "started_at": "2030-01-31T12:00:01Z",
    "expires_at": "2030-01-31T12:01:01Z",
    "lease": 60.0,
    "kind": "welcome",
    "id": "order-7",
    "payload": {"to": "ada@example.com"},
}
_BATCH = {
    "batch_id": "0190a8b2-7c1d-7e4f-8a5b-3c2d1e0f9a00",
    "name": "march",
    "state": "open",
    "total": 40,
    "left": 12,
    "completed": 27,
    "failed": 1,
    "cancelled": 0,
    "created_at": "2026-11-22T03:00:00Z",
    "ended_at": None,
    "on_complete": {"kind": "report"},
    "on_success": {"kind": "publish", "payload": {"to": "all"}},
}
_SCHEDULE: dict[str, Any] = {
    "name": "nightly",
    "cron": "0 3 * * *",
    "tz": "Europe/Berlin",
    "every": None,
    "missed": "once",
    "overlap": "allow",
    "paused": False,
    "next_at": "2030-02-01T02:00:00Z",
    "waiting_for": None,
    "living": 0,
    "options": {"kind": "report"},
    "payload_bytes": 18,
}

FAILURE: dict[str, Any] = {
    "error": {
        "code": "rejected",
        "message": "priority: 12 is not a whole number from 0 to 9.",
        "field": "priority",
    }
}

_PACER = {
    "name": "stripe",
    "interval": 0.25,
    "burst": 1,
    "next_in": 0.5,
    "ahead": 2,
    "number": 42,
    "paused_at": None,
    "now": "2030-01-31T12:00:00Z",
    "epoch": 2_814_749,
    "moved": 12.0,
}

# By route: a request's body and the body of its answer.
EXAMPLES: dict[str, tuple[Any, Any]] = {
    "enqueue": (
        {"payload": {"to": "ada@example.com"}, "id": "order-7", "kind": "welcome", "max_attempts": 5},
        {"status": "queued", "job_id": _JOB, "state": "queued"},
    ),
    "upload": (
        {"bytes": 1_000_000, "sha256": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"},
        {
            "upload": "00000000002a-9f1c3b5d7e20846a-f4240",
            "url": "https://bucket.s3.eu-west-1.amazonaws.com/…?X-Amz-Signature=…",
            "headers": {
                "content-length": "1000000",
                "if-none-match": "*",
                "x-amz-checksum-sha256": "n4bQgYhMfWWaL+qgxVrQFaO/TxsrC4Is0V1sFbDwCgg=",
            },
            "expires_at": "2030-01-31T12:15:00Z",
        },
    ),
    "claim": (
        {"worker": "mailer-1", "limit": 10, "lease": 60, "kinds": ["welcome"]},
        {"jobs": [_LEASED]},
    ),
    "complete": (
        {
            "completions": [
                {"job_id": _JOB, "token": _TOKEN, "result": {"sent": True}},
                {"job_id": _JOB, "token": _TOKEN, "error": {"type": "Bounced", "message": "no such mailbox"}},
                {"job_id": _JOB, "token": _TOKEN, "release": 60},
            ]
        },
        {
            "completions": [
                {"job_id": _JOB, "ok": True},
                {"job_id": _JOB, "ok": False, "code": "lease_lost"},
                {"job_id": _JOB, "ok": False, "code": "lease_lost"},
            ]
        },
    ),
    "turn": (
        {
            "completions": [{"job_id": _JOB, "token": _TOKEN, "result": {"sent": True}}],
            "claims": [{"worker": "mailer-1", "limit": 10}],
        },
        {"completions": [{"job_id": _JOB, "ok": True}], "claims": [{"jobs": [_LEASED]}]},
    ),
    "heartbeat": (
        {"leases": [{"job_id": _JOB, "token": _TOKEN}], "lease": 60},
        {"leases": [{"job_id": _JOB, "ok": True, "cancel_requested": True}]},
    ),
    "list_jobs": (None, {"jobs": [_VIEW]}),
    "status": (None, _VIEW),
    "status_many": (
        {"jobs": [_JOB, "order-8"], "include": ["payload"]},
        {"jobs": [{**_VIEW, "payload": {"to": "ada@example.com"}}, None]},
    ),
    "cancel": (None, {"status": "cancelled"}),
    "run_now": (None, {"state": "queued"}),
    "change_job": ({"result_ttl": 86400}, None),
    "result": (None, {"job_id": _JOB, "result": {"sent": True}}),
    "list_queues": (None, {"queues": [_STATISTICS]}),
    "stats": (None, _STATISTICS),
    "flow": (
        None,
        {
            "queue": "emails",
            "running": 3,
            "max_running": 50,
            "rate": {"starts": 100, "period": 60.0, "burst": 10, "left": 0, "next_at": _NOON},
            "paused": False,
            "paused_until": None,
            "kinds": {"welcome": {"running": 3, "max_running": 8}},
            "groups": {"running": 1, "full": 2, "held": 1, "stopped": 0, "paused": 0, "rate_limited": 0},
            "shards": [],
        },
    ),
    "groups": (
        None,
        {
            "groups": [
                {
                    "group": "order-42",
                    "state": "held",
                    "running": 0,
                    "waiting": 4,
                    "why": f"its group 'order-42' waits for job {_JOB}, which failed and is tried again",
                    "since": _NOON,
                    "opens_at": "2030-01-31T12:00:08Z",
                    "waits_for": _JOB,
                }
            ]
        },
    ),
    "list_workers": (
        None,
        {
            "workers": [
                {
                    "name": "mailer-1",
                    "state": "running",
                    "holds": 3,
                    "oldest_start": _NOON,
                    "id": "5f1d3c2b9a8e7f60",
                    "host": "ip-10-0-1-7",
                    "pid": 4711,
                    "version": "0.1.0",
                    "concurrency": 8,
                    "busy": 3,
                    "kinds": ["welcome"],
                    "since": "2030-01-31T08:00:00Z",
                    "seen": "2030-01-31T12:00:31Z",
                }
            ]
        },
    ),
    "put_worker": (
        {"name": "mailer-1", "host": "ip-10-0-1-7", "concurrency": 8, "busy": 3, "every": 60},
        None,
    ),
    "configure": ({"paused": True, "dead_ttl": 604800}, {**_STATISTICS, "paused": True}),
    "cancel_many": (
        {"kinds": ["welcome"], "enqueued_before": 1_900_000_000},
        {"cancelled": 120, "asked": 3, "waiting": 4_000},
    ),
    "configure_group": ({"running": 5, "rate": [50, 60]}, _STATISTICS),
    "list_schedules": (None, {"schedules": [_SCHEDULE]}),
    "put_schedule": (
        {"cron": "0 3 * * *", "tz": "Europe/Berlin", "payload": {"report": "sales"}, "kind": "report"},
        _SCHEDULE,
    ),
    "get_schedule": (None, _SCHEDULE),
    "change_schedule": ({"paused": True}, {**_SCHEDULE, "paused": True, "next_at": None}),
    "run_schedule": (None, {"status": "queued", "job_id": _JOB, "state": "queued"}),
    "open_batch": (
        {
            "name": "march",
            "on_complete": {"kind": "report"},
            "on_success": {"kind": "publish", "payload": {"to": "all"}},
        },
        _BATCH,
    ),
    "list_batches": (None, {"batches": [_BATCH]}),
    "get_batch": (None, _BATCH),
    "change_batch": ({"sealed": True}, {**_BATCH, "state": "sealed"}),
    "list_pacers": (None, {"pacers": [_PACER]}),
    "put_pacer": ({"interval": 0.25, "burst": 1, "if_exists": "keep"}, _PACER),
    "get_pacer": (None, _PACER),
    "change_pacer": (
        {"paused": True},
        {**_PACER, "paused_at": "2030-01-31T12:00:00Z", "rest": 2.0},
    ),
    "reserve_slot": (
        {"units": 1, "max_ahead": 60},
        {
            "reserved": True,
            "number": 43,
            "units": 1,
            "epoch": 2_814_749,
            "at": "2030-01-31T12:00:00.500000Z",
            "seconds_left": 0.5,
            "pacer": {**_PACER, "next_in": 0.75, "ahead": 3, "number": 43},
        },
    ),
    "return_slot": ({"number": 43, "units": 1, "epoch": 2_814_749}, {"returned": True}),
    "redrive": ({"limit": 100, "kinds": ["welcome"], "error": "mailbox"}, {"jobs": 2}),
    "purge": ({"jobs": ["order-7"]}, {"jobs": [_JOB], "cancelled": 1, "state": 1}),
    "history": (None, {"jobs": [{**_VIEW, "state": "completed", "attempt": 1, "run": 1}]}),
    "health": (None, {"status": "ok", "version": "0.1.0"}),
}
