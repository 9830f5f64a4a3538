"""The handlers of all functions, by name: ``osqueue.aws_lambda.handlers.claim`` is the one of ``claim``.

The local stack runs these, so the installed package is enough for it. The deployed ``functions/<name>/handler.py``
makes the same object.
"""

from __future__ import annotations

from ..contract.functions import BY_NAME
from .handler import Function


def __getattr__(name: str) -> Function:
    """Open the function when its process asks for it: the others would open a store each, for nothing."""
    if name not in BY_NAME:
        raise AttributeError(f"there is no function {name}; there are {', '.join(BY_NAME)}")
    return Function(name)
