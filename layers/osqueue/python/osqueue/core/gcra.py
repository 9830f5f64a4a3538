"""GCRA, the generic cell rate algorithm as *virtual scheduling* (ITU-T I.371, annex A).

A token bucket that is kept as one time, the theoretical arrival time ``TAT`` at which the bucket is full again:

    a start of u units is allowed at t   ⇔   t ≥ TAT − (burst − u)·interval
    it moves                                 TAT = max(TAT, t) + u·interval

So in any window of length W at most ``W / interval + burst`` units start.

**On credit.** A start of u units that may take place where one unit may, and moves the TAT by all u, leaves a debt,
which keeps back those after it. Nobody has to look how many units come next, and no u is too large. Of starts t₁ … tₙ
the last one finds ``TAT ≥ t₁ + (u₁ + … + uₙ₋₁)·interval``, and ``tₙ ≥ TAT − (burst − 1)·interval``. So in any window of
length W at most ``W / interval + burst + (u − 1)`` units start, u being those of the last start in it: the rate holds
in the long run, and one start goes beyond the burst.

Times are integer microseconds, of whatever clock the caller keeps.
"""

from __future__ import annotations


def allowed(
    tat_us: int, now_us: int, interval_us: int, burst: int, units: int = 1, near_us: int | None = None
) -> int:
    """How many starts are allowed from now on, one after the other, the last of them no later than ``near_us``.

    Without that all of them are now.
    """
    tolerance = (burst - units) * interval_us
    if tolerance < 0:  # the bucket never holds as many
        return 0
    near = now_us if near_us is None else near_us
    return max(0, (near + tolerance - max(tat_us, now_us)) // (units * interval_us) + 1)


def moved(tat_us: int, now_us: int, interval_us: int, units: int = 1) -> int:
    """The TAT after a start of so many units, or after several of so many together."""
    return max(tat_us, now_us) + units * interval_us


def next_us(tat_us: int, now_us: int, interval_us: int, burst: int, units: int = 1) -> int:
    """When the next start is allowed."""
    return max(now_us, tat_us - (burst - units) * interval_us)
