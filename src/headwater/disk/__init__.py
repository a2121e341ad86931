"""The filesystem seam: the verbs, the POSIX disk, atomic replace. No other room opens a file."""

from headwater.disk.posix import PosixDisk, plain_descriptor
from headwater.disk.protocol import NO_ROOM, Buffer, DirectoryLock, Disk, File, OpenMode
from headwater.disk.whole_files import (
    cut_file,
    file_bytes,
    have_directory,
    map_file,
    new_file,
    opened,
    read_all,
    read_range,
    read_whole,
    remove_files,
    replace_file,
    sync_file,
    sync_names,
    sync_together,
    write_all,
    write_new_file,
)
