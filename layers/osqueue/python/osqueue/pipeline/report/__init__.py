"""The operations review: one HTML file that answers what is asked about a period's queues.

``model`` is what a report tells, as data. ``words`` writes its numbers, ``markup`` its tags, ``svg`` draws. Of these
the plots of ``timeline`` and ``patterns`` are made, with ``figures`` around them; ``page`` puts all in order. None of
them knows Spark. ``history``, ``steps`` and ``collect`` do: they add up the tables.
"""
