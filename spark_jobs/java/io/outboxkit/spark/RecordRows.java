package io.outboxkit.spark;

import java.util.Iterator;
import java.util.NoSuchElementException;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.spark.sql.catalyst.InternalRow;

/**
 * Rows of offset ranges: the newest record of each key in each buffer (a NewestTable), which has
 * records of only one partition. Without a buffer, and after a buffer in which few records were
 * superseded, every record becomes a row.
 */
final class RecordRows implements Iterator<InternalRow> {
  /** If a table retains a greater share of its records, filling it costs more than it saves. */
  private static final double MAX_RETAINED_SHARE = 0.7;

  private static final int CHUNK_RECORDS = 16;

  private final PartitionReader reader;
  private final Iterator<NewestRecords.Range> ranges;
  private final long bufferBytes;
  private final boolean requiresSequence;
  private final NewestTable.Entry[] chunk = new NewestTable.Entry[CHUNK_RECORDS];
  private int partition = -1; // no range has been opened
  private NewestTable table;
  private int nextSlot;
  private boolean returnsEveryRecord;
  private InternalRow nextRow;

  RecordRows(
      PartitionReader reader,
      Iterator<NewestRecords.Range> ranges,
      long bufferBytes,
      boolean requiresSequence) {
    this.reader = reader;
    this.ranges = ranges;
    this.bufferBytes = bufferBytes;
    this.requiresSequence = requiresSequence;
    returnsEveryRecord = bufferBytes == 0;
  }

  @Override
  public boolean hasNext() {
    if (nextRow == null && partition >= 0) {
      nextRow = findNextRow();
    }
    while (nextRow == null && ranges.hasNext()) {
      NewestRecords.Range range = ranges.next();
      partition = range.partition();
      reader.open(range);
      nextRow = findNextRow();
    }
    return nextRow != null;
  }

  @Override
  public InternalRow next() {
    if (!hasNext()) {
      throw new NoSuchElementException();
    }
    InternalRow row = nextRow;
    nextRow = null;
    return row;
  }

  private InternalRow nextRecordRow() {
    ConsumerRecord<byte[], byte[]> record = reader.next();
    return record == null ? null : new NewestTable.Entry(record, requiresSequence).toRow(partition);
  }

  private InternalRow findNextRow() {
    while (true) {
      if (table == null) {
        if (returnsEveryRecord) {
          return nextRecordRow();
        }
        fill();
        if (table.isEmpty()) {
          table = null;
          return null;
        }
      }
      if (nextSlot < table.slotCount()) {
        NewestTable.Entry entry = table.take(nextSlot++);
        if (entry != null) {
          return entry.toRow(partition);
        }
      } else {
        table = null;
      }
    }
  }

  private void fill() {
    table = new NewestTable();
    nextSlot = 0;
    long recordCount = 0;
    int count = CHUNK_RECORDS;
    while (table.sizeInBytes() < bufferBytes && count == CHUNK_RECORDS) {
      count = fetchChunk();
      table.add(chunk, count);
      recordCount += count;
    }
    returnsEveryRecord = table.size() > MAX_RETAINED_SHARE * recordCount;
  }

  /** Reads records into `chunk` until it is full or the range ends; returns their number. */
  private int fetchChunk() {
    int count = 0;
    ConsumerRecord<byte[], byte[]> record;
    while (count < CHUNK_RECORDS && (record = reader.next()) != null) {
      chunk[count++] = new NewestTable.Entry(record, requiresSequence);
    }
    return count;
  }
}
