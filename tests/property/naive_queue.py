"""A queue as a dict of jobs, each with its whole story. Slow, plain, and easy to believe."""

from __future__ import annotations

from dataclasses import dataclass, field

READY, HELD, LEAVING, BLOCKED, GONE = "ready", "held", "leaving", "blocked", "gone"


@dataclass
class NaiveJob:
    seq: int
    key: bytes | None
    place: str = READY
    deliveries: int = 0
    passed: bool = False
    """Claimed, or waiting for its key, at some time: it is served before those that were not."""
    node: str = ""
    lease_id: int = 0
    until_us: int = 0
    not_before_us: int = 0
    not_before_ms: int = 0
    connection: int | None = None
    dying: bool = False
    has_key: bool = False


@dataclass
class NaiveQueue:
    by_key: bool = False
    deliveries_max: int = 0
    jobs: dict[int, NaiveJob] = field(default_factory=dict)
    lease_id: int = 0
    dying: list[tuple[int, int]] = field(default_factory=list)
    retry_us: int = 0

    def in_place(self, place: str) -> list[NaiveJob]:
        return [job for _, job in sorted(self.jobs.items()) if job.place == place]

    def is_kept_back(self, job: NaiveJob) -> bool:
        """As of the last sweep: what came due since is still counted as kept back."""
        return bool(job.not_before_us or job.not_before_ms)

    @property
    def ready(self) -> list[NaiveJob]:
        return [job for job in self.in_place(READY) if not self.is_kept_back(job)]

    def sweep(self, now_us: int, calendar_ms: int) -> None:
        for job in self.in_place(HELD):
            if now_us > job.until_us:
                self.back(job, 0)
        for job in self.jobs.values():
            if job.not_before_us <= now_us:
                job.not_before_us = 0
            if job.not_before_ms <= calendar_ms:
                job.not_before_ms = 0
        for job in self.in_place(BLOCKED) if now_us >= self.retry_us else []:
            self.back(job, 0)

    def back(self, job: NaiveJob, not_before_us: int) -> None:
        job.place, job.connection = READY, None
        job.not_before_us = not_before_us
        if self.deliveries_max and job.deliveries >= self.deliveries_max:
            self.dies(job)

    def dies(self, job: NaiveJob) -> None:
        job.place, job.dying, job.not_before_us = LEAVING, True, 0
        self.dying.append((job.seq, job.deliveries))

    def taken_keys(self) -> set[bytes]:
        return {job.key for job in self.jobs.values() if job.has_key and job.key is not None}

    def claim(self, wanted: int) -> list[NaiveJob]:
        """Who is served: those met before, by seq, then the others, until there are enough."""
        served: list[NaiveJob] = []
        in_line = sorted(self.jobs.values(), key=lambda job: (not job.passed, job.seq))
        for job in in_line:
            if len(served) == wanted:
                break
            if job.place == GONE:
                continue
            job.passed = True
            if job in self.ready and self._may_go(job):
                job.has_key = self.by_key and job.key is not None
                served.append(job)
        return served

    def _may_go(self, job: NaiveJob) -> bool:
        if self.deliveries_max and job.deliveries >= self.deliveries_max:
            self.dies(job)
            return False
        return not self.by_key or job.has_key or job.key not in self.taken_keys()
