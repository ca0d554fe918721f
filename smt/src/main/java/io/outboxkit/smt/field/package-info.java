/**
 * Places in a record that the transforms' options name: {@code key}, {@code header.x}, {@code
 * value.a.b}.
 */
package io.outboxkit.smt.field;
