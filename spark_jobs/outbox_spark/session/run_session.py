"""Create a run's Spark session, which is separate from the caller's and has the settings on which results depend.

Delta and Iceberg take the metadata of a commit from settings of the session. In a shared session, a commit of another
thread would therefore contain the progress of the run.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from pyspark import RDD, SparkContext
from pyspark.sql import DataFrame, SparkSession

from outbox_spark.jobs.model import MaterializeJob
from outbox_spark.session.error_redaction import JVM_ENDED
from outbox_spark.session.requirements import has_class
from outbox_spark.session.settings import DELTA_CATALOG, PINNED_SETTINGS, is_copied
from outbox_spark.session.stage_metrics import label_spark_jobs

CATALOG_PREFIX = "outbox_"
"""Prefix of the names of the Iceberg catalogs that runs configure in their session."""
_HADOOP_CATALOG = "HadoopCatalog"
_MARK = "spark.outbox.session"
"""Setting that marks the sessions of runs, so that a run within a run uses the same session."""
_JOB_PROPERTIES = ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel")
"""Names of the thread's local properties that label_spark_jobs changes."""

_PYSPARK_LOCK = threading.Lock()
"""Held while a thread changes RDD.toDF or SparkSession._activeSession, which all threads share."""
_previously_active: dict[SparkSession, SparkSession | None] = {}
"""Maps each current run's session to the value of SparkSession._activeSession before any overlapping run."""

_P = ParamSpec("_P")
_R = TypeVar("_R")


@contextmanager
def run_session(spark: SparkSession, job: MaterializeJob) -> Iterator[SparkSession]:
    """Yield a new session of the same application, which is this thread's active session inside `with`.

    The session has PINNED_SETTINGS and a copy of the settings of `spark` for which `is_copied` is true. At the end, the
    active session and the job group of the thread are restored, and the Iceberg catalogs of the run are closed. If
    `spark` is already the session of a run, `spark` itself is yielded.
    """
    if spark.conf.get(_MARK, None) is not None:
        yield spark
        return
    session = _new_session(spark)
    with (
        _python_session_restored(session),
        _active(session),
        local_properties_restored(session.sparkContext, _JOB_PROPERTIES),
        _catalogs_closed(session),
    ):
        label_spark_jobs(session, job, "prepare")
        yield session


def in_run_session(
    function: Callable[Concatenate[SparkSession, MaterializeJob, _P], _R],
) -> Callable[Concatenate[SparkSession, MaterializeJob, _P], _R]:
    """Decorate `function` so that it is called with the session of `run_session` instead of the caller's session."""

    @wraps(function)
    def wrapper(spark: SparkSession, job: MaterializeJob, /, *arguments: _P.args, **options: _P.kwargs) -> _R:
        with run_session(spark, job) as session:
            return function(session, job, *arguments, **options)

    return wrapper


def active_session() -> SparkSession:
    """Return this thread's active session. PySpark's SparkSession.active() can return the session of another thread."""
    context: Any = SparkContext._active_spark_context
    java_session = _session_class(context).active()
    for session in list(_previously_active):
        if session._jsparkSession.equals(java_session):
            return session
    return _python_session(context, java_session)


def rows_in(spark: SparkSession, frame: DataFrame) -> DataFrame:
    """Return the rows of `frame` as a DataFrame of the session `spark`. Expressions keep the settings of `frame`."""
    jvm: Any = spark._jvm
    plan = frame._jdf.queryExecution().analyzed()
    return DataFrame(jvm.org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, plan), spark)


def without_rows(frame: DataFrame) -> DataFrame:
    """Return an empty DataFrame with the schema of `frame`. Unlike createDataFrame, this keeps the active session."""
    spark: Any = frame.sparkSession
    rows = spark._jvm.java.util.ArrayList()
    return DataFrame(spark._jsparkSession.createDataFrame(rows, frame._jdf.schema()), spark)


def hadoop_configuration(spark: SparkSession) -> Any:  # noqa: ANN401 - org.apache.hadoop.conf.Configuration
    """Return the Hadoop configuration of the session, which includes the settings of spark.conf.set."""
    return spark._jsparkSession.sessionState().newHadoopConf()


def _new_session(spark: SparkSession) -> SparkSession:
    session = _python_session(spark.sparkContext, spark._jsparkSession.newSession())
    existing, copied = session.conf.getAll, spark.conf.getAll
    settings = {name: value for name, value in copied.items() if is_copied(name) and existing.get(name) != value}
    settings |= {**PINNED_SETTINGS, _MARK: "true"}
    if has_class(spark, DELTA_CATALOG):
        # The application may have a different session catalog, which cannot resolve Delta tables by path.
        settings["spark.sql.catalog.spark_catalog"] = DELTA_CATALOG
    for name, value in settings.items():
        session.conf.set(name, value)
    return session


def _python_session(context: SparkContext, java_session: Any) -> SparkSession:  # noqa: ANN401 - py4j's JavaObject
    """Create a PySpark session, but undo the constructor's side effect that RDD.toDF uses the new session."""
    with _PYSPARK_LOCK:
        to_df = getattr(RDD, "toDF", None)
        session = SparkSession(context, java_session)
        RDD.toDF = to_df  # type: ignore[assignment, method-assign]  # restore the function of an earlier session
    return session


@contextmanager
def _python_session_restored(session: SparkSession) -> Iterator[None]:
    """After `with`, ensure that no run's session remains PySpark's active session, which createDataFrame sets globally.

    A session that other code has made active in the meantime remains active.
    """
    with _PYSPARK_LOCK:
        active = SparkSession._activeSession
        if active in _previously_active:  # this is the session of another run, not the caller's
            active = _previously_active[active]
        _previously_active[session] = active
    try:
        yield
    finally:
        with _PYSPARK_LOCK:
            if SparkSession._activeSession in _previously_active:
                SparkSession._activeSession = _previously_active[session]
            del _previously_active[session]


@contextmanager
def _active(session: SparkSession) -> Iterator[None]:
    """Make `session` the active session of this thread inside `with`, because Iceberg and Delta use that session."""
    session_class = _session_class(session.sparkContext)
    previous = session_class.getActiveSession()
    session_class.setActiveSession(session._jsparkSession)
    try:
        yield
    finally:
        with suppress(*JVM_ENDED):  # the JVM may have ended, but the error of the `with` block must be reported
            if previous.isDefined():
                session_class.setActiveSession(previous.get())
            else:
                session_class.clearActiveSession()


@contextmanager
def local_properties_restored(context: SparkContext, names: Iterable[str]) -> Iterator[None]:
    """Restore the local properties of this thread at the end of `with`."""
    previous = {name: context.getLocalProperty(name) for name in names}
    try:
        yield
    finally:
        with suppress(*JVM_ENDED):  # as above
            for name, value in previous.items():
                context.setLocalProperty(name, value)  # type: ignore[arg-type]  # None removes it


@contextmanager
def _catalogs_closed(session: SparkSession) -> Iterator[None]:
    """At the end of `with`, close the Iceberg catalogs that runs loaded in the session, and ignore errors.

    Otherwise, until the application ends, clients of REST catalogs would refresh their tokens, and connections of JDBC
    catalogs would remain open.
    """
    try:
        yield
    finally:
        with suppress(*JVM_ENDED):  # the JVM may have ended, but the result or error of the run must be reported
            for catalog in _loaded_catalogs(session):
                # All Hadoop catalogs of the JVM share their locks, and closing one catalog removes the locks of all.
                if catalog.getClass().getSimpleName() != _HADOOP_CATALOG:
                    catalog.close()


def _loaded_catalogs(session: SparkSession) -> Iterator[Any]:
    """Yield the loaded catalogs of runs (org.apache.iceberg.catalog.Catalog), without loading other catalogs."""
    jvm: Any = session._jvm
    manager = session._jsparkSession.sessionState().catalogManager()
    for name in manager.listCatalogs(jvm.scala.Option.empty()).mkString("\n").split("\n"):
        if name.startswith(CATALOG_PREFIX):
            yield manager.catalog(name).icebergCatalog()


def _session_class(context: SparkContext) -> Any:  # noqa: ANN401 - py4j's JavaClass
    return _session_class_in(context._jvm)


@lru_cache(maxsize=2)
def _session_class_in(jvm: Any) -> Any:  # noqa: ANN401 - py4j's JVMView and JavaClass
    return jvm.org.apache.spark.sql.classic.SparkSession  # Py4J asks the JVM about each part of the name
