"""Two files synced at the same time end as two files synced one after the other."""

from __future__ import annotations

import errno
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path, PurePath

import pytest

from headwater.core.errors import SyncError
from headwater.disk import File, OpenMode, PosixDisk, posix, sync_together, write_all
from headwater.disk.posix import PosixFile
from headwater.native import compiled
from tests.unit.native.twins import is_compiled


@pytest.fixture(params=["compiled", "pure"])
def files(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[File, File]]:
    if request.param == "pure":
        monkeypatch.setattr(posix, "_native", None)
    elif compiled("syncs") is None:
        pytest.skip("not compiled here")
    disk = PosixDisk()
    first, second = (disk.open(tmp_path / name, OpenMode.CREATE) for name in ("first", "second"))
    yield first, second
    first.close()
    second.close()


def test_both_are_synced_and_can_be_written_and_synced_again(files: tuple[File, File]) -> None:
    for turn in range(3):
        for file in files:
            write_all(file, turn * 5, [b"bytes"])
        sync_together(*files)
    assert [file.read(0, 100) for file in files] == [b"bytes" * 3] * 2


@pytest.mark.parametrize("which", [0, 1])
def test_a_sync_that_fails_names_its_file_whichever_it_is(
    files: tuple[File, File], which: int
) -> None:
    reading, writing = os.pipe()  # which cannot be synced
    pipe = PosixFile(PurePath("pipe"), reading)
    try:
        with pytest.raises(SyncError) as caught:
            sync_together(*((pipe, files[1]) if which == 0 else (files[0], pipe)))
    finally:
        os.close(reading)
        os.close(writing)
    assert caught.value.path == pipe.path
    assert os.strerror(errno.EINVAL) in str(caught.value)


@is_compiled
def test_the_compiled_call_tells_an_errno_for_each(tmp_path: Path) -> None:
    native = compiled("syncs")
    assert native is not None
    descriptor = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    reading, writing = os.pipe()
    try:
        assert native.sync_together(descriptor, descriptor) == (0, 0)
        assert native.sync_together(reading, descriptor) == (errno.EINVAL, 0)
        assert native.sync_together(descriptor, -1) == (0, errno.EBADF)
    finally:
        for each in (descriptor, reading, writing):
            os.close(each)


@is_compiled
def test_many_threads_that_sync_at_once_are_each_told_of_their_own_files(tmp_path: Path) -> None:
    native = compiled("syncs")
    assert native is not None
    descriptors = [os.open(tmp_path / f"{n}", os.O_RDWR | os.O_CREAT) for n in range(4)]
    wrong: list[object] = []

    def sync(descriptor: int, other: int, expected: tuple[int, int]) -> None:
        for turn in range(50):
            os.pwrite(descriptor, b"x", turn)
            told = native.sync_together(descriptor, other)
            if told != expected:
                wrong.append((told, expected))

    threads = [
        threading.Thread(target=sync, args=(descriptors[0], descriptors[1], (0, 0))),
        threading.Thread(target=sync, args=(descriptors[2], -1, (0, errno.EBADF))),
        threading.Thread(target=sync, args=(descriptors[3], descriptors[3], (0, 0))),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for descriptor in descriptors:
        os.close(descriptor)
    assert wrong == []


@is_compiled
def test_a_child_that_was_forked_syncs_without_the_thread_of_its_parent(tmp_path: Path) -> None:
    native = compiled("syncs")
    assert native is not None
    descriptor = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    assert native.sync_together(descriptor, descriptor) == (0, 0)
    child = os.fork()
    if child == 0:
        signal.alarm(20)  # one that waits for a thread it does not have is ended
        told = native.sync_together(descriptor, -1)
        os._exit(0 if told == (0, errno.EBADF) else 1)
    os.close(descriptor)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
