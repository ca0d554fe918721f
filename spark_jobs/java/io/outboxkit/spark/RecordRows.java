package io.outboxkit.spark;

import java.util.Iterator;
import java.util.NoSuchElementException;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.spark.sql.catalyst.InternalRow;

/**
 * Iterates over the rows of an offset range: the newest record per key of each buffer
 * (NewestTable), or, once few records are superseded, every record.
 */
final class RecordRows implements Iterator<InternalRow> {
  /** If a table retains a greater share of the records, it takes more time than it saves. */
  private static final double MAX_RETAINED_SHARE = 0.7;

  private static final int CHUNK_RECORDS = 16;

  private final PartitionReader reader;
  private final int partition;
  private final long bufferBytes;
  private final NewestTable.Entry[] chunk = new NewestTable.Entry[CHUNK_RECORDS];
  private NewestTable table;
  private int nextSlot;
  private boolean returnsEveryRecord;
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

  private InternalRow nextRecordRow() {
    ConsumerRecord<byte[], byte[]> record = reader.next();
    return record == null ? null : new NewestTable.Entry(record).row(partition);
  }

  private InternalRow nextRow() {
    while (true) {
      if (table == null) {
        if (returnsEveryRecord) {
          return nextRecordRow();
        }
        fill();
        if (table.isEmpty()) {
          return null;
        }
      }
      if (nextSlot < table.slots()) {
        NewestTable.Entry entry = table.take(nextSlot++);
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
    nextSlot = 0;
    long records = 0;
    int count = CHUNK_RECORDS;
    while (table.bytes() < bufferBytes && count == CHUNK_RECORDS) {
      count = fetchChunk();
      table.add(chunk, count);
      records += count;
    }
    returnsEveryRecord = table.size() > MAX_RETAINED_SHARE * records;
  }

  /** Fetches CHUNK_RECORDS records, or fewer at the end of the range, and returns their number. */
  private int fetchChunk() {
    int count = 0;
    ConsumerRecord<byte[], byte[]> record;
    while (count < CHUNK_RECORDS && (record = reader.next()) != null) {
      chunk[count++] = new NewestTable.Entry(record);
    }
    return count;
  }
}
