"""Queues: who holds which job, until when, and what comes next. No I/O and no clock."""

from headwater.model.queue.cohort import ClaimWindow, share
from headwater.model.queue.grant import Claims, ExhaustedJob, Grant, Verdict
from headwater.model.queue.history import LeaseHistory
from headwater.model.queue.leases import QueueLeases
from headwater.model.queue.live_jobs import LiveSeqs
