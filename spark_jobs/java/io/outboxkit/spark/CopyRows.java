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
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.adaptive.AdaptiveSparkPlanExec;
import org.apache.spark.sql.execution.columnar.InMemoryTableScanExec;
import org.apache.spark.sql.execution.exchange.Exchange;
import org.postgresql.Driver;
import org.postgresql.copy.CopyIn;
import org.postgresql.core.BaseConnection;
import scala.Tuple2;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Copies lines in PostgreSQL's COPY text format to a table. Each task attempt is a transaction. The
 * plan can be executed repeatedly, each time with another table.
 */
public final class CopyRows {
  /** Start of the error message, which ends with the SQLSTATE because it must not quote rows. */
  public static final String FAILED = "COPY failed, SQLSTATE ";

  private static final String NO_SQLSTATE = "-----";
  private static final int MIN_MESSAGE_BYTES = 1 << 16;

  private final Dataset<Row> lines;
  private final StringBuilder statement = new StringBuilder();
  private final String url;
  private final Map<String, String> settings;
  private Dataset<Tuple2<Long, Long>> executed;

  /**
   * Creates a plan, which Spark does not analyze or execute yet.
   *
   * @param lines one binary column; each value is a line including its line feed
   * @param settings JDBC driver settings
   */
  public CopyRows(Dataset<Row> lines, String url, Map<String, String> settings) {
    this.lines = lines;
    this.url = url;
    this.settings = Map.copyOf(settings);
  }

  /**
   * Result of a copy.
   *
   * @param attempts transaction id and number of copied rows of each task attempt whose result
   *     Spark accepted
   * @param observed metrics of the Dataset of lines, by the name of the observation
   */
  public record Copied(List<List<Long>> attempts, Map<String, Row> observed) {}

  /**
   * Copies all lines. A task attempt commits after its last line, so a failed attempt leaves no
   * rows. If Spark loses the result of a committed attempt, `attempts` omits it; its rows remain.
   *
   * @param table name of the table as SQL text
   */
  public Copied into(String table) {
    statement.replace(0, statement.length(), "copy " + table + " from stdin");
    Dataset<Tuple2<Long, Long>> plan = executed == null ? plan() : executed;
    executed = null; // Spark keeps the error of an execution, too
    List<List<Long>> attempts =
        plan.collectAsList().stream()
            .map(attempt -> List.of(attempt._1(), attempt._2()))
            .toList();
    var observed = plan.queryExecution().observedMetrics();
    executed = isRepeatable(plan.queryExecution().executedPlan()) ? plan : null;
    return new Copied(attempts, CollectionConverters.asJava(observed));
  }

  private Dataset<Tuple2<Long, Long>> plan() {
    // Local variables, so that the function, which Java serializes for each job, does not refer to
    // this object.
    StringBuilder currentStatement = statement;
    String address = url;
    Map<String, String> properties = settings;
    MapPartitionsFunction<byte[], Tuple2<Long, Long>> copy =
        partition -> copyPartition(partition, currentStatement.toString(), address, properties);
    Encoder<Tuple2<Long, Long>> encoder = Encoders.tuple(Encoders.LONG(), Encoders.LONG());
    return lines.as(Encoders.BINARY()).mapPartitions(copy, encoder);
  }

  /** Returns whether each execution reads the source, because no part of the plan keeps rows. */
  private static boolean isRepeatable(SparkPlan plan) {
    return !(plan instanceof AdaptiveSparkPlanExec
            || plan instanceof Exchange
            || plan instanceof InMemoryTableScanExec)
        && CollectionConverters.asJava(plan.children()).stream().allMatch(CopyRows::isRepeatable);
  }

  private static Iterator<Tuple2<Long, Long>> copyPartition(
      Iterator<byte[]> lines, String statement, String url, Map<String, String> settings) {
    if (!lines.hasNext()) {
      return List.<Tuple2<Long, Long>>of().iterator();
    }
    Properties properties = new Properties();
    properties.putAll(settings);
    try (Connection connection = new Driver().connect(url, properties)) {
      connection.setAutoCommit(false);
      long transactionId = begin(connection);
      long rowCount = send(lines, connection.unwrap(BaseConnection.class), statement);
      connection.commit();
      return List.of(new Tuple2<>(transactionId, rowCount)).iterator();
    } catch (SQLException error) {
      String sqlState = error.getSQLState();
      throw new IllegalStateException(FAILED + (sqlState == null ? NO_SQLSTATE : sqlState));
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
    ByteArrayOutputStream message = new ByteArrayOutputStream(2 * MIN_MESSAGE_BYTES);
    long rowCount = 0;
    while (lines.hasNext()) {
      message.writeBytes(lines.next());
      rowCount++;
      if (message.size() >= MIN_MESSAGE_BYTES) {
        flush(message, copy);
      }
    }
    flush(message, copy);
    copy.endCopy();
    return rowCount;
  }

  private static void flush(ByteArrayOutputStream message, CopyIn copy) throws SQLException {
    copy.writeToCopy(message.toByteArray(), 0, message.size());
    message.reset();
  }
}
