"""The contract of a store, as tests that anybody who writes one can run with pytest.

    class TestMyStore(StoreContract):
        @pytest.fixture
        def open_store(self, tmp_path):
            return functools.partial(MyStore, tmp_path / "jobs")

Each test is one rule of the port. One that fails says which, and why the queue needs it. What a store does not offer
(turns, news of objects, presigned requests, a clock of its own) is skipped.
"""

from __future__ import annotations

from .listing import ListingRules
from .offers import OfferRules
from .opening import StoreOpener
from .racing import RacingRules
from .reading import ReadingRules
from .replacing import ReplacingRules
from .writing import WritingRules

__all__ = ["StoreContract"]


class StoreContract(
    ReadingRules, WritingRules, ReplacingRules, ListingRules, RacingRules, OfferRules, StoreOpener
):
    """All rules: subclass it under a name that begins with ``Test``, and say in ``open_store`` how to open your store.

    Another rule of your own is a method more. To leave one out, set its name to None, and say why.
    """
