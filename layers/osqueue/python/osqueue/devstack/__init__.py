"""The serverless bundle on one machine: ``osqueue dev``.

The Lambda handlers run as in AWS: in processes of the real runtime client, one request at a time each, frozen between
requests, stopped at their timeout. Around them stands what AWS has there: an HTTP API (``gateway``), the Invoke API
(``invoke``), the Runtime API (``runtime``), a schedule. Routes, timeouts and environment variables come from
``osqueue.contract``, which the CDK app reads as well.

>>> from osqueue.devstack import Stack
>>> with Stack(store="file://jobs", processes=8) as stack:   # doctest: +SKIP
...     Queue.connect(stack.url, "emails").enqueue({"to": "ada@example.com"})
"""

from .stack import Stack

__all__ = ["Stack"]
