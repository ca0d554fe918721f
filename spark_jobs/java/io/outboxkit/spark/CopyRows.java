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

/** Copies lines into a table of PostgreSQL, each try of a task in a transaction of its own. */
public final class CopyRows {
  /** Followed by an SQLSTATE: all that is said of a failure, as the server's words quote the row. */
  public static final String REFUSED = "COPY was refused, SQLSTATE ";

  private static final String NO_STATE = "-----";
  private static final int MESSAGE_BYTES = 1 << 16;

  private CopyRows() {}

  /**
   * What became of the lines.
   *
   * @param tries of each try that counts the id of its transaction and how many rows it copied
   * @param observed of the lines' Dataset, by the name that it was observed under
   */
  public record Copied(List<List<Long>> tries, Map<String, Row> observed) {}

  /**
   * Copies every line. A try commits after its last line: one that fails before leaves nothing, one
   * that is lost after leaves rows whose transaction nobody reports.
   *
   * @param lines one binary column: lines of COPY's text format, each with its line feed
   * @param table as SQL text
   * @param settings of the JDBC driver
   */
  public static Copied into(
      String table, Dataset<Row> lines, String url, Map<String, String> settings) {
    Map<String, String> connection = Map.copyOf(settings);
    MapPartitionsFunction<byte[], Tuple2<Long, Long>> copy =
        rows -> copied(rows, "copy " + table + " from stdin", url, connection);
    Encoder<Tuple2<Long, Long>> pair = Encoders.tuple(Encoders.LONG(), Encoders.LONG());
    Dataset<Tuple2<Long, Long>> copied = lines.as(Encoders.BINARY()).mapPartitions(copy, pair);
    List<List<Long>> tries =
        copied.collectAsList().stream().map(each -> List.of(each._1(), each._2())).toList();
    return new Copied(tries, CollectionConverters.asJava(copied.queryExecution().observedMetrics()));
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
      throw new IllegalStateException(REFUSED + (state == null ? NO_STATE : state));
    }
  }

  private static long begin(Connection connection) throws SQLException {
    try (Statement statement = connection.createStatement()) {
      // Staging is not logged: there is nothing to wait for.
      statement.execute("set local synchronous_commit = off");
      try (ResultSet found = statement.executeQuery("select pg_current_xact_id()::xid::text::bigint")) {
        found.next();
        return found.getLong(1);
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
