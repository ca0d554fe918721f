/** What {@link io.outboxkit.smt.ParsePayload} is made of. */
package io.outboxkit.smt.parse;
