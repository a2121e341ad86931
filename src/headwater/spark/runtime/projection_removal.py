"""Rows of a scan are put together once. Spark would do it twice.

The reader of a Python source makes a row in Spark's own form of each row of a batch, and Spark
puts a projection above every scan that is not one of columns, which copies each of them once more
into the same form. Where that projection changes nothing, it is left out when a query is planned.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from headwater.spark.runtime.java_classes import changed, new

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME: Final = "rows put together once"
_STRATEGY: Final = "HeadwaterRowsOnce"
_BASE: Final = "org.apache.spark.sql.execution.SparkStrategy"

_JAVA: Final = """\
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.execution.FilterExec;
import org.apache.spark.sql.execution.ProjectExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.SparkStrategy;
import org.apache.spark.sql.execution.datasources.v2.BatchScanExec;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import org.apache.spark.sql.execution.datasources.v2.python.PythonScan;
import scala.collection.immutable.Nil$;
import scala.collection.immutable.Seq;

public class HeadwaterRowsOnce extends SparkStrategy {
  private final SparkStrategy usual;
  public HeadwaterRowsOnce(SparkStrategy usual) { this.usual = usual; }

  // A plan that cannot be changed stays as it is. Logged once.
  private static boolean logged = false;

  static void leave(Throwable error) {
    if (logged) return;
    logged = true;
    org.slf4j.LoggerFactory.getLogger("HeadwaterRowsOnce").error("rows are copied twice: " + error);
  }

  public Seq apply(LogicalPlan plan) {
    try {
      return shorter(plan);
    } catch (RuntimeException error) {
      leave(error);
    } catch (LinkageError error) {
      leave(error);
    }
    return (Seq) Nil$.MODULE$;
  }

  private Seq shorter(LogicalPlan plan) {
    Seq none = (Seq) Nil$.MODULE$;
    LogicalPlan below = plan;
    while (below instanceof Project || below instanceof Filter) {
      below = (LogicalPlan) below.children().head();
    }
    if (!(below instanceof DataSourceV2ScanRelation)) return none;
    if (!(((DataSourceV2ScanRelation) below).scan() instanceof PythonScan)) return none;
    Seq planned = (Seq) usual.apply(plan);
    if (planned.size() != 1 || !(planned.head() instanceof ProjectExec)) return none;
    ProjectExec project = (ProjectExec) planned.head();
    SparkPlan leaf = project.child();
    while (leaf instanceof FilterExec) leaf = ((FilterExec) leaf).child();
    if (!(leaf instanceof BatchScanExec)) return none;
    if (!project.projectList().equals(project.child().output())) return none;
    return (Seq) none.prepended(project.child());
  }
}
"""


def put_together_once(spark: SparkSession) -> bool:
    """Plan scans so in this session; false where that cannot be, and rows are copied twice."""
    return changed(spark, NAME, "rows are copied twice", partial(_add_strategy, spark))


def _add_strategy(spark: Any, gateway: Any) -> None:
    session = spark._jsparkSession
    planning = session.experimental()
    known = planning.extraStrategies()
    names = [known.apply(position).getClass().getName() for position in range(known.size())]
    if _STRATEGY not in names:
        usual = gateway.jvm.org.apache.spark.sql.execution.datasources.v2.DataSourceV2Strategy
        strategy = new(gateway, _JAVA, _STRATEGY, (_BASE, usual(session)))
        getattr(planning, "extraStrategies_$eq")(known.prepended(strategy))
