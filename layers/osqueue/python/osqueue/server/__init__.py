"""The HTTP API: what travels between callers and the functions, and what answers it.

``bodies`` says what requests and answers look like, ``routes`` which there are, ``functions`` which Lambda function
answers which and within which limits, ``faults`` how errors travel. The client (``osqueue.client``), the server
(``api.server``), the local stack, the CDK app and ``openapi.json`` are all made from these tables, so they cannot
disagree. A direct invocation of a function carries the same bodies.
"""
