"""The type of payloads, as type checkers know it: Any, where nobody says another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:  # they know defaults already; Python has them from 3.13 on
    from typing_extensions import TypeVar as TypeVarWithDefault

    T = TypeVarWithDefault("T", default=Any)
    T_co = TypeVarWithDefault("T_co", covariant=True, default=Any)
else:
    T = TypeVar("T")
    T_co = TypeVar("T_co", covariant=True)
