package io.outboxkit.spark;

import java.util.Arrays;
import java.util.Iterator;
import java.util.NoSuchElementException;
import org.apache.spark.api.java.JavaRDD;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.array.ByteArrayMethods;

/**
 * Drops rows that are older than another row of the same key and the same task, before they are
 * sorted and shuffled: what is left of a topic with ten records a key is a tenth.
 *
 * <p>It is no reduction by itself. A key whose records are in two tasks, or on both sides of a
 * flush, keeps a row in each; the aggregation that follows decides. So the table here may be given
 * up at any time, and its size is bounded.
 */
public final class NewestRows {
  private static final int HASH = 0;
  private static final int KEY = 1;
  private static final int SEQUENCE = 2;
  private static final int OFFSET = 3;

  private NewestRows() {}

  /**
   * Rows of {@code frame} without those that are superseded. Its columns are: hash of the key
   * (bigint), key (binary), sequence (binary), offset (bigint), others, and last the number of
   * records that a row stands for (bigint) and a set of bits (int); these two are added up.
   *
   * @param limit bytes of rows that one task keeps before it hands them on
   */
  public static Dataset<Row> of(Dataset<Row> frame, long limit) {
    int fields = frame.schema().size();
    var rows =
        ((org.apache.spark.sql.classic.Dataset<Row>) frame).queryExecution().toRdd().toJavaRDD();
    JavaRDD<InternalRow> newest = rows.mapPartitions(in -> new Newest(in, fields, limit));
    var session = (org.apache.spark.sql.classic.SparkSession) frame.sparkSession();
    return session.internalCreateDataFrame(newest.rdd(), frame.schema(), false);
  }

  /** Fills a table, hands its rows on, and starts anew; or hands all on where filling does not pay. */
  private static final class Newest implements Iterator<InternalRow> {
    /** A table that leaves more than this share of its rows costs more than it saves. */
    private static final double USEFUL = 0.7;

    private final Iterator<InternalRow> in;
    private final int fields;
    private final long limit;
    private Table table;
    private int next;
    private boolean passing;

    Newest(Iterator<InternalRow> in, int fields, long limit) {
      this.in = in;
      this.fields = fields;
      this.limit = limit;
    }

    @Override
    public boolean hasNext() {
      while (true) {
        if (table != null) {
          while (next < table.rows.length && table.rows[next] == null) {
            next++;
          }
          if (next < table.rows.length) {
            return true;
          }
          table = null;
        }
        if (!in.hasNext()) {
          return false;
        }
        if (passing) {
          return true;
        }
        fill();
      }
    }

    @Override
    public InternalRow next() {
      if (!hasNext()) {
        throw new NoSuchElementException();
      }
      return table == null ? in.next() : table.rows[next++];
    }

    private void fill() {
      table = new Table(fields);
      next = 0;
      long taken = 0;
      while (table.bytes < limit && in.hasNext()) {
        table.add((UnsafeRow) in.next());
        taken++;
      }
      passing = table.size > USEFUL * taken;
    }
  }

  /** The newest row of each key, by open addressing. Rows without a key are all kept. */
  private static final class Table {
    private static final int FIRST_SIZE = 1 << 12;
    /** Roughly what a row costs besides its bytes. */
    private static final int OVERHEAD = 80;

    private final int records;
    private final int kinds;
    private UnsafeRow[] rows = new UnsafeRow[FIRST_SIZE];
    private int size;
    private long bytes;

    Table(int fields) {
      records = fields - 2;
      kinds = fields - 1;
    }

    void add(UnsafeRow row) {
      int at = place(rows, row);
      while (rows[at] != null) {
        if (sameKey(rows[at], row)) {
          merge(rows[at], row);
          return;
        }
        at = at + 1 & rows.length - 1;
      }
      rows[at] = row.copy();
      bytes += row.getSizeInBytes() + OVERHEAD;
      if (++size * 2 > rows.length) {
        grow();
      }
    }

    private void merge(UnsafeRow kept, UnsafeRow row) {
      long count = kept.getLong(records) + row.getLong(records);
      int bits = kept.getInt(kinds) | row.getInt(kinds);
      if (newer(row, kept)) {
        replace(kept, row);
      }
      kept.setLong(records, count);
      kept.setInt(kinds, bits);
    }

    /** Into the memory that is there where it is large enough: most rows are replaced many times. */
    private void replace(UnsafeRow kept, UnsafeRow row) {
      int length = row.getSizeInBytes();
      byte[] memory = (byte[]) kept.getBaseObject();
      if (memory.length < length) {
        bytes += length - memory.length;
        memory = new byte[length];
      }
      Platform.copyMemory(
          row.getBaseObject(), row.getBaseOffset(), memory, Platform.BYTE_ARRAY_OFFSET, length);
      kept.pointTo(memory, Platform.BYTE_ARRAY_OFFSET, length);
    }

    private void grow() {
      UnsafeRow[] larger = new UnsafeRow[rows.length * 2];
      for (UnsafeRow row : rows) {
        if (row != null) {
          int at = place(larger, row);
          while (larger[at] != null) {
            at = at + 1 & larger.length - 1;
          }
          larger[at] = row;
        }
      }
      rows = larger;
    }

    private static int place(UnsafeRow[] rows, UnsafeRow row) {
      long hash = row.getLong(HASH);
      return (int) (hash ^ hash >>> 32) & rows.length - 1;
    }

    private static boolean sameKey(UnsafeRow one, UnsafeRow other) {
      if (one.getLong(HASH) != other.getLong(HASH) || one.isNullAt(KEY) || other.isNullAt(KEY)) {
        return false;
      }
      // Of a variable field: offset in the upper half, size in the lower one.
      long first = one.getLong(KEY);
      long second = other.getLong(KEY);
      return (int) first == (int) second
          && ByteArrayMethods.arrayEquals(
              one.getBaseObject(),
              one.getBaseOffset() + (first >>> 32),
              other.getBaseObject(),
              other.getBaseOffset() + (second >>> 32),
              (int) first);
    }

    /** By (sequence, offset) as the aggregation compares them: NULL first, bytes unsigned. */
    private static boolean newer(UnsafeRow row, UnsafeRow than) {
      int order;
      if (row.isNullAt(SEQUENCE) || than.isNullAt(SEQUENCE)) {
        order = Boolean.compare(than.isNullAt(SEQUENCE), row.isNullAt(SEQUENCE));
      } else {
        order = Arrays.compareUnsigned(row.getBinary(SEQUENCE), than.getBinary(SEQUENCE));
      }
      return order > 0 || order == 0 && row.getLong(OFFSET) > than.getLong(OFFSET);
    }
  }
}
