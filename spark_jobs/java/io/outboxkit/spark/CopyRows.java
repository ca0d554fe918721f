package io.outboxkit.spark;

import java.io.ByteArrayOutputStream;
import java.sql.Connection;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.spark.api.java.function.MapPartitionsFunction;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Encoder;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.Row;
import org.postgresql.Driver;
import org.postgresql.copy.CopyIn;
import org.postgresql.core.BaseConnection;
import scala.Tuple2;
import scala.jdk.javaapi.CollectionConverters;

/** Copies lines into a PostgreSQL table; each task attempt uses its own transaction. */
public final class CopyRows {
  /** Message of a failure, followed by the SQLSTATE only: the server's message quotes the row. */
  public static final String FAILED = "COPY failed, SQLSTATE ";

  private static final String NO_STATE = "-----";
  private static final int MESSAGE_BYTES = 1 << 16;

  private CopyRows() {}

  /**
   * Result of a copy.
   *
   * @param attempts transaction id and number of copied rows of each task attempt whose result
   *     Spark accepted
   * @param observed metrics of the lines' Dataset, by the name of the observation
   */
  public record Copied(List<List<Long>> attempts, Map<String, Row> observed) {}

  /**
   * Copies all lines. An attempt commits after its last line: if it fails before, it leaves no
   * rows; if it is lost afterwards, it leaves rows of a transaction that is not in the result.
   *
   * @param lines one binary column: lines of COPY's text format, including the line feed
   * @param table name as SQL text
   * @param settings JDBC driver settings
   */
  public static Copied into(
      String table, Dataset<Row> lines, String url, Map<String, String> settings) {
    Map<String, String> connection = Map.copyOf(settings);
    MapPartitionsFunction<byte[], Tuple2<Long, Long>> copy =
        rows -> copied(rows, "copy " + table + " from stdin", url, connection);
    Encoder<Tuple2<Long, Long>> pair = Encoders.tuple(Encoders.LONG(), Encoders.LONG());
    Dataset<Tuple2<Long, Long>> copied = lines.as(Encoders.BINARY()).mapPartitions(copy, pair);
    List<List<Long>> attempts =
        copied.collectAsList().stream()
            .map(attempt -> List.of(attempt._1(), attempt._2()))
            .toList();
    var observed = copied.queryExecution().observedMetrics();
    return new Copied(attempts, CollectionConverters.asJava(observed));
  }

  private static Iterator<Tuple2<Long, Long>> copied(
      Iterator<byte[]> lines, String statement, String url, Map<String, String> settings) {
    if (!lines.hasNext()) {
      return List.<Tuple2<Long, Long>>of().iterator();
    }
    Properties properties = new Properties();
    properties.putAll(settings);
    try (Connection connection = new Driver().connect(url, properties)) {
      connection.setAutoCommit(false);
      long transaction = begin(connection);
      long rows = send(lines, connection.unwrap(BaseConnection.class), statement);
      connection.commit();
      return List.of(new Tuple2<>(transaction, rows)).iterator();
    } catch (SQLException error) {
      String state = error.getSQLState();
      throw new IllegalStateException(FAILED + (state == null ? NO_STATE : state));
    }
  }

  private static long begin(Connection connection) throws SQLException {
    try (Statement statement = connection.createStatement()) {
      // The staging table is unlogged, so waiting for a WAL flush has no benefit.
      statement.execute("set local synchronous_commit = off");
      String query = "select pg_current_xact_id()::xid::text::bigint";
      try (ResultSet result = statement.executeQuery(query)) {
        result.next();
        return result.getLong(1);
      }
    }
  }

  private static long send(Iterator<byte[]> lines, BaseConnection connection, String statement)
      throws SQLException {
    CopyIn copy = connection.getCopyAPI().copyIn(statement);
    ByteArrayOutputStream message = new ByteArrayOutputStream(2 * MESSAGE_BYTES);
    long rows = 0;
    while (lines.hasNext()) {
      message.writeBytes(lines.next());
      rows++;
      if (message.size() >= MESSAGE_BYTES) {
        flush(message, copy);
      }
    }
    flush(message, copy);
    copy.endCopy();
    return rows;
  }

  private static void flush(ByteArrayOutputStream message, CopyIn copy) throws SQLException {
    copy.writeToCopy(message.toByteArray(), 0, message.size());
    message.reset();
  }
}
