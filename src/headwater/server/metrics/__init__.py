"""Metrics: the samples of one scrape.

`samples.Scrape` reads the counters of the engine, the logs, the connections and the quotas and
returns one list of samples; `machine_samples` adds those of the state machines, `kafka.metrics`
those of the Kafka side, `health` those of pressure and retention. `observe.metrics` turns the list
into Prometheus text or JSON.

A key with prefixes gets the samples of what it may name; numbers of the server as a whole are left
out for it. What a scrape costs is bounded: sums over topics come from `health.topic_totals`, which
adds up so many topics a sample, and the lag of consumer groups is limited to a number of rows.

`metrics_listener` beside this package serves metrics and probes on a port of their own, so that a
scraper needs no way to the data. The same keys apply there. It is off unless that port is
configured.

Samples are read on the loop thread, as the owner of the state. Names, labels and help texts of all
metrics are in `observe.metrics`. Start reading at `samples.Scrape`.
"""

from headwater.core.late_names import late_modules

# Loaded by the first scrape.
__getattr__ = late_modules(__name__, ("routes",))
