"""The readable page of the API: one file, no library, works offline."""

from typing import Final

DOCS_PAGE: Final = b"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Headwater API</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
:root { color-scheme: light dark; font-family: system-ui, sans-serif; line-height: 1.5 }
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
details { border: 1px solid #8884; border-radius: .4rem; margin: .5rem 0; padding: .4rem .8rem }
summary { cursor: pointer } code, pre { font-family: ui-monospace, monospace }
.method { display: inline-block; min-width: 4.5rem; font-weight: 700 }
pre { overflow: auto; background: #8881; padding: .6rem; border-radius: .3rem }
</style></head><body>
<h1>Headwater API</h1>
<p>Generated from the routes of this server: <a href="/openapi.json">openapi.json</a>.</p>
<main id="routes">Loading.</main>
<script>
const make = (kind, text, into) => {
  const e = document.createElement(kind); e.textContent = text; into.append(e); return e };
fetch("/openapi.json").then(r => r.json()).then(doc => {
  const main = document.getElementById("routes"); main.textContent = "";
  for (const [path, methods] of Object.entries(doc.paths))
    for (const [method, op] of Object.entries(methods)) {
      const box = make("details", "", main), head = make("summary", "", box);
      make("span", method.toUpperCase(), head).className = "method";
      make("code", path, head); make("span", "  " + op.summary, head);
      if (op.parameters.length) make("pre", op.parameters.map(p =>
        `${p.in} ${p.name}: ${p.schema.type}  ${p.description || ""}`).join("\\n"), box);
      const body = op.requestBody && op.requestBody.content["application/json"].schema;
      if (body) make("pre", JSON.stringify(doc.components.schemas[body.$ref.split("/").pop()],
        null, 1), box);
      make("pre", Object.entries(op.responses).map(([s, r]) => s + "  " + r.description)
        .join("\\n"), box);
    }
}).catch(e => { document.getElementById("routes").textContent = "Could not load: " + e });
</script></body></html>
"""
