"""The proof of the commit protocol: the real code in virtual time, on a store that does its worst.

    world      virtual time and the processes in it: freezes, crashes
    network    what happens to a request between a client and the store: latency, loss, repetition
    truth      the store itself: objects, versions, a clock
    tight      limits made small, so that every mechanism is at work in a short run
    ledger     everything that was committed and everything a client was told
    invariants what must hold after every commit
    leases     does each last as long as it should?
    releases   two releases of the code, and what the newer one keeps
    progress   is what was announced soon part of a commit?
    places     where every job of a head is
    shelves    what the tables of finished jobs hold, and what a commit may do to them
    stories    what became of every job and of every client's id, moment by moment
    clients    who uses the queue: producers, workers, cancellers, operators, reapers
    callers    who uses the library: few ids, shared by many, and what can be asked of them
    loaders    who loads bulks of many tasks: drivers that fail, give up, stall and die
    loads      did each bulk come in as a whole, and once?
    answers    was a client told the truth of its commit?
    promises   was a caller told the truth of its job?
    profile    how bad it gets
    run        one seed from start to accounting
    scenes     interleavings that chance finds too seldom, step by step
    explore    every interleaving of a few clients, with the adversary's moves
    disk       the model of a disk: what a power cut may leave of it
    posix      a folder's system calls on that disk
    baton      programs that block, one at a time
    relied     what a folder's store promised, and what its callers rely on
    power      power cuts while several processes use a queue in a folder
    power_scenes  and between another's write and its flush
    mutations  the protocol with one safety check removed: each must be caught

``python -m simulation soak`` runs seed after seed; a failing seed replays exactly.
"""

from __future__ import annotations

import logging

# Clocks of the simulation are ahead on purpose: without a handler each warning of it would be written to stderr.
logging.getLogger("osqueue.clock").addHandler(logging.NullHandler())
