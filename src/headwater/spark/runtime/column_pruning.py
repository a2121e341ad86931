"""Only the columns a query uses are read, as Spark does for its own sources and not for ours.

Spark does not say to a Python source which columns are wanted. A rule of the optimizer gives a scan
below a projection a table with fewer columns instead: a count reads no payload, and what is not
used is neither copied nor sent. Only columns of the envelope are left out. Whether a payload
fits the fields of the options can be an error, and must not hang on the rest of a query.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headwater.spark.runtime.java_classes import COPIES, add_optimizer_rule, changed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME: Final = "only used columns"
_RULE: Final = "HeadwaterNarrowScans"

_JAVA: Final = (
    """\
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeSet;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.execution.datasources.v2.python.PythonTable;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import scala.collection.immutable.Nil$;
import scala.collection.immutable.Seq;

public class HeadwaterNarrowScans extends scala.runtime.AbstractFunction1 {
  // Of the envelope, those that cost least first: one of them stays where none is used.
  private static final List ENVELOPE = Arrays.asList(
    new Object[] {"seq", "ts", "topic", "tag", "node", "gap", "meta", "data"});

  // A plan that cannot be changed stays as it is. Logged once.
  private static boolean logged = false;

  static void leave(Throwable error) {
    if (logged) return;
    logged = true;
    org.slf4j.LoggerFactory.getLogger("HeadwaterNarrowScans")
      .error("every column is read: " + error);
  }

  public Object apply(Object session) { return new Narrowing(); }

  public static class Narrowing extends org.apache.spark.sql.catalyst.rules.Rule {
    public TreeNode apply(TreeNode plan) {
      try {
        return plan.transformUp(new Swap());
      } catch (RuntimeException error) {
        leave(error);
      } catch (LinkageError error) {
        leave(error);
      }
      return plan;
    }
  }

  public static class Swap extends scala.runtime.AbstractPartialFunction {
    public boolean isDefinedAt(Object node) {
      return node instanceof Project && kept((Project) node) != null;
    }

    public Object applyOrElse(Object node, scala.Function1 otherwise) {
      if (!isDefinedAt(node)) return otherwise.apply(node);
      try {
        return above((LogicalPlan) node, kept((Project) node));
      } catch (Exception error) {
        throw new IllegalStateException("a scan could not be made narrow", error);
      }
    }

    private static DataSourceV2Relation below(Project project) {
      LogicalPlan plan = project.child();
      while (plan instanceof Filter) plan = ((Filter) plan).child();
      if (!(plan instanceof DataSourceV2Relation)) return null;
      Object table = ((DataSourceV2Relation) plan).table();
      if (!(table instanceof PythonTable)) return null;
      return ((PythonTable) table).name().equalsIgnoreCase("headwater")
        ? (DataSourceV2Relation) plan : null;
    }

    // The indices of the columns that stay; null when all do.
    private static List kept(Project project) {
      DataSourceV2Relation relation = below(project);
      if (relation == null) return null;
      AttributeSet used = project.references();
      for (LogicalPlan plan = project.child(); plan instanceof Filter;
           plan = ((Filter) plan).child()) {
        used = used.$plus$plus(plan.references());
      }
      Seq output = relation.output();
      StructField[] fields = ((PythonTable) relation.table()).schema().fields();
      if (fields.length != output.length()) return null;
      List places = new ArrayList();
      int cheapest = -1;
      for (int place = 0; place < fields.length; place++) {
        Attribute column = (Attribute) output.apply(place);
        if (!column.name().equals(fields[place].name())) return null;
        int cost = ENVELOPE.indexOf(column.name());
        if (cost < 0 || used.contains(column)) places.add(Integer.valueOf(place));
        else if (cheapest < 0 || cost < ENVELOPE.indexOf(fields[cheapest].name())) cheapest = place;
      }
      if (places.isEmpty() && cheapest >= 0) places.add(Integer.valueOf(cheapest));
      return places.size() < fields.length ? places : null;
    }

    private static LogicalPlan above(LogicalPlan plan, List places) throws Exception {
      if (plan instanceof DataSourceV2Relation) return narrow((DataSourceV2Relation) plan, places);
      LogicalPlan child = (LogicalPlan) plan.children().head();
      Seq children = (Seq) Nil$.MODULE$.prepended(above(child, places));
      return (LogicalPlan) plan.withNewChildren(children);
    }

    private static LogicalPlan narrow(DataSourceV2Relation relation, List places) throws Exception {
      PythonTable table = (PythonTable) relation.table();
      StructField[] fields = new StructField[places.size()];
      Seq output = (Seq) Nil$.MODULE$;
      for (int place = places.size() - 1; place >= 0; place--) {
        int column = ((Integer) places.get(place)).intValue();
        fields[place] = table.schema().fields()[column];
        output = (Seq) output.prepended(relation.output().apply(column));
      }
      PythonTable smaller = HeadwaterCopies.alone(table, new StructType(fields));
      return (LogicalPlan) HeadwaterCopies.with(relation, new Object[] {smaller, output});
    }
  }
}
"""
    + COPIES
)


def read_narrowly(spark: SparkSession) -> bool:
    """Have scans read what is used; false where that cannot be, and everything is read."""
    return changed(
        spark,
        NAME,
        "every column is read",
        lambda gateway: add_optimizer_rule(spark, gateway, _JAVA, _RULE),
    )
