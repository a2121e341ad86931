"""Small Java classes, compiled in the driver by the compiler that Spark itself brings.

Spark compiles generated code with it, so it is wherever Spark is. What is made here stays in the
driver: executors load classes from files, and never see these.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final

COPIES: Final = """
class HeadwaterCopies {
  // The same source in a table of its own, with these columns: a table keeps the plan of its scans.
  static PythonTable alone(PythonTable table, StructType schema) throws Exception {
    PythonDataSourceV2 alone = new PythonDataSourceV2();
    alone.setShortName(table.name());
    Field owner = PythonTable.class.getDeclaredField("ds");
    Field source = PythonDataSourceV2.class.getDeclaredField("dataSourceInPython");
    owner.setAccessible(true);
    source.setAccessible(true);
    source.set(alone, source.get(owner.get(table)));
    return new PythonTable(alone, table.name(), schema);
  }

  // The relation with these in place of its first values.
  static Object with(DataSourceV2Relation relation, Object[] first) throws Exception {
    Method[] methods = relation.getClass().getMethods();
    for (int i = 0; i < methods.length; i++) {
      if (methods[i].getName().equals("copy")) {
        Object[] values = new Object[methods[i].getParameterTypes().length];
        for (int j = 0; j < values.length; j++) {
          values[j] = j < first.length ? first[j]
            : relation.getClass().getMethod("copy$default$" + (j + 1), new Class[0])
                .invoke(relation, new Object[0]);
        }
        return methods[i].invoke(relation, values);
      }
    }
    throw new NoSuchMethodException("copy");
  }
}
"""
"""Java for classes that give a scan another table; behind their own, with the imports of both."""

_LOG: Final = logging.getLogger(__name__)
_logged: set[str] = set()


def errors() -> tuple[type[Exception], ...]:
    """What another Spark, or none of the classic kind, raises when its insides are called here."""
    from py4j.protocol import Py4JError

    return Py4JError, TypeError, AttributeError


def left_out(what: str, without: str, error: Exception) -> None:
    """This Spark is not what a class was written for: queries are slower, and as right. Logged
    once, by Python's own logging, for this may be a user's program."""
    if what not in _logged:
        _logged.add(what)
        why = next((line for line in reversed(str(error).splitlines()) if "Caused by" in line), "")
        reason = why.strip() or str(error).strip().partition("\n")[0]
        _LOG.warning("%s: not on this version of Spark, so %s (%s)", what, without, reason)


def changed(spark: Any, what: str, without: str, change: Callable[[Any], None]) -> bool:
    """Have Spark changed, given its gateway; False where that cannot be, and it is left out."""
    gateway = getattr(spark.sparkContext, "_gateway", None)
    if gateway is None:
        return False
    try:
        change(gateway)
    except errors() as error:  # another Spark, or none of the classic kind
        left_out(what, without, error)
        return False
    return True


def new(gateway: Any, source: str, name: str, *given: tuple[str, Any]) -> Any:
    """An object of the class of this name; for its constructor, the class and value of each."""
    jvm = gateway.jvm
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.Thread.currentThread().getContextClassLoader())
    compiler.cook(source)
    loader = compiler.getClassLoader()
    kinds = gateway.new_array(jvm.java.lang.Class, len(given))
    values = gateway.new_array(jvm.java.lang.Object, len(given))
    for position, (kind, value) in enumerate(given):
        kinds[position], values[position] = loader.loadClass(kind), value
    return loader.loadClass(name).getDeclaredConstructor(kinds).newInstance(values)


def add_optimizer_rule(spark: Any, gateway: Any, source: str, name: str) -> None:
    """A rule of the optimizer, made by the class of this name; once for each session."""
    session = spark._jsparkSession
    rules = session.extensions().buildOptimizerRules(session)
    known = [rules.apply(position).getClass().getName() for position in range(rules.size())]
    if not any(each.startswith(name) for each in known):
        session.extensions().injectOptimizerRule(new(gateway, source, name))
