package io.outboxkit.smt.compare;

import java.lang.annotation.ElementType;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;

/**
 * A test of one item of docs/eventrouter.md. It has a parameter {@link Sides} and must use a
 * transform of Debezium and one of outbox-kit.
 */
@Test
@ExtendWith(Sides.Parameter.class)
@Target(ElementType.METHOD)
@Retention(RetentionPolicy.RUNTIME)
@interface Compared {
  /** The name of the item. */
  String value();
}
