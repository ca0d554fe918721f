/** The transforms themselves; what they are made of is in the packages below. */
package io.outboxkit.smt;
