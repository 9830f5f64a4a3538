"""The requests that others have announced: what one commit takes along, and what is settled and can go."""

from __future__ import annotations

from .. import limits
from ..core import intents
from ..core.ops import Request
from ..core.reduce import applicable
from ..core.spill import refusal_count
from ..stores.base import Found, Get, List, Listed
from .deadline import Deadline
from .effects import All, Flow
from .publications import is_unread
from .writer import HEAD, Head, ShardWriter

LISTS_PER_LOOK_MAX = 4  # pages of intents read at most for one commit


class Announcements:
    """What one commit has heard of."""

    def __init__(self, writer: ShardWriter, deadline: Deadline, *, unpublish: bool = False) -> None:
        """``unpublish`` removes all publications as well: a writer that still waits publishes again."""
        self.writer = writer
        self.unpublish = unpublish
        self.deadline = deadline
        self.heard: dict[str, Request] = {}  # by key

    def gather(
        self, head: Head, request: Request, listed: Listed | None
    ) -> Flow[tuple[list[Request], tuple[str, ...], Head] | None]:
        """The requests to apply besides this one, and the keys of those that are settled and can be deleted."""
        writer, place, mine = (
            self.writer,
            intents.intents_prefix(self.writer.root),
            intents.public_identity(request),
        )
        found: list[intents.IntentName] = []  # the oldest first, as their keys sort
        done: list[str] = []
        after, known = "", 0
        for _ in range(LISTS_PER_LOOK_MAX):
            if listed is None:
                reply = yield List(place, after=after)
                if not isinstance(reply, Listed):
                    self.deadline.complain(reply)
                    return None
                listed = reply
            for key in listed.keys:
                publisher = intents.writer_of_publication(key[len(place) :])
                if publisher is not None and (self.unpublish or is_unread(publisher, head.state)):
                    done.append(key)
                name = intents.parse_intent_key(key[len(place) :])
                if name is None or name.request == mine:
                    continue
                if applicable(head.state, name.request):
                    found.append(name)
                    known += self.decode_from_key(name, head)
                else:
                    done.append(key)
            if not listed.more or known >= limits.INTENTS_PER_COMMIT_MAX:
                break
            after, listed = listed.keys[-1], None
        unread = [name for name in found if name.key not in self.heard]
        del unread[limits.INTENTS_PER_COMMIT_MAX :]  # some may never be readable: they keep no other one out
        if unread:
            began = writer.machine.moment()
            again = Get(writer.root + HEAD, unless=head.version)
            replies = yield All((again, *(Get(place + name.key) for name in unread)))
            head = writer.see(replies[0], began) or head
            for name, reply in zip(unread, replies[1:], strict=True):
                if isinstance(reply, Found) and (one := intents.read_intent(name, reply.body)) is not None:
                    self.heard[name.key] = one
        heard = [self.heard[name.key] for name in found if name.key in self.heard]
        if refusal_count(head.state) >= limits.TURNED_AWAY_MAX:
            # Newcomers can neither be applied nor be told so: they do not stand before those who have a row.
            heard.sort(key=lambda each: each.env not in head.state.sessions)
        # Runs of one batch share a request, and its keys differ with the seals of their time.
        told = {each.identity: each for each in heard[: limits.INTENTS_PER_COMMIT_MAX]}
        return intents.within_bytes(list(told.values())), tuple(done), head

    def decode_from_key(self, name: intents.IntentName, head: Head) -> bool:
        """Is an announced request known without reading its object?"""
        if (
            name.key not in self.heard
            and (told := intents.request_in_key(name, head.state.seals)) is not None
        ):
            self.heard[name.key] = told
        return name.key in self.heard
