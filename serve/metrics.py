"""Export metrics to Prometheus, under vLLM's names where it has the same metric."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from cassandra_spec.drafting import TARGET, Counters
from cassandra_spec.serve.scheduler import Scheduler


class Metrics(Collector):
    """Metrics of a scheduler and counters of its sequences' rounds."""

    def __init__(self, scheduler: Scheduler, counters: Counters) -> None:
        self._scheduler, self._counters = scheduler, counters
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def text(self) -> bytes:
        """Return all metrics in Prometheus's text format."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """Collect the current metrics."""
        yield from self._requests()
        yield from self._speculation()

    def _requests(self) -> Iterator[Metric]:
        scheduler, totals = self._scheduler, self._scheduler.totals
        yield _gauge("num_requests_running", "Requests that are decoded", scheduler.running)
        yield _gauge("num_requests_waiting", "Requests that wait", scheduler.waiting)
        yield _count("prompt_tokens", "Tokens of prompts", totals.prompt_tokens)
        yield _count("generation_tokens", "Tokens of replies", totals.tokens)
        text = "Tokens of prompts whose keys and values were there"
        yield _count("prompt_tokens_cached", text, totals.cached_tokens)
        text = "Requests by how they ended"
        yield _counts("request_success", text, "finished_reason", totals.ended)

    def _speculation(self) -> Iterator[Metric]:
        counters = self._counters
        lengths = dict(counters.lengths)  # at once: another thread adds to it
        yield _count("spec_decode_num_drafts", "Rounds with drafted tokens", counters.drafts)
        yield _count("spec_decode_num_draft_tokens", "Drafted tokens", counters.drafted)
        yield _count("spec_decode_num_accepted_tokens", "Accepted tokens", counters.accepted)
        places = {
            str(place): sum(count for length, count in lengths.items() if length > place)
            for place in range(max(lengths, default=0))
        }
        text = "Accepted tokens by their place in the round"
        yield _counts("spec_decode_num_accepted_tokens_per_pos", text, "position", places)
        yield from self._sources()
        if counters.drafted and counters.rounds:
            text, length = "1 + accepted tokens / rounds", 1 + counters.accepted / counters.rounds
            yield _gauge("spec_decode_mean_acceptance_length", text, length)
            text, rate = "Accepted / drafted tokens", counters.accepted / counters.drafted
            yield _gauge("spec_decode_draft_acceptance_rate", text, rate)

    def _sources(self) -> Iterator[Metric]:
        """Collect tokens and verified rows by draft source; pending tokens are the target's."""
        sources = dict(self._counters.sources)  # at once: another thread adds to it
        drafted = {name: each.drafted for name, each in sources.items()}
        accepted = {name: each.accepted for name, each in sources.items()}
        rows = {TARGET: self._counters.rounds, **drafted}
        for name, text, numbers in (
            ("draft_tokens", "Drafted tokens", drafted),
            ("accepted_tokens", "Accepted tokens", accepted),
            ("rows", "Rows of verifications", rows),
        ):
            name = f"spec_decode_num_{name}_per_source"
            yield _counts(name, f"{text} by draft source", "source", numbers)


def _count(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(name, text, value=value)


def _counts(name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
    family = CounterMetricFamily(name, text, labels=[label])
    for value, number in values.items():
        family.add_metric([value], number)
    return family


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)
