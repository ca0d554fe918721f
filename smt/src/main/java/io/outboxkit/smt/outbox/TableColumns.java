package io.outboxkit.smt.outbox;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonGenerator;
import java.io.IOException;
import java.util.List;
import org.apache.kafka.connect.data.Field;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.errors.DataException;
import org.apache.kafka.connect.header.ConnectHeaders;

/**
 * A row of the outbox table.
 *
 * @param at where its columns are
 */
record TableColumns(Struct row, Columns at) implements RowColumns {
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
  public void addPlacedTo(ConnectHeaders headers) {
    List<Columns.Placed> placed = at.placed();
    // By index: this is on the way of every record, mostly with none.
    for (int i = 0; i < placed.size(); i++) {
      RecordHeaders.add(headers, placed.get(i).header(), Columns.text(row, placed.get(i).column()));
    }
  }

  @Override
  public boolean payloadIsJson() {
    return RowJson.isJson(at.payload().schema());
  }

  @Override
  public void writeFields(JsonGenerator json, JsonFactory factory) throws IOException {
    RowJson.writeColumns(json, row, factory);
  }
}
