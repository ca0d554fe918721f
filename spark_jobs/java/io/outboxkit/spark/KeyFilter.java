package io.outboxkit.spark;

import static org.apache.spark.sql.functions.col;
import static org.apache.spark.sql.functions.xxhash64;

import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.api.java.UDF1;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.util.sketch.BloomFilter;

/**
 * SQL function that returns whether a hash may be that of a key in a batch. In the condition of a
 * MERGE, it removes nearly all rows of a large table before Spark shuffles and sorts them.
 *
 * <p>Spark's own expression for Bloom filters would print the filter in plans and in the commits of
 * Delta.
 */
public final class KeyFilter implements UDF1<Long, Boolean> {
  private static final long serialVersionUID = 1;
  // About 24 bits per key, so that few rows of a table with a billion rows pass the filter.
  private static final double FALSE_POSITIVES = 0.00001;

  private final BloomFilter hashes;

  private KeyFilter(BloomFilter hashes) {
    this.hashes = hashes;
  }

  /** Registers the function `name` for the xxhash64 of keys in a column of `rows`. */
  public static void register(String name, Dataset<Row> rows, String column, long count) {
    BloomFilter hashes =
        rows.select(xxhash64(col(column)).as("hash"))
            .stat()
            .bloomFilter("hash", count, FALSE_POSITIVES);
    rows.sparkSession().udf().register(name, new KeyFilter(hashes), DataTypes.BooleanType);
  }

  @Override
  public Boolean call(Long hash) {
    return hashes.mightContainLong(hash);
  }
}
