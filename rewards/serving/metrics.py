"""What `/metrics` shows, in Prometheus' text format. Nothing of it holds a prompt, a completion or a gold answer."""

from collections.abc import Callable, Iterable
from functools import cache

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from rewards.contract import Failure

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


class Metrics:
    """Counters of one server, in a registry of its own."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        own = self._registry
        self._requests = Counter("rewards_requests", "Requests answered", ["dialect", "status"], registry=own)
        self._samples = Counter("rewards_samples", "Samples answered, masked ones too", ["dialect"], registry=own)
        self._errors = Counter("rewards_errors", "Failures of samples, units, requests", ["kind"], registry=own)
        self._function_s = Histogram(
            "rewards_function_seconds",
            "Seconds that a function took for the samples of a request, waiting for a worker included",
            ["function"],
            buckets=SECONDS,
            registry=own,
        )
        # labels() looks its answer up under a lock, in microseconds; all of these are few.
        self._requests_of = cache(lambda dialect, status: self._requests.labels(dialect, str(status)))
        self._samples_of = cache(self._samples.labels)
        self._function_s_of = cache(self._function_s.labels)

    def watch(self, name: str, says: str, read: Callable[[], float]) -> None:
        """A gauge that is read when somebody asks for it."""
        Gauge(name, says, registry=self._registry).set_function(read)

    def request(self, dialect: str, status: int) -> None:
        self._requests_of(dialect, status).inc()

    def samples(self, dialect: str, count: int) -> None:
        self._samples_of(dialect).inc(count)

    def errors(self, failures: Iterable[Failure]) -> None:
        for failure in failures:
            self._errors.labels(failure.kind).inc()

    def function(self, name: str, seconds: float) -> None:
        self._function_s_of(name).observe(seconds)

    def render(self) -> bytes:
        return generate_latest(self._registry)
