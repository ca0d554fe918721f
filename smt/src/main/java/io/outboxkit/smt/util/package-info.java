/** What the transforms share and what knows nothing of outboxes. */
package io.outboxkit.smt.util;
