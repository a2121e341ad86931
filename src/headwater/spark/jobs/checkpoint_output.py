"""The directory a checkpoint is written to: what may be there before, and what makes it whole.

It holds segments, and a snapshot when everything is done. Anything else is not ours, and a segment
that the plan does not know belongs to another log: both are refused before anything is written.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from pathlib import PurePath

from headwater.core.errors import RequestError
from headwater.disk import Disk, replace_file, sync_names
from headwater.disk.posix import LOCK_NAME
from headwater.format.names import TOPICS_DIRECTORY
from headwater.format.segment import parse_segment_file, topic_directory_name
from headwater.format.snapshot import META_DIRECTORY, Snapshot, encode_snapshot, snapshot_name
from headwater.recovery.directory import access_error
from headwater.store.appender import make_directories
from headwater.store.failures import file_work

_OURS = frozenset({LOCK_NAME, TOPICS_DIRECTORY, META_DIRECTORY})


def begin_output(disk: Disk, output: PurePath) -> None:
    """Have the directory, durably; refuse one that holds something else."""
    try:
        if disk.exists(output) and not disk.is_directory(output):
            raise RequestError(f"{output} is not a directory; choose another output")
        if not disk.is_directory(output.parent):
            raise RequestError(f"there is no directory {output.parent} to put the output in")
        make_directories(disk, output / TOPICS_DIRECTORY, ours=2)
        strange = sorted(set(disk.list_directory(output)) - _OURS)
    except OSError as error:
        raise access_error(output, error) from error
    if strange:
        raise RequestError(
            f"{output} holds {strange[0]}, which no checkpoint leaves; choose another output"
        )


def refuse_strangers(disk: Disk, output: PurePath, planned: Mapping[int, Set[int]]) -> None:
    """`planned` has the first seqs of each topic. What is there beyond them is another log's."""
    root = output / TOPICS_DIRECTORY
    known = {topic_directory_name(topic_id): seqs for topic_id, seqs in planned.items()}
    with file_work(root):
        for name in disk.list_directory(root):
            if name not in known:
                raise _stranger(root / name)
            for file in disk.list_directory(root / name):
                parsed = parse_segment_file(file)
                if parsed is None or parsed[0] not in known[name]:
                    raise _stranger(root / name / file)


def _stranger(path: PurePath) -> RequestError:
    return RequestError(
        f"{path} was not made from this log with these settings; "
        "choose another output, or remove this one"
    )


def finish_output(disk: Disk, output: PurePath, snapshot: Snapshot) -> None:
    """Make all names durable, then write the snapshot: now it is a data directory."""
    root, meta = output / TOPICS_DIRECTORY, output / META_DIRECTORY
    with file_work(output):
        for name in disk.list_directory(root):
            sync_names(disk, root / name)
        sync_names(disk, root)
        if not disk.is_directory(meta):
            disk.make_directory(meta)
        sync_names(disk, output)
        replace_file(disk, meta / snapshot_name(snapshot.number), encode_snapshot(snapshot))
