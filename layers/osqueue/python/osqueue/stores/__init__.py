"""Stores: places that keep objects behind one small port, and the addresses that name them."""
