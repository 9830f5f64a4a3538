"""How long a test waits for what surely comes.

Whoever waits that long has found a hang, not a slow machine: one whose disk stands still for a minute, or which has
four others to serve, is no defect of ours.
"""

from __future__ import annotations

PATIENCE = 600  # seconds
