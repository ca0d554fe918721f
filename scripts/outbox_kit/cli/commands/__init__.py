"""One module per noun of the command line. Shared options, output and prompts belong in `outbox_kit.cli`."""
