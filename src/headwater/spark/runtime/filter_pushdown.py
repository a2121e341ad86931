"""Keeping scans apart: each scan of a query is planned for itself, whatever others were pushed.

Spark 4.2 and 4.3 keep the plan of a Python source, its pushed filters included, with the table that
a DataFrame was loaded as. A second query on the same DataFrame, or a second scan of it in one
query, is then answered with the filters of the first or the last: rows are missing without
an error. Until Spark fixes that, a rule of the optimizer gives each scan a table of its own
before anything is pushed.

Where the rule cannot be had, filters are not pushed: slower, and never wrong.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from headwater.spark.runtime.java_classes import COPIES, add_optimizer_rule, changed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME: Final = "filters in the source"
PUSHDOWN: Final = "spark.sql.python.filterPushdown.enabled"
_RULE: Final = "HeadwaterScansApart"
_KEPT_WITH_THE_TABLE: Final = "setReadInfo"
_SCAN_SOURCE: Final = "org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2"

_JAVA: Final = (
    """\
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.util.Map;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.execution.datasources.v2.python.PythonTable;
import org.apache.spark.sql.types.StructType;

public class HeadwaterScansApart extends scala.runtime.AbstractFunction1 {
  final Map own = java.util.Collections.synchronizedMap(new java.util.WeakHashMap());

  // What is called in Spark's classes when a query is planned is called here first: a rule that is
  // not there costs time, one that cannot do its work would cost the query.
  public HeadwaterScansApart() throws Exception {
    PythonTable.class.getDeclaredField("ds");
    PythonDataSourceV2.class.getDeclaredField("dataSourceInPython");
    DataSourceV2Relation.class.getMethod("copy$default$2", new Class[0]);
  }

  public Object apply(Object session) { return new Separating(own); }

  public static class Separating extends org.apache.spark.sql.catalyst.rules.Rule {
    private final Map own;
    public Separating(Map own) { this.own = own; }
    public TreeNode apply(TreeNode plan) { return plan.transformUp(new Swap(own)); }
  }

  public static class Swap extends scala.runtime.AbstractPartialFunction {
    private final Map own;
    public Swap(Map own) { this.own = own; }

    public boolean isDefinedAt(Object node) {
      if (!(node instanceof DataSourceV2Relation)) return false;
      Object table = ((DataSourceV2Relation) node).table();
      return table instanceof PythonTable && !own.containsKey(table);
    }

    public Object applyOrElse(Object node, scala.Function1 otherwise) {
      if (!isDefinedAt(node)) return otherwise.apply(node);
      try {
        return separate((DataSourceV2Relation) node);
      } catch (Exception error) {
        throw new IllegalStateException("a scan could not be kept apart from the others", error);
      }
    }

    private Object separate(DataSourceV2Relation relation) throws Exception {
      PythonTable table = (PythonTable) relation.table();
      PythonTable copy = HeadwaterCopies.alone(table, table.schema());
      own.put(copy, Boolean.TRUE);
      return HeadwaterCopies.with(relation, new Object[] {copy});
    }
  }
}
"""
    + COPIES
)


def pushes_safely(spark: SparkSession) -> bool:
    """True when filters may be pushed in this session; makes sure of it where that is possible."""
    if str(spark.conf.get(PUSHDOWN, "false")).lower() != "true":
        return False
    return changed(spark, NAME, "filters are left to Spark", partial(_separate, spark))


def _separate(spark: SparkSession, gateway: Any) -> None:
    if not _is_fixed(gateway.jvm):
        add_optimizer_rule(spark, gateway, _JAVA, _RULE)


def _is_fixed(jvm: Any) -> bool:
    """A Spark whose tables keep no plan needs no rule."""
    loader = jvm.Thread.currentThread().getContextClassLoader()
    methods = loader.loadClass(_SCAN_SOURCE).getDeclaredMethods()
    return all(method.getName() != _KEPT_WITH_THE_TABLE for method in methods)
