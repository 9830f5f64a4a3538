"""News of heads at rest, with one rule removed."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from osqueue.commit import steps
from osqueue.commit.news import News
from osqueue.operations.news_board import NewsBoard
from osqueue.stores.base import Found, Put, PutIfMatch, Refused, StoreReply

from .control import Control, in_runs, patched

PROFILE = "many queues"
LATE = "waits for more than"


def rests_are_longer_for_writers() -> AbstractContextManager[None]:
    """A commit reports the end of a rest only after a time in which looks have long become rare."""
    return patched((steps, "REST_MS", 60_000))


def first_commits_are_not_reported() -> AbstractContextManager[None]:
    """The first commit of a head ends no rest."""
    real = steps.Steps.ends_rest
    return patched(
        (steps.Steps, "ends_rest", lambda run, head: bool(head and head.version) and real(run, head))
    )


def refused_reports_are_given_up() -> AbstractContextManager[None]:
    """A report that lost its race against another one is not repeated."""
    real = News.report_again

    def report_again(self: News, request: Any, reply: StoreReply, *rest: Any, last: bool) -> Any:
        return () if isinstance(reply, Refused) else real(self, request, reply, *rest, last=last)

    return patched((News, "report_again", report_again))


def reports_replace_one_another() -> AbstractContextManager[None]:
    """A report is written whatever is there by then, as if it continued what was read."""
    real = News.report

    def report(self: News, *where: Any) -> Any:
        requests = real(self, *where)
        return tuple(Put(each.key, each.body) if isinstance(each, PutIfMatch) else each for each in requests)

    return patched((News, "report", report))


def gaps_are_passed_over() -> AbstractContextManager[None]:
    """A reader that does not find the latest notice it knows looks only where the last one leads."""
    real = NewsBoard._take_in

    def take_in(self: NewsBoard, reply: StoreReply, now: float) -> Any:
        known = self.read.known
        read = isinstance(reply, Found) and known is not None and self.since <= now
        if read and known.notices and self._last not in known.notices:  # type: ignore[union-attr]
            self._last = known.notices[-1]  # type: ignore[union-attr]
        return real(self, reply, now)

    return patched((NewsBoard, "_take_in", take_in))


CONTROLS: tuple[Control, ...] = (
    Control(
        "a commit reports the end of a rest before looks have become rare",
        rests_are_longer_for_writers,
        (in_runs(PROFILE, LATE),),
    ),
    Control(
        "the first commit of a head is reported",
        first_commits_are_not_reported,
        (in_runs(PROFILE, LATE),),
    ),
    Control("a refused report is repeated", refused_reports_are_given_up, (in_runs(PROFILE, LATE),)),
    Control(
        "a report replaces only what it continues", reports_replace_one_another, (in_runs(PROFILE, LATE),)
    ),
    Control(
        "after a gap in the notices each head is looked at", gaps_are_passed_over, (in_runs(PROFILE, LATE),)
    ),
)
