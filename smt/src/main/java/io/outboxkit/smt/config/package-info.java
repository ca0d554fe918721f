/** Options of the transforms. */
package io.outboxkit.smt.config;
