"""Small Java classes, compiled in the driver by the compiler that Spark itself brings.

Spark compiles generated code with it, so it is wherever Spark is. What is made here stays in the
driver: executors load classes from files, and never see these.
"""

from __future__ import annotations

from typing import Any


def errors() -> tuple[type[Exception], ...]:
    """What another Spark, or none of the classic kind, answers to what is asked of it here."""
    from py4j.protocol import Py4JError

    return Py4JError, TypeError, AttributeError


def new(gateway: Any, source: str, name: str, *given: tuple[str, Any]) -> Any:
    """An object of the class of this name; for its constructor, the class and value of each."""
    jvm = gateway.jvm
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.Thread.currentThread().getContextClassLoader())
    compiler.cook(source)
    loader = compiler.getClassLoader()
    kinds = gateway.new_array(jvm.java.lang.Class, len(given))
    values = gateway.new_array(jvm.java.lang.Object, len(given))
    for place, (kind, value) in enumerate(given):
        kinds[place], values[place] = loader.loadClass(kind), value
    return loader.loadClass(name).getDeclaredConstructor(kinds).newInstance(values)


def add_optimizer_rule(spark: Any, gateway: Any, source: str, name: str) -> None:
    """A rule of the optimizer, made by the class of this name; once for each session."""
    session = spark._jsparkSession
    rules = session.extensions().buildOptimizerRules(session)
    known = [rules.apply(place).getClass().getName() for place in range(rules.size())]
    if not any(each.startswith(name) for each in known):
        session.extensions().injectOptimizerRule(new(gateway, source, name))
