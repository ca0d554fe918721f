"""Commands of `outbox`, grouped by subject. Common options, output and prompts are in `outbox_kit.cli`."""
