package io.outboxkit.smt.avro;

import com.fasterxml.jackson.core.JsonParser;
import java.io.IOException;
import java.math.BigDecimal;
import org.apache.avro.Conversions;
import org.apache.avro.LogicalTypes;
import org.apache.avro.Schema;

/** JSON numbers, or strings that hold one, as big-decimal: every value brings its own scale. */
final class BigDecimalWriter extends DecimalTextWriter {
  private static final Schema BYTES = Schema.create(Schema.Type.BYTES);

  private final Conversions.BigDecimalConversion conversion =
      new Conversions.BigDecimalConversion();

  BigDecimalWriter() {
    super("big-decimal");
  }

  @Override
  void write(JsonParser json, AvroOutput out) throws IOException, PayloadException {
    BigDecimal value = decimal(json);
    out.writeBytes(conversion.toBytes(value, BYTES, LogicalTypes.bigDecimal()).array());
  }
}
