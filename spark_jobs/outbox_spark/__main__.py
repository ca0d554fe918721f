"""`python -m outbox_spark` runs the command `outbox-materialize`."""

import sys

from outbox_spark.console_scripts import materialize

if __name__ == "__main__":
    sys.exit(materialize())
