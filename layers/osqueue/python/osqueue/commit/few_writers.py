"""Few writers: how two to sixteen of them share a head without a listing.

An announcement is for crowds: it costs a write, and a listing that one commit pays for many requests. Few writers
*publish* instead. Each puts its request into an object of its own, its *publication*, which its next request replaces.
A commit finds the names of recent writers in their session rows, and reads their publications by GET. These are the
publication records of flat combining (D. Hendler et al., 2010). Announcements are their general form.

    alone               swap the known head; read the door beside every fourth swap
    others committed    GET the head and the door, apply what is published, swap; once more where that is lost
    leading             commits in quick succession by one writer: read all publications before each swap, or beside it
    led, or lost twice  publish, look at the head until a commit includes the request; without one for long enough: swap

A writer that has no recent row publishes at a *door*, an object that all of them share. One may replace the request of
another there. So a request that commits pass over is published again, and at last announced (``protocol``).

What makes announcements safe makes publications safe. A publication holds the whole request with its identity. The
session rows of the head decide whether it is applied, however often it is read, and from where. A late repeat of an
older publication can only hide a newer one: commits then pass over the newer one, as at the door.
"""

from __future__ import annotations

from .. import limits
from ..core.ops import Request
from ..core.state import State
from ..stores.base import Failed, Get, Put, Written
from .effects import All, Flow
from .request_status import CommitResult, RequestStatus, status_of_request
from .steps import BeginAgain, Steps
from .writer import HEAD, Head

SWAPS_BEFORE_PUBLISHING = 2  # that a writer loses before it publishes; one on a busy head
BUSY_WRITERS = 4  # that committed within BUSY_MS: a second swap would often be lost as well
BUSY_MS = limits.SECOND_MS
STREAK_MIN = 2  # commits in quick succession after the first, before others rely on the next one
AGAIN_NAMED = 4  # commits without a request, after which it is published again under its writer's name
AGAIN_AT_DOOR = 2  # commits without a request, after which it is published again at a door
LEFT_OUT_MAX = 3  # times, after which a request is announced: a commit that lists has a result for it
PASSED_OVER_MAX = 8  # commits without a published request, after which its writer swaps
AT_DOOR_MAX = 6  # commits without a request at a door, after which it is announced: others replace it there
DOOR_REQUESTS_MAX = 4  # looks in a row that found a request at a door: more wait, so list what is announced

# In times of a commit, chosen in the simulator.
PATIENCE_LED = 3.0  # without a new head, before a writer that is led swaps
PATIENCE = 1.2  # after publishing, where nobody leads
FOUND_FOR = 1.5  # what was read beside a swap is used for the next one
FIRST_LOOK = 0.45  # between publishing and the first look
NEXT_LOOK = 0.3  # between two looks
MUCH_SHORTER = 0.7  # than a commit is thought to take: by that much, others' commits correct it
REPEAT_SPREAD = 1.2  # a random part of it passes before a request is published again


def _is_busy(state: State) -> bool:
    """Return whether several writers committed just before this head."""
    since = state.now_ms - BUSY_MS
    return sum(1 for row in state.sessions.values() if row.at_ms > since) >= BUSY_WRITERS


class _Sharing:
    """One request of few writers, until some commit includes it."""

    def __init__(self, run: Steps, request: Request) -> None:
        self.run = run
        self.request = request
        self.writer = run.writer
        self.publications = run.writer.publications
        self.losses = int(run.lost)  # swaps of this call
        self.left_out = 0  # times that the head had no room for the request, or could not be reduced
        self.published: Put | None = None
        self.unpublished = False  # the store refuses its publications
        self.since = 0.0  # on the monotonic clock: when it was published, or a led writer last saw a new head
        self.passed_over = 0  # commits since
        self.others: list[Request] | None = None  # by the latest look; None: there is none that may be used

    def head(self) -> Head:
        head = self.writer.head
        assert head is not None
        return head

    def is_led(self) -> bool:
        """Return whether another writer commits in quick succession."""
        head = self.head()
        leads = head.state.streak >= STREAK_MIN and self.writer.contended(head)
        return leads and not self.writer.commits_again(head)

    def is_named(self) -> bool:
        """Return whether the request stands under its writer's own name, not at a door."""
        return self.published is not None and self.published.key.endswith(self.writer.env)

    def may_swap(self, head: Head) -> bool:
        """Return whether this writer commits now, rather than rely on another."""
        led = self.is_led()
        if self.published is None:
            if self.unpublished or (not self.losses and not self.writer.contended(head)):
                return True
            most = 1 if _is_busy(head.state) else SWAPS_BEFORE_PUBLISHING
            if self.others:  # this writer commits for both
                most *= 2
            return not led and self.losses < most
        patience = (PATIENCE_LED if led else PATIENCE) * self.writer.commit_seconds
        return self.writer.machine.monotonic() - self.since > patience or self.passed_over >= PASSED_OVER_MAX

    def flow(self) -> Flow[CommitResult | None]:
        run, writer = self.run, self.writer
        troubles = 0
        found = self.publications.take_found()
        looked_seconds = writer.machine.monotonic() - self.publications.found_at
        if writer.commits_again(self.head()) and looked_seconds < FOUND_FOR * writer.commit_seconds:
            self.others = found  # read beside the swap that made this head
            answer = yield from self.swap(self.head(), read=False)
            if answer is not None:
                return answer
        while writer.shares_head(head := self.head()) and self.left_out <= LEFT_OUT_MAX:
            swaps = self.may_swap(head)
            troubles = troubles + 1 if run.deadline.troubled or run.deadline.idle_refusals else 0
            if troubles > 1:
                yield from run.deadline.back_off(troubles)
            run.deadline.in_time()
            run.lost = run.deadline.troubled = False
            if not swaps and self.published is None:
                if (
                    not run.deadline.sent
                    and status_of_request(head.state, self.request) is not RequestStatus.PENDING
                ):
                    writer.redraw()  # a copy of this writer was faster, or its row is forgotten
                    raise BeginAgain
                yield from self.publish(FIRST_LOOK)
                continue
            looked = yield from self.survey(head, swaps)
            if looked is None:
                continue
            answer = yield from run.look(self.request, looked)
            if answer is not None or looked.version is None:
                return answer
            if run.refused is not None:
                run.deadline.refused(looked.version == run.refused.version, looked.version)
                run.refused = None
            if looked.version != head.version:
                self.learn_pace(looked.state.seq - head.state.seq)
                yield from self.note_new_head(swaps)
                if self.passed_over > (2 * PASSED_OVER_MAX if self.is_named() else AT_DOOR_MAX):
                    return None
            if swaps:
                answer = yield from self.swap(looked)
                if answer is not None:
                    return answer
            else:
                yield from run.deadline.pause(NEXT_LOOK * writer.commit_seconds)
        return None

    def swap(self, head: Head, *, read: bool = True) -> Flow[CommitResult | None]:
        """Commit the request and all that was found, on a head that was just read or made."""
        others, run = self.others or [], self.run
        if self.publications.door_requests > DOOR_REQUESTS_MAX:
            self.publications.door_requests = 0
            answer = yield from run.combine(self.request, head, noted=others)
        else:
            answer = yield from run.apply(self.request, head, others, read=read)
        self.losses += run.lost
        self.left_out += answer is None and not run.lost
        return answer

    def survey(self, head: Head, read: bool) -> Flow[Head | None]:
        """Read the head, and what others published where this writer is going to commit."""
        writer = self.writer
        began = writer.machine.moment()
        looks = self.publications.looks(head.state, writer.env, writer.contended(head)) if read else []
        news = self.run.looks_at_news()
        replies = yield All((Get(writer.root + HEAD, unless=head.version), *news, *looks))
        self.run.deadline.complain(replies[0])  # a look that fails finds nothing
        looked = writer.see(replies[0], began)
        if writer.news is not None:
            writer.news.see(news, replies[1 : 1 + len(news)], began.monotonic)
        if not read:
            self.others = None
        elif looked is not None:
            self.publications.note_look(writer.machine.monotonic() - began.monotonic)
            found = replies[1 + len(news) :]
            self.others = self.publications.take_in(looked.state, writer.env, looks, found)
        return looked

    def publish(self, pause: float) -> Flow[None]:
        """Put the request where the next commit looks. From here on any commit may apply it."""
        run = self.run
        run.deadline.send()
        put = self.writer.publication_of(self.request, self.head())
        reply = yield put
        run.deadline.complain(reply)
        self.since = self.writer.machine.monotonic()
        if isinstance(reply, Written):
            self.published = put
            yield from run.deadline.pause(pause * self.writer.commit_seconds)
        elif isinstance(reply, Failed) and reply.error.permanent:
            self.unpublished = True

    def learn_pace(self, commits: int) -> None:
        """Learn from others how short a commit is: a writer that is led makes none."""
        now, before = self.writer.machine.monotonic(), self.publications.changed_at
        self.publications.changed_at = now
        seconds = (now - before) / max(1, commits)
        if self.is_led() and seconds < MUCH_SHORTER * self.writer.commit_seconds:
            self.writer.commit_seconds += 0.2 * (seconds - self.writer.commit_seconds)

    def note_new_head(self, swaps: bool) -> Flow[None]:
        """Note that a commit passed over the request; publish it again where that is not read any more, or hidden."""
        if self.published is None:
            return
        self.passed_over += 1
        if self.is_led():
            self.since = self.writer.machine.monotonic()
        if swaps:
            return
        named, again = self.is_named(), self.writer.publication_of(self.request, self.head())
        unread = named and not again.key.endswith(self.writer.env)
        if unread or self.passed_over % (AGAIN_NAMED if named else AGAIN_AT_DOOR) == 0:
            spread = REPEAT_SPREAD * self.writer.commit_seconds * self.writer.machine.uniform()
            yield from self.run.deadline.pause(spread)
            since = self.since
            yield from self.publish(0.0)
            self.since = since


def commit_among_few(run: Steps, request: Request) -> Flow[CommitResult | None]:
    """Commit a request whose writer has met others. None: announce it."""
    return (yield from _Sharing(run, request).flow())
