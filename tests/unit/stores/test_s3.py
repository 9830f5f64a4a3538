"""What the S3 store asks of its clients."""

from __future__ import annotations

import re
import tomllib

from tests.support.places import ROOT

OBSTORE_MIN = (
    0,
    11,
)  # before it, none could be told of an authority (ca=)


def test_every_extra_with_obstore_asks_for_one_that_keeps_the_stores_promises() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    asked = [
        re.fullmatch(r"obstore>=(\d+)\.(\d+)", each)
        for extra in project["optional-dependencies"].values()
        for each in extra
        if each.startswith("obstore")
    ]
    assert asked
    assert all(each and (int(each[1]), int(each[2])) >= OBSTORE_MIN for each in asked)
