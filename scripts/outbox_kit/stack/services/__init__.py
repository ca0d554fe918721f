"""The services of the embedded stack, one module each. Process control belongs in `outbox_kit.stack`."""
