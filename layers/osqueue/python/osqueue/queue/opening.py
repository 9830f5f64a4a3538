"""How a queue object comes to its store or API, and how long its operations may wait for others there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import limits
from ..errors import NotSupported, Rejected
from ..model.validation import milliseconds
from ..stores.address import is_remote, open_store
from ..stores.base import Store
from ..stores.counting import CountingStore

if TYPE_CHECKING:  # loaded where it is used
    from ..client.transports.base import Transport


class Windowed:
    """A queue object whose operations may wait for others, to share a commit."""

    window: float  # seconds
    _window_s: float  # the same; 0 while the window is suspended
    _commit_groups: Any  # by shard

    def _end_windows(self) -> list[Any]:
        """Commit now what waits for a window. Return the tasks that commit it, where tasks do."""
        ended = [group.end_window() for group in list(self._commit_groups.values())]
        return [task for task in ended if task is not None]

    def _suspend_window(self, suspended: bool) -> None:
        """Let no operation wait for others until this is called with False: the process is about to end."""
        self._window_s = 0.0 if suspended else self.window
        for group in list(self._commit_groups.values()):
            group.set_window(self._window_s)
        if suspended:
            self._end_windows()


def open_place(address: str) -> Store | Transport:
    """Open the store or the API at an address. Raises Rejected."""
    if is_remote(address):
        from ..client.transports.address import open_transport

        return open_transport(address)
    return open_store(address)


def window_seconds(window: float, timeout_s: float, place: Store | Transport) -> float:
    """Check for how many seconds an operation waits for others. Raises Rejected and NotSupported."""
    seconds = milliseconds(window, "window", 0, limits.WINDOW_MS_MAX) / 1000
    if seconds and not isinstance(place, CountingStore):
        raise NotSupported(
            "window: over an API its functions commit, and group what comes to them by themselves.",
            field="window",
        )
    if seconds > timeout_s / 2:
        raise Rejected(
            f"window: {seconds:g} s; a call has {timeout_s:g} s in all. Wait half of its timeout at most.",
            field="window",
        )
    return seconds
