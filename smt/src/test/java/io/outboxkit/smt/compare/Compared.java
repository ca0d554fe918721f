package io.outboxkit.smt.compare;

import java.lang.annotation.ElementType;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;

/**
 * A test that backs one line of docs/eventrouter.md. It has a parameter {@link Sides} and has to
 * use a transform of either side.
 */
@Test
@ExtendWith(Sides.Parameter.class)
@Target(ElementType.METHOD)
@Retention(RetentionPolicy.RUNTIME)
@interface Compared {
  /** What the line begins with. */
  String value();
}
