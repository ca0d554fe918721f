package io.outboxkit.spark;

import java.util.Iterator;
import java.util.NoSuchElementException;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.spark.sql.catalyst.InternalRow;

/** Rows of a range: fills a table, hands its rows on, and starts anew; or hands on every record. */
final class RecordRows implements Iterator<InternalRow> {
  /** A table that leaves more than this share of its records costs more than it saves. */
  private static final double USEFUL = 0.7;

  private static final int AT_ONCE = 16;

  private final PartitionReader reader;
  private final int partition;
  private final long keptBytes;
  private final NewestTable.Entry[] upcoming = new NewestTable.Entry[AT_ONCE];
  private NewestTable table;
  private int place;
  private boolean passing;
  private InternalRow next;

  RecordRows(PartitionReader reader, int partition, long keptBytes) {
    this.reader = reader;
    this.partition = partition;
    this.keptBytes = keptBytes;
  }

  @Override
  public boolean hasNext() {
    if (next == null) {
      next = kept();
    }
    return next != null;
  }

  @Override
  public InternalRow next() {
    if (!hasNext()) {
      throw new NoSuchElementException();
    }
    InternalRow row = next;
    next = null;
    return row;
  }

  private InternalRow single() {
    ConsumerRecord<byte[], byte[]> record = reader.next();
    return record == null ? null : new NewestTable.Entry(record).row(partition);
  }

  private InternalRow kept() {
    while (true) {
      if (table == null) {
        if (passing) {
          return single();
        }
        fill();
        if (table.isEmpty()) {
          return null;
        }
      }
      if (place < table.slots()) {
        NewestTable.Entry entry = table.take(place++);
        if (entry != null) {
          return entry.row(partition);
        }
      } else {
        table = null;
      }
    }
  }

  private void fill() {
    table = new NewestTable();
    place = 0;
    long taken = 0;
    int count = AT_ONCE;
    while (table.bytes() < keptBytes && count == AT_ONCE) {
      count = take();
      table.add(upcoming, count);
      taken += count;
    }
    passing = table.size() > USEFUL * taken;
  }

  /** The next few records; fewer than AT_ONCE: there are no more. */
  private int take() {
    int count = 0;
    ConsumerRecord<byte[], byte[]> record;
    while (count < AT_ONCE && (record = reader.next()) != null) {
      upcoming[count++] = new NewestTable.Entry(record);
    }
    return count;
  }
}
