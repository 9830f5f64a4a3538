"""The HTTP API: what travels between callers and the functions, and what answers it.

The tables are in ``osqueue.contract``: ``schemas`` has the requests and answers, ``operations`` the routes,
``functions`` which Lambda function answers a route and its limits, ``error_codes`` how errors travel. The client
(``osqueue.client``), the server (``server.app``), the local stack, the CDK app and ``openapi.json`` are all made from
them, so they cannot disagree. A direct invocation of a function carries the same bodies.
"""
