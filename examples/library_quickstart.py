"""The embedded library in one file: open, append, read, watch, delete, close.

Run it with `python examples/library_quickstart.py`. It uses a temporary directory and no network.
"""

from __future__ import annotations

import tempfile
import threading
from pathlib import Path

import headwater
from headwater import Tombstone
from headwater.core.errors import HeadConflictError


def main(directory: Path) -> None:
    # A data directory belongs to one process at a time. `with` closes it cleanly; after a crash the
    # next open recovers by itself.
    with headwater.open(directory) as db:
        # A topic is made by the first write to it, or here, with settings of its own. The default
        # class is `fsync`: append returns when the records survive a loss of power.
        db.create("orders", cap_records=1_000_000)

        # A record is a mapping with `data` (anything JSON can hold) and, as wanted, `tag`, `node`
        # and `meta`. A list is written whole or not at all.
        db.append("orders", {"data": {"id": 1, "total": 42}, "tag": "customer-7"})
        written = db.append(
            "orders",
            [
                {"data": {"id": 2, "total": 5}, "tag": "customer-8"},
                {"data": {"id": 3, "total": 11}, "tag": "customer-7", "meta": {"source": "shop"}},
            ],
        )
        print(f"wrote seqs {written.first_seq} to {written.last_seq}")

        # With a key, a write that is repeated (because an answer got lost) is done once.
        payment = {"data": {"id": 1, "paid": True}}
        db.append("orders", payment, idempotency_key="pay-1")
        again = db.append("orders", payment, idempotency_key="pay-1")
        print(f"seq {again.last_seq}, a repeat: {again.deduped}")

        # Only if nobody wrote in between: otherwise an error, and nothing is changed.
        try:
            db.append("orders", {"data": "late"}, expect_head_seq=1)
        except HeadConflictError as error:
            print(f"refused ({error.code})")

        # Read from a cursor. Keep `next_from_seq` and come back with it: that is all there is to
        # being a consumer. `caught_up` is the sign that you have seen everything.
        cursor = 0
        while True:
            diff = db.diff("orders", cursor, limit=2)
            for record in diff.records:
                print(record.seq, record.tag, record.data)
            cursor = diff.next_from_seq
            if diff.caught_up:
                break

        follow(db, cursor)

        # Delete by tag, by prefix ("customer-*"), or everything below a seq. For good.
        gone = db.delete("orders", match="customer-7")
        print(f"deleted {gone.deleted}, {gone.count} left")
        print([record.seq for record in db.diff("orders").records])

    # What was acknowledged is there after a restart.
    with headwater.open(directory) as db:
        state = db.state("orders")
        print(f"after a restart: {state.count} records, head {state.head_seq}")


def follow(db: headwater.Database, cursor: int) -> None:
    """Watching waits for what comes. The database may be used from any number of threads."""
    writer = threading.Thread(
        target=lambda: [db.append("orders", {"data": {"id": n}}) for n in (4, 5)]
    )
    writer.start()
    # Without `idle_ms` a watch goes on for ever.
    for item in db.watch("orders", cursor, idle_ms=500):
        if isinstance(item, Tombstone):
            print(f"lost to {item.reason}: {item.gap_from} to {item.gap_to}")
        else:
            print("came:", item.seq, item.data)
    writer.join()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="headwater-example-") as scratch:
        main(Path(scratch) / "data")
