"""Transitions as callers see them, and cursors."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from osqueue import Rejected
from osqueue.core import arrows
from osqueue.core import state as stored
from osqueue.model.event import (
    NAMES,
    Event,
    ShardPosition,
    cursor_of,
    positions_of,
    public_event,
    public_events,
)

KEY = bytes.fromhex("0190a1b2c3d47e5f8a9b0c1d2e3f4a5b")
JOB = "0190a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b"
NOON_MS = 1_800_000_000_000


def transition(origin: str, target: str, cause: str, **more: Any) -> stored.Transition:
    """What the core tells of a transition."""
    fields = {"key": KEY, "at_ms": NOON_MS, "attempt": 1, "run": 2, "worker": "ada", **more}
    return stored.Transition(origin=origin, target=target, cause=cause, **fields)


ARROWS = [
    ("", "queued", "enqueue", "queued"),
    ("", "scheduled", "enqueue", "scheduled"),
    ("", "queued", "follow", "queued"),
    ("", "scheduled", "follow", "scheduled"),
    ("scheduled", "queued", "due", "queued"),
    ("failing", "queued", "due", "queued"),
    ("queued", "processing", "claim", "processing"),
    ("processing", "completed", "complete", "completed"),
    ("processing", "failing", "fail", "failing"),
    ("processing", "failed", "fail", "failed"),
    ("processing", "failing", "timed_out", "failing"),
    ("processing", "failed", "timed_out", "failed"),
    ("processing", "queued", "stalled", "stalled"),
    ("processing", "failed", "stalled", "failed"),
    ("processing", "cancelled", "stalled", "cancelled"),
    ("processing", "queued", "release", "queued"),
    ("processing", "scheduled", "release", "scheduled"),
    ("processing", "cancelled", "cancel", "cancelled"),
    ("queued", "cancelled", "cancel", "cancelled"),
    ("scheduled", "cancelled", "cancel", "cancelled"),
    ("failing", "cancelled", "cancel", "cancelled"),
    ("queued", "cancelled", "expired", "cancelled"),
    ("scheduled", "cancelled", "expired", "cancelled"),
    ("failing", "cancelled", "expired", "cancelled"),
    ("failed", "queued", "redrive", "queued"),
    ("", "queued", "replace", "queued"),
    ("", "scheduled", "replace", "scheduled"),
    ("queued", "cancelled", "replaced", "cancelled"),
    ("scheduled", "cancelled", "replaced", "cancelled"),
    ("failing", "cancelled", "replaced", "cancelled"),
]


@pytest.mark.parametrize(("origin", "target", "cause", "name"), ARROWS)
def test_every_arrow_has_its_name(origin: str, target: str, cause: str, name: str) -> None:
    made = public_event("emails", transition(origin, target, cause))
    assert made is not None
    assert (made.name, made.from_state, made.to_state, made.cause) == (name, origin or None, target, cause)


def test_the_arrows_are_those_of_the_core_and_cover_every_name() -> None:
    assert [row[:3] for row in sorted(ARROWS)] == sorted(
        (each.origin, each.target, each.cause) for each in arrows.ARROWS
    )
    assert {name for *_, name in ARROWS} == set(NAMES)


def test_an_event_says_who_when_and_why() -> None:
    told = transition(
        "queued", "processing", "claim", client_id="order-7", count=3, kind="resize", worker="ada"
    )
    assert public_event("emails", told) == Event(
        queue="emails",
        job_id=JOB,
        id="order-7",
        name="processing",
        from_state="queued",
        to_state="processing",
        at=datetime.fromtimestamp(NOON_MS / 1000, UTC),
        cause="claim",
        attempt=1,
        run=2,
        worker="ada",
        count=3,
        kind="resize",
    )


def test_what_the_core_does_not_tell_is_none() -> None:
    made = public_event("emails", transition("", "queued", "enqueue", worker="", key=b""))
    assert made is not None
    assert (made.id, made.count, made.kind, made.worker, made.job_id) == (None, 1, None, None, None)


def test_a_dead_letter_that_is_dropped_is_no_transition() -> None:
    expired = transition("failed", "failed", "expired")
    assert public_event("emails", expired) is None
    assert public_events("emails", [expired, transition("", "queued", "enqueue")])[0].name == "queued"


# ── Cursors ──────────────────────────────────────────────────────────────────
def test_a_cursor_is_what_it_was_made_of() -> None:
    positions = {shard: ShardPosition(2**64 - 1 - shard, 7 * shard, 2**50 + shard) for shard in range(64)}
    assert positions_of(cursor_of(positions)) == positions


@pytest.mark.parametrize("text", ["", "7", "ev1-", "ev1-x", "ev1-kg", cursor_of({})])
def test_what_is_no_cursor_is_refused_with_a_remedy(text: str) -> None:
    with pytest.raises(
        Rejected, match=r"since: .* is no cursor\. Pass the cursor of an event, a time"
    ) as caught:
        positions_of(text)
    assert caught.value.field == "since"
