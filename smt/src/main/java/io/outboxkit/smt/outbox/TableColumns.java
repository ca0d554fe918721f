package io.outboxkit.smt.outbox;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonGenerator;
import java.io.IOException;
import org.apache.kafka.connect.data.Field;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.errors.DataException;

/** A row of the outbox table. */
record TableColumns(Struct row) implements RowColumns {
  @Override
  public void requireUsable() {}

  @Override
  public String partitionText(String column, String aggregateType) {
    Field field = row.schema().field(column);
    if (field == null) {
      throw new DataException(
          "The outbox table has no column "
              + column
              + "; set aggregate."
              + aggregateType
              + ".partition.field to a column that it has, or leave it out.");
    }
    return Columns.text(row, field);
  }

  @Override
  public void writeFields(JsonGenerator json, JsonFactory factory) throws IOException {
    RowJson.writeColumns(json, row, factory);
  }
}
