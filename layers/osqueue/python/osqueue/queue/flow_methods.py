"""Turning a flow into a method: one that blocks, or a coroutine. So no method is written twice.

A class writes the flow ``_enqueue`` and ``enqueue = FlowMethod(_enqueue)``. In its subclasses that are ``Blocking``
``enqueue`` is a method, in those that are ``Awaiting`` a coroutine method: to callers, to type checkers, and to
``inspect.signature`` and ``help``.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Coroutine, Mapping
from types import FunctionType
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    ParamSpec,
    TypeVar,
    cast,
    get_args,
    get_origin,
    overload,
)

from ..commit.effects import QueueFlow

if TYPE_CHECKING:
    from inspect import Parameter, Signature

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])


class FlowMethod(Generic[P, R]):
    """A public method, as the flow that says what it does."""

    def __init__(self, flow: Callable[Concatenate[Any, P], QueueFlow[R]]) -> None:
        self.flow = flow
        flow.__name__ = flow.__qualname__ = flow.__name__.removeprefix(
            "_"
        )  # as in the error for a wrong argument

    if TYPE_CHECKING:  # what Blocking and Awaiting make of it

        @overload
        def __get__(self, instance: Blocking, owner: Any = None) -> Callable[P, R]: ...
        @overload
        def __get__(self, instance: Awaiting, owner: Any = None) -> Callable[P, Coroutine[Any, Any, R]]: ...
        @overload
        def __get__(self, instance: None, owner: type[Blocking]) -> Callable[Concatenate[Any, P], R]: ...
        @overload
        def __get__(
            self, instance: None, owner: type[Awaiting]
        ) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]: ...
        def __get__(self, instance: Any, owner: Any = None) -> Any: ...


class Blocking:
    """Runs flows on the calling thread: a subclass offers ``_run``."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        _make_methods(cls, _blocking)


class Awaiting:
    """Runs flows on the event loop: a subclass offers ``_run``, a coroutine method."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        _make_methods(cls, _awaiting)


def _make_methods(cls: type, made_of: Callable[[Any], Any]) -> None:
    types = _type_arguments(cls)
    for name in dir(cls):
        found = getattr(cls, name)
        if isinstance(found, FlowMethod):
            method = made_of(found.flow)
            method.__wrapped__ = shown = _ShownSignature(found.flow, types)
            method.__annotations__ = {**found.flow.__annotations__, "return": shown.returned}
            setattr(cls, name, method)


def _blocking(flow: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(flow)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return self._run(flow(self, *args, **kwargs))

    return method


def _awaiting(flow: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(flow)
    async def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return await self._run(flow(self, *args, **kwargs))

    return method


def with_options_of(find: Callable[[], Callable[..., Any]]) -> Callable[[F], F]:
    """A method passes its options on to what ``find`` returns: its signature shows them, with their defaults."""

    def decorate(function: F) -> F:
        code: Any = function
        twin: Any = FunctionType(code.__code__, code.__globals__, code.__name__, None, code.__closure__)
        functools.update_wrapper(twin, function)
        twin.__wrapped__ = _ShownSignature(function, {}, find)
        return cast("F", twin)

    return decorate


# ── What is shown of them ────────────────────────────────────────────────────
class _ShownSignature:
    """The signature of a function as callers see it. It is made when somebody looks: few do."""

    def __init__(
        self,
        function: Callable[..., Any],
        types: Mapping[str, str],
        passed_to: Callable[[], Callable[..., Any]] | None = None,
    ) -> None:
        self.__wrapped__ = function
        self._passed_to = passed_to
        self.returned = _returned(function, types)

    @property
    def __signature__(self) -> Signature:
        import inspect

        function = self.__wrapped__
        written = inspect.signature(function)
        taken = inspect.signature(self._passed_to()).parameters if self._passed_to else {}
        shown: list[Parameter] = []
        for each in written.parameters.values():
            if each.kind is each.VAR_KEYWORD and "Unpack[" in str(each.annotation):
                shown += _options(function, each, taken)
            else:
                shown.append(each)
        return written.replace(parameters=shown, return_annotation=self.returned)


def _returned(function: Callable[..., Any], types: Mapping[str, str]) -> str:
    """What a call returns: of a flow, what it ends with."""
    text = str(function.__annotations__["return"])
    if text.startswith(("QueueFlow[", "Flow[")):
        text = text[text.index("[") + 1 : -1]
    return re.sub(r"\w+", lambda word: types.get(word[0], word[0]), text)


def _type_arguments(cls: type) -> dict[str, str]:
    """What a class says for the type variables of those it is made of, such as Lease[T] for L."""
    found = {}
    for base in getattr(cls, "__orig_bases__", ()):
        variables = getattr(get_origin(base), "__parameters__", ())
        for variable, given in zip(variables, get_args(base), strict=False):
            inner = ", ".join(each.__name__ for each in get_args(given))
            found[variable.__name__] = f"{given.__name__}[{inner}]" if inner else given.__name__
    return found


def _options(
    function: Callable[..., Any], options: Parameter, taken: Mapping[str, Parameter]
) -> list[Parameter]:
    """The keys of a ``TypedDict`` as keyword arguments: None leaves out what ``taken`` gives no other default."""
    name = str(options.annotation).removeprefix("Unpack[").removesuffix("]")
    types: dict[str, Any] = function.__globals__[name].__annotations__
    return [
        options.replace(
            name=key,
            kind=options.KEYWORD_ONLY,
            annotation=getattr(each, "__forward_arg__", each),  # as text, where its module has types as text
            default=taken[key].default if key in taken else None,
        )
        for key, each in types.items()
    ]
