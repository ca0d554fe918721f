package io.outboxkit.spark;

import java.util.Iterator;
import java.util.NoSuchElementException;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.spark.sql.catalyst.InternalRow;

/** Rows of a range: fills a NewestTable, or returns all records if few are superseded. */
final class RecordRows implements Iterator<InternalRow> {
  /** Above this share of retained records the table takes more time than it saves. */
  private static final double MAX_RETAINED_SHARE = 0.7;

  private static final int CHUNK = 16;

  private final PartitionReader reader;
  private final int partition;
  private final long bufferBytes;
  private final NewestTable.Entry[] upcoming = new NewestTable.Entry[CHUNK];
  private NewestTable table;
  private int slot;
  private boolean passThrough;
  private InternalRow next;

  RecordRows(PartitionReader reader, int partition, long bufferBytes) {
    this.reader = reader;
    this.partition = partition;
    this.bufferBytes = bufferBytes;
  }

  @Override
  public boolean hasNext() {
    if (next == null) {
      next = nextRow();
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

  private InternalRow nextUnreduced() {
    ConsumerRecord<byte[], byte[]> record = reader.next();
    return record == null ? null : new NewestTable.Entry(record).row(partition);
  }

  private InternalRow nextRow() {
    while (true) {
      if (table == null) {
        if (passThrough) {
          return nextUnreduced();
        }
        fill();
        if (table.isEmpty()) {
          return null;
        }
      }
      if (slot < table.slots()) {
        NewestTable.Entry entry = table.take(slot++);
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
    slot = 0;
    long records = 0;
    int count = CHUNK;
    while (table.bytes() < bufferBytes && count == CHUNK) {
      count = fetchChunk();
      table.add(upcoming, count);
      records += count;
    }
    passThrough = table.size() > MAX_RETAINED_SHARE * records;
  }

  /** Fetches up to CHUNK records; fewer at the end of the range. */
  private int fetchChunk() {
    int count = 0;
    ConsumerRecord<byte[], byte[]> record;
    while (count < CHUNK && (record = reader.next()) != null) {
      upcoming[count++] = new NewestTable.Entry(record);
    }
    return count;
  }
}
