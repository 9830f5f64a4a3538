"""What each function may do in the bucket: one table for its role, for who gets a queue's part of the bucket, and for
docs/security.md.

**The boundary of trust is a queue's prefix.** Every function that commits rewrites the head of any queue, and takes
along whatever other callers have announced, so whoever may commit at all may change everything about a queue. The roles
keep functions from what no commit touches: other people's ids, the archive, backups, and deletion.

Patterns are those of IAM: ``?`` is one character, ``*`` any number of them, slashes too. Keys of a shard begin with
four hex digits and a slash (``osqueue.objects.layout``), and no other key has a slash in fifth place.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

SHARDS = "????/*"  # heads, clocks, segments, bodies, tables, events
HEADS = "????/*/*/head"
INTENTS = "intents/*"  # announcements, of every shard
SEGMENTS = "????/*/*/segments/*"
BODIES = "????/*/*/bodies/*"
TABLES = "????/*/*/finished/*"
EVENTS = "????/*/*/events/*"
UPLOADS = "????/*/*/uploads/*"  # payloads and results that are too large for a request
IDS = "ids/*"
REGISTER = "queues/*"
PACERS = "limits/*"  # the names of pacers
ARCHIVE = "archive/*"
BACKUPS = "backup/*"
BATCHES = "batches/*"  # of bulk writes, which Spark makes
WORKERS = "????/*/*/workers/*"  # what workers say of themselves
NEWS = "news"  # at which heads a rest has ended
KEPT = (ARCHIVE, BACKUPS)


class Access(Struct, frozen=True):
    """Keys by what may be done with them. Everybody may list keys: they hold no payload, no result and no id."""

    read: tuple[str, ...] = (SHARDS, INTENTS, NEWS)
    write: tuple[str, ...] = (SHARDS, INTENTS, NEWS)
    delete: tuple[str, ...] = (INTENTS,)  # whoever commits removes the announcements it took along
    borrows: bool = False  # does it claim, and so commit in the heads of limiters that queues share?

    def kept(self) -> Access:
        """What of it the bucket of several zones holds, where a directory bucket holds the rest."""
        read, write, delete = (
            tuple(each for each in keys if each in KEPT) for keys in (self.read, self.write, self.delete)
        )
        return Access(read, write, delete)


ACCESS: dict[str, Access] = {
    # A new id is entered, or read to tell a duplicate; the first job of a queue registers it.
    "enqueue": Access(read=(SHARDS, INTENTS, NEWS, IDS), write=(SHARDS, INTENTS, NEWS, IDS, REGISTER)),
    "claim": Access(borrows=True),
    "complete": Access(),
    "heartbeat": Access(delete=(INTENTS, WORKERS)),  # a worker that ends takes its entry away
    # Jobs are asked for by ids, and told of after the queue has forgotten them; a first upload registers its queue.
    "jobs": Access(read=(SHARDS, INTENTS, NEWS, IDS, ARCHIVE), write=(SHARDS, INTENTS, NEWS, REGISTER)),
    # Purging rewrites a job wherever it lies, in the archive and in backups, too; settings may make a queue.
    # A pacer is registered when it is created.
    "queues": Access(
        read=(SHARDS, INTENTS, NEWS, IDS, ARCHIVE, BACKUPS),
        write=(SHARDS, INTENTS, NEWS, REGISTER, PACERS, ARCHIVE, BACKUPS),
        delete=(INTENTS, BODIES, UPLOADS, IDS, ARCHIVE),
    ),
    # Upkeep: ids of jobs that are over, the archive, backups, old batches, lost workers, and what nobody refers to.
    "reaper": Access(
        read=(SHARDS, INTENTS, NEWS, IDS, ARCHIVE, BACKUPS, BATCHES),
        write=(SHARDS, INTENTS, NEWS, IDS, ARCHIVE, BACKUPS),
        delete=(INTENTS, SEGMENTS, BODIES, TABLES, EVENTS, UPLOADS, IDS, BACKUPS, BATCHES, WORKERS),
    ),
}

# A function that is attached to a queue claims, sends heartbeats and says how jobs ended: commits, and nothing else.
CONSUMER = Access(borrows=True)


def access_of(functions: Iterable[str], reads_only: bool = False) -> Access:
    """What several functions may do together; or what of it changes nothing."""
    found = [ACCESS[each] for each in functions]
    read = tuple(sorted({key for each in found for key in each.read}))
    if reads_only:
        return Access(read=read, write=(), delete=())
    return Access(
        read=read,
        write=tuple(sorted({key for each in found for key in each.write})),
        delete=tuple(sorted({key for each in found for key in each.delete})),
        borrows=any(each.borrows for each in found),
    )


# The same keys of one queue alone. Pacers are not of a queue.
OF_ONE_QUEUE: dict[str, str] = {
    SHARDS: "????/{queue}/*",
    SEGMENTS: "????/{queue}/*/segments/*",
    BODIES: "????/{queue}/*/bodies/*",
    TABLES: "????/{queue}/*/finished/*",
    EVENTS: "????/{queue}/*/events/*",
    UPLOADS: "????/{queue}/*/uploads/*",
    WORKERS: "????/{queue}/*/workers/*",
    INTENTS: "intents/????/{queue}/*",
    IDS: "ids/{queue}/*",
    REGISTER: "queues/{queue}",
    ARCHIVE: "archive/queue={queue}/*",
    BACKUPS: "backup/{queue}/*",
    BATCHES: "batches/{queue}/*",
    NEWS: NEWS,  # one object for all queues of a store
}

# And those of limiters: which of them a queue uses is a setting, so whoever borrows may borrow of any.
OF_LIMITERS: dict[str, str] = {SHARDS: "????/_limits/*", INTENTS: "intents/????/_limits/*"}

# Why a role names patterns and not keys.
WHY: dict[str, str] = {
    SHARDS: "Queues are made by their first job, and a commit writes everything below its shard's hash.",
    INTENTS: "Whoever commits reads and deletes the announcements of others, and each has a key of its own.",
    **dict.fromkeys(
        (SEGMENTS, BODIES, TABLES, EVENTS, UPLOADS),
        "What nobody refers to any more is deleted; its keys are drawn at random.",
    ),
    WORKERS: "A worker's entry has a key of its own, drawn at random.",
    IDS: "A client's id has one key, made of its hash.",
    REGISTER: "A queue has one key, its name; queues are made by their first job.",
    PACERS: "A pacer has one key, its name.",
    ARCHIVE: "The archive's parts are named by queue, hour and content.",
    BACKUPS: "The copies of heads and the lists of purged jobs are named by queue, shard and hour.",
    BATCHES: "A batch of a bulk write has one key, made of its id's hash.",
    NEWS: "One object names the heads at which a rest has ended, of all queues.",
}
