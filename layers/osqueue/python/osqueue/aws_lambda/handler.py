"""A Lambda function: what its handler module makes, once for each process."""

from __future__ import annotations

import os
from typing import Any

from .. import limits
from ..aws_calls import WAKES_VARIABLE
from ..clock import MACHINE, Machine
from ..contract import functions, metrics
from ..contract.functions import DEADLINE_MARGIN_S
from ..contract.route import Route
from ..contract.schemas import Fault
from ..contract.work import WORK
from ..errors import Rejected
from ..metering.store import InvocationCounts, MeteredStore
from ..model.validation import milliseconds
from ..server.app import Api, ApiRequest, ApiResponse, failure
from ..stores.address import open_store
from ..threads import TimedCaller
from . import direct_event, gateway_event
from .logs import FAULTS_OF_OURS, RequestLog

SCHEDULE = "osqueue.schedule"  # the source of the schedule's events
STACK = "ResponseURL"  # the field by which events of CloudFormation are known
TRACE = "_X_AMZN_TRACE_ID"  # set by the runtime for each invocation
GRACE_S = 0.75  # after its deadline a request is given up; the store did not let go of it
DEADLINE_S_MIN = 0.1


class Function:
    """Answers the events of one function. ``name`` is one of ``contract.functions``.

    Opens the store named by the environment. Raises Rejected when there is none, or it means nothing.

    >>> handler = Function("enqueue")  # doctest: +SKIP
    """

    def __init__(self, name: str, machine: Machine = MACHINE) -> None:
        address = os.environ.get(functions.STORE)
        if not address:
            raise Rejected(
                f"{functions.STORE}: this environment variable is not set. Give it the address of the store, such as"
                " s3://bucket/prefix.",
                field=functions.STORE,
            )
        self.name = name
        self.machine = machine
        self.meter = MeteredStore(open_store(address, machine).inner, machine)
        mine = _routes_of(name)
        self.api = Api(
            self.meter,
            routes=mine,
            machine=machine,
            sinks=_sinks(),
            waker=_waker(),
            window=_window(),
        )
        self._log = RequestLog(machine)
        self._caller_of = _callers()
        self._patience: TimedCaller[ApiResponse] = TimedCaller()
        # A cold start has more of a processor than the first request: what that will need is loaded now.
        self.api.load()
        names = {route.name for route in mine}
        self._enqueues = "enqueue" in names
        self._configures = "configure" in names
        self._scheduled = functions.BY_NAME[name].schedule_minutes is not None

    def __call__(self, event: Any, context: Any) -> Any:
        """What Lambda calls. Any number of threads may, at once."""
        left = context.get_remaining_time_in_millis() / 1000 - DEADLINE_MARGIN_S
        with self.meter.invocation() as counts:
            try:
                return self._served(event, context, left, counts)
            finally:
                self._log.end(counts)

    def _served(self, event: Any, context: Any, left: float, counts: InvocationCounts) -> Any:
        if gateway_event.is_request(event):
            self._log.begin(gateway_event.request_id(event) or context.aws_request_id, context.aws_request_id)
            permit = None if self._caller_of is None else self._caller_of(event).permit
            request = gateway_event.request_of(event, left, self.machine.now_ms(), permit)
            return gateway_event.answer_of(self._answer(request, counts))
        self._log.begin(context.aws_request_id, context.aws_request_id)
        if isinstance(event, dict) and event.get("source") == SCHEDULE and self._scheduled:
            from .schedule import reap_all  # only the reaper has a schedule

            return reap_all(self.api, counts, self._log, left)
        if self._configures and isinstance(event, dict) and STACK in event:
            from . import stack_event  # once in a deployment of a consumer

            return stack_event.serve(event, lambda asked: self._answer(asked, counts), left)
        if self._enqueues:
            trace = os.environ.get(TRACE, "")
            event = direct_event.with_job_ids(event, context.aws_request_id, trace, self.machine.now_ms())
        return direct_event.answer_of(self._answer(direct_event.request_of(event, left), counts))

    def _answer(self, request: ApiRequest | ApiResponse, counts: InvocationCounts) -> ApiResponse:
        """The answer of the API, unless there is one already, or the store does not answer in time."""
        if isinstance(request, ApiResponse):
            return request
        began = self.machine.monotonic()
        deadline_s = max(DEADLINE_S_MIN, request.deadline_s)
        asked = ApiRequest(
            request.method, request.path, request.query, request.body, deadline_s, request.permit
        )
        answer = self._patience.call(lambda: self.api.answer(asked), deadline_s + GRACE_S)
        response = answer or failure(_SILENT)
        if response.status >= FAULTS_OF_OURS:
            counts.whole.add(metrics.FAULTS, 1)
        self._log.request(counts, response, self.machine.monotonic() - began)
        return response


_SILENT = Fault(
    code="unavailable",
    message="the store gave no answer in time. What was asked for may have been done, or may still be.",
    retry_after=1.0,
)


def _routes_of(name: str) -> list[Route]:
    """Those that a function answers."""
    mine = [route for route in WORK if route.function == name]
    if not mine:
        from ..contract.operations import ROUTES  # with all that operators are told

        mine = [route for route in ROUTES if route.function == name]
    return mine


def _callers() -> Any:
    """What tells callers by their events; None: the gateway alone decides."""
    prefix = os.environ.get(functions.SCOPES)
    if prefix is None:
        return None
    from .scopes import caller_of

    return lambda event: caller_of(event, prefix)


def _waker() -> Any:
    if not os.environ.get(WAKES_VARIABLE):
        return None
    from ..metering.wakes import metered_waker

    return metered_waker()


def _window() -> float:
    """Return how long operations wait for those of other requests, in seconds. Raises Rejected."""
    text = os.environ.get(functions.WINDOW) or "0"
    try:
        value: float | str = float(text)
    except ValueError:
        value = text
    return milliseconds(value, functions.WINDOW, 0, limits.WINDOW_MS_MAX) / 1000


def _sinks() -> list[Any]:
    bus = os.environ.get(functions.EVENT_BUS)
    if not bus:
        return []
    from ..metering.bus import metered_bus

    return [metered_bus(bus)]
