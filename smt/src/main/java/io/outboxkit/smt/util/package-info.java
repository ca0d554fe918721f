/** Text, bytes, hashes and timestamps. */
package io.outboxkit.smt.util;
