"""What the tests against the contract need of pytest."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _node_id(request: pytest.FixtureRequest) -> None:
    """Set the attribute of a test that schemathesis reads, and that pytest has no more since 9.2."""
    request.node._nodeid = request.node.nodeid
