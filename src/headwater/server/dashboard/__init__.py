"""The dashboard's files and the one route that only the dashboard needs.

The pages are static files of `headwater.web`: HTML, CSS and JavaScript without a build step.
`files` loads them once and sends them with an ETag that browsers check again on each visit, so an
upgrade of the server is seen at once. They are public like the program itself. What the pages show,
they request over the same HTTP API as any client, with the key that the user entered; the dashboard
has no privileges.

`maintenance_reports` serves the last reports of `headwater verify`, `headwater doctor` and the
pipeline's jobs, which those leave in a directory beside the data (`engine.reports`).

`routes` is the table of both. The content security policy lets nothing run but our own scripts.
Handlers run on the loop thread; reading reports waits for files, so it is an operation. Start
reading at `files.web_files`.
"""

from headwater.core.late_names import late_modules

# Loaded by the first page of it.
__getattr__ = late_modules(__name__, ("routes",))
