"""``python -m osqueue``: the command line, for where the console script is not on the path."""

from runpy import run_module

run_module("osqueue.cli", run_name="__main__")  # by name: the library itself never imports its command line
