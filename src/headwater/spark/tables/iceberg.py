"""An Iceberg table, without a JVM: its metadata is written by `pyiceberg`.

The catalog is the place where a commit is decided. Without a name of one it is an SQLite file in
the table's directory, enough for one machine; a table in an object store needs a real one.

A batch is one transaction: the files, and the properties that say whose batch it is. `pyiceberg`
repeats a commit that lost against another by itself, without checking whether it is still wanted;
that is switched off here, and the batch is looked up again before each try.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from headwater.core.errors import RequestError
from headwater.spark.tables.columns import is_wider, plain
from headwater.spark.tables.location import TableLocation
from headwater.spark.tables.table import (
    Landed,
    Landing,
    SharedTable,
    WrittenFile,
    app_directory,
)

CATALOG_FILE: Final = "catalog.db"
IDENTIFIER: Final = ("headwater", "table")
_PROPERTIES: Final = {
    # A commit every few seconds would leave a million metadata files a year.
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "100",
}


class IcebergLake(SharedTable):
    KIND = "Iceberg"
    FOLDERS = False

    def __init__(
        self, location: TableLocation, catalog: str | None = None, identifier: str | None = None
    ) -> None:
        super().__init__(location)
        if catalog is None and not location.is_local:
            raise RequestError(
                f"an Iceberg table at {location.uri} needs a catalog: name one that pyiceberg knows"
            )
        self._catalog_name = catalog
        self._identifier = IDENTIFIER if identifier is None else tuple(identifier.split("."))

    def read(self, columns: Sequence[str]) -> Any:
        return self._opened().scan(selected_fields=tuple(columns)).to_arrow()

    def files(self) -> list[str]:
        table = self._open()
        if table is None:
            return []
        tasks = table.scan().plan_files()
        return [str(task.file.file_path).removeprefix("file://") for task in tasks]

    def metadata_location(self) -> str:
        """The newest metadata file, for readers without the catalog."""
        return str(self._opened().metadata_location)

    def _catalog(self) -> Any:
        from pyiceberg.catalog import load_catalog
        from pyiceberg.catalog.sql import SqlCatalog

        if self._catalog_name is not None:
            return load_catalog(self._catalog_name)
        self.location.make_directories("")
        file = self.location.full(CATALOG_FILE)
        return SqlCatalog(
            "headwater", uri=f"sqlite:///{file}", warehouse=self.location.as_uri, echo="false"
        )

    def _open(self) -> Any | None:
        from pyiceberg.exceptions import NoSuchTableError
        from pyiceberg.table import TableProperties

        try:
            table = self._catalog().load_table(self._identifier)
        except NoSuchTableError:
            return None
        table.metadata.properties[TableProperties.COMMIT_NUM_RETRIES] = "0"
        return table

    def _create(self, schema: Any, partition_by: Sequence[str]) -> None:
        from pyiceberg.exceptions import TableAlreadyExistsError
        from pyiceberg.transforms import IdentityTransform

        catalog = self._catalog()
        catalog.create_namespace_if_not_exists(self._identifier[:-1])
        try:
            with (
                catalog.create_table_transaction(
                    self._identifier,
                    schema=schema,
                    location=self.location.as_uri,
                    properties=_PROPERTIES,
                ) as transaction,
                transaction.update_spec() as spec,
            ):
                for name in partition_by:
                    spec.add_field(name, IdentityTransform(), name)
        except TableAlreadyExistsError:
            return  # another writer made it; read it again

    def _alter(self, table: Any, there: Any, wanted: Any) -> bool:
        from pyiceberg.exceptions import CommitFailedException

        try:
            with table.update_schema() as update:
                update.union_by_name(wanted)
        except CommitFailedException:
            return False
        return True

    def _append(self, table: Any, landing: Landing, files: Sequence[WrittenFile]) -> bool:
        from pyiceberg.exceptions import CommitFailedException

        paths = [self.location.child(file.path).as_uri for file in files]
        try:
            with table.transaction() as transaction:
                if paths:
                    transaction.add_files(paths, check_duplicate_files=False)
                transaction.set_properties(_properties(landing))
        except CommitFailedException:
            return False
        return True

    def _widens(self, there: Any, wanted: Any) -> bool:
        """Iceberg has one 32-bit and one 64-bit integer; int8 and int16 never come out of it."""
        return is_wider(wanted, there)

    def _columns(self, table: Any) -> Any:
        return plain(table.schema().as_arrow())

    def _partitioning(self, table: Any) -> list[str]:
        return [field.name for field in table.spec().fields]

    def _landed(self, table: Any, landing: Landing) -> Landed | None:
        properties = table.properties
        batch = properties.get(_key(landing, "batch"))
        if batch is None:
            return None
        return Landed(
            int(batch),
            same_checkpoint=properties.get(_key(landing, "checkpoint")) == landing.checkpoint,
            same_rules=properties.get(_key(landing, "rules")) == landing.rules,
        )


def _key(landing: Landing, what: str) -> str:
    return f"headwater.{app_directory(landing.app)}.{what}"


def _properties(landing: Landing) -> dict[str, str]:
    return {
        _key(landing, "app"): landing.app,
        _key(landing, "batch"): str(landing.batch),
        _key(landing, "checkpoint"): landing.checkpoint,
        _key(landing, "rules"): landing.rules,
    }
