package io.outboxkit.spark;

import static org.apache.spark.sql.functions.col;
import static org.apache.spark.sql.functions.xxhash64;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.expressions.BloomFilterMightContain;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.XxHash64;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.util.sketch.BloomFilter;

/**
 * SQL function that returns whether a key may be in a batch. In the condition of a MERGE, it
 * removes nearly all rows of a large table before Spark shuffles and sorts them for the join.
 */
public final class KeyFilter {
  private static final double FALSE_POSITIVES = 0.01;

  private KeyFilter() {}

  /** Registers the function `name` for the keys in a column of `rows`, about `count` keys. */
  public static void register(String name, Dataset<Row> rows, String column, long count)
      throws IOException {
    BloomFilter hashes =
        rows.select(xxhash64(col(column)).as("hash"))
            .stat()
            .bloomFilter("hash", count, FALSE_POSITIVES);
    var bytes = new ByteArrayOutputStream();
    hashes.writeTo(bytes);
    var filter = Literal.create(bytes.toByteArray(), DataTypes.BinaryType);
    // A Java UDF would convert each key of the table to a Java string.
    ((org.apache.spark.sql.classic.SparkSession) rows.sparkSession())
        .sessionState()
        .functionRegistry()
        .createOrReplaceTempFunction(
            name, key -> new BloomFilterMightContain(filter, new XxHash64(key)), "scala_udf");
  }
}
