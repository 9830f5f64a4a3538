"""The tables and the archive as definitions for Athena, or as inputs for Glue.

osqueue pipeline ddl s3://bucket/tables --store s3://bucket/prefix --queue emails
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence

from ...errors import Rejected
from ...model.printable import as_json, of_few_characters
from .. import catalog

NAME = re.compile(r"[a-z0-9_]{1,255}")


def main(arguments: Sequence[str] | None = None) -> int:
    """The entry point of ``osqueue pipeline ddl``: statements, or one line of JSON for each table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("tables", help="address of the folder of the tables, s3://")
    parser.add_argument("--store", help="address of the store, for the archive as a table, too")
    parser.add_argument("--database", default="osqueue", help="in which Athena has them (osqueue)")
    parser.add_argument("--queue", action="append", default=[], help="that there is; may be given again")
    parser.add_argument("--glue", action="store_true", help="print TableInputs for Glue")
    given = parser.parse_args(arguments)
    if not NAME.fullmatch(given.database):
        raise Rejected("database: use lower-case letters, digits and _ alone.", field="database")
    for table in catalog.catalogue(given.tables, given.store, given.queue):
        if given.glue:
            print(as_json(catalog.glue(table), of_few_characters(sys.stdout)))
        else:
            print(f"{catalog.athena(table, given.database)}\n")
    return 0
