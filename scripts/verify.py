#!/usr/bin/env python3
"""Run `outbox verify` with the options of this command."""

import sys

from outbox_kit.cli import main

if __name__ == "__main__":
    sys.argv[1:1] = ["verify"]
    main()
