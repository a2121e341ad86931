"""Ids of instances as the key that gave them has them: without the mark of its tenant.

`machines.instance_names` adds the mark; an answer or a refusal must not show it.
"""

from __future__ import annotations

from headwater.core.errors import HeadwaterError
from headwater.model.machines.errors import MachineError
from headwater.server.access.keys import ApiKey


def own_id(key: ApiKey, full: str) -> str:
    return full.removeprefix(key.tenant) if key.tenant else full


def own_error(key: ApiKey | None, error: HeadwaterError) -> HeadwaterError:
    """A refusal by the machines names the instance; for a tenant as it has called it."""
    if key is None or not key.tenant or not isinstance(error, MachineError):
        return error
    if key.tenant not in str(error):
        return error
    said = str(error).replace(key.tenant, "")
    return MachineError(error.code, said, details=error.detail)
