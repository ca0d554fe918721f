"""`python -m outbox_spark` runs the command `outbox-materialize`."""

import sys

from outbox_spark.commands.materialize import main

if __name__ == "__main__":
    sys.exit(main())
