"""A value that an object computes when it is first read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Self, TypeVar, overload

T_co = TypeVar("T_co", covariant=True)


class lazy(Generic[T_co]):  # noqa: N801 - a decorator
    """A property that is computed once and then kept.

    Unlike ``functools.cached_property`` it holds no lock. In Python 3.11 all objects of a class share that lock, and it
    stays held in a fork's child if another thread computed a value at the fork. Two threads may both compute.

    >>> class Circle:
    ...     @lazy
    ...     def area(self) -> int:
    ...         return 3
    >>> Circle().area
    3
    """

    def __init__(self, compute: Callable[[Any], T_co]) -> None:
        self._compute = compute
        self._name = compute.__name__
        self.__doc__ = compute.__doc__

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type) -> T_co: ...
    def __get__(self, instance: object | None, owner: type) -> Self | T_co:
        if instance is None:
            return self
        value = instance.__dict__[self._name] = self._compute(instance)
        return value
