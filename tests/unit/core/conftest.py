"""What tests of the core share: limits so small that a few jobs reach every mechanism."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from simulation.tight import limited


@pytest.fixture
def small(request: pytest.FixtureRequest) -> Iterator[None]:
    """The limits of the module's ``SMALL``: a few jobs fill lanes, windows, segments and labels."""
    with limited(request.module.SMALL):
        yield
