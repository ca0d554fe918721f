/** Helpers for text, JSON, bytes, timestamps and partitions. */
package io.outboxkit.smt.util;
