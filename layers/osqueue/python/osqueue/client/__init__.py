"""Everything a Queue does over an API, as flows: the remote mode. ``flows`` puts them together.

The flows have the methods of ``osqueue.operations``, so Queue, AsyncQueue, leases, the worker and the command line are
the same for both. They yield calls and pauses, and turn answers into what callers see. Nothing is kept between calls.

``call`` decides what is repeated and for how long, ``content`` how payloads and results travel.
"""
