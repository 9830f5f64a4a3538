"""Operations on schedules."""

from __future__ import annotations

from typing import Any

from ..commit.effects import QueueFlow
from ..contract.admin_schemas import NewSchedule, ScheduleChange, Schedules
from ..contract.content import CODEC, content_of
from ..contract.functions import PAYLOAD_BYTES_MAX
from ..contract.schemas import Accepted, EncodedContent
from ..errors import NotFound
from ..model.job_options import OPTIONS
from ..model.schedule import Schedule, schedule_row
from .answers import StatusAnswer
from .request import RequestContext

NOTHING = EncodedContent(b"null", CODEC)  # the payload where none is given


def list_schedules(request: RequestContext) -> QueueFlow[Schedules]:
    """The schedules of a queue."""
    return Schedules(schedules=(yield from request.warm.steering.schedules()))


def put_schedule(request: RequestContext) -> QueueFlow[Schedule]:
    """Add or change one."""
    body: NewSchedule = request.read()
    options = {
        name: value for name, each in OPTIONS.items() if (value := getattr(body, name)) != each.default
    }
    payload = (
        content_of(body.payload, body.data, body.codec or CODEC, "payload", PAYLOAD_BYTES_MAX) or NOTHING
    )
    row = schedule_row(
        _name(request), body.cron, body.tz, body.every, body.missed, body.overlap, payload.codec, options
    )
    return (yield from request.warm.steering.put_schedule(row, payload.data))


def get_schedule(request: RequestContext) -> QueueFlow[Schedule]:
    """One of them."""
    return (yield from request.warm.steering.schedule_of(_name(request)))


def change_schedule(request: RequestContext) -> QueueFlow[Schedule]:
    """Pause one, or let it go on."""
    body: ScheduleChange = request.read()
    return (yield from request.warm.steering.pause_schedule(_name(request), body.paused))


def delete_schedule(request: RequestContext) -> QueueFlow[StatusAnswer]:
    """Remove one."""
    if not (yield from request.warm.steering.unschedule(_name(request))):
        raise NotFound(f"schedule {_name(request)}: there is none of this name.")
    return StatusAnswer(204)


def run_schedule(request: RequestContext) -> QueueFlow[Accepted]:
    """Make a job of one now."""
    done = yield from request.warm.steering.run_schedule(_name(request))
    request.note([done.job_id], state=done.state)
    return Accepted(status=done.status, job_id=done.job_id, state=done.state)


def _name(request: RequestContext) -> Any:
    return request.path["schedule"]
