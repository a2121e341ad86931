"""Queues: who holds which job, until when, and what comes next. No I/O and no clock."""

from headwater.model.queue.grant import Claims, ClaimWindow, ExhaustedJob, Grant, Verdict, share
from headwater.model.queue.history import LeaseHistory
from headwater.model.queue.leases import QueueLeases
