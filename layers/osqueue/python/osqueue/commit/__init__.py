"""The commit layer: how operations of many independent writers become one committed state, without a broker."""
