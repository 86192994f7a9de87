"""What is scraped: the tallies of this process as families of prometheus_client, which writes the text.

Families of several processes are put together as text (`merge`): each has named itself in the label `process` already,
and to parse what a sibling wrote would cost more than to write it.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from redrive.observe.tallies import Counter, Gauge, Histogram, Tally

PROCESS = "process"
_EOF = "# EOF\n"


class ProcessNumbers(Collector):
    """The tallies, and what the kernel and Python's collector of garbage know of this process."""

    def __init__(self, process: str, tallies: Iterable[Tally]) -> None:
        self.process = process
        self._tallies = tuple(tallies)
        aside = CollectorRegistry()  # both register themselves somewhere
        self._others: tuple[Collector, ...] = (ProcessCollector(registry=aside), GCCollector(registry=aside))

    def collect(self) -> Iterator[Metric]:
        for tally in self._tallies:
            family = _family(tally, self.process)
            if family.samples:
                yield family
        for collector in self._others:
            for family in collector.collect():
                family.samples = [
                    sample._replace(labels={**sample.labels, PROCESS: self.process}) for sample in family.samples
                ]
                yield family


class Families(Collector):
    """Families that are at hand."""

    def __init__(self, families: Sequence[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def write(collectors: Iterable[Collector], accept: str) -> tuple[str, str]:
    """The text, in the format that is asked for, and its content type."""
    encode, content_type = choose_encoder(accept)
    families = [family for collector in collectors for family in collector.collect()]
    return encode(Families(families)).decode(), content_type


def merge(texts: Sequence[str]) -> str:
    """One text of several in one format: all series of a family stand together, under what the first says of it."""
    heads: dict[str, list[str]] = {}
    bodies: dict[str, list[str]] = {}
    ends = ""
    for text in texts:
        family = ""
        is_first = True
        for line in text.splitlines(keepends=True):
            if line == _EOF:
                ends = _EOF
            elif line.startswith("# "):
                name = line.split(" ", 3)[2]
                if name != family:
                    family, is_first = name, name not in heads
                    heads.setdefault(name, [])
                    bodies.setdefault(name, [])
                if is_first:
                    heads[name].append(line)
            else:
                bodies[family].append(line)
    return "".join(line for name in heads for line in (*heads[name], *bodies[name])) + ends


def histogram(
    name: str,
    help: str,
    bounds: Sequence[float],
    series: Iterable[tuple[dict[str, str], Sequence[int], float]],
    labels: Sequence[str] = (),
) -> HistogramMetricFamily:
    """Of each series its labels, how many fell into each slot (the last has no end), and the sum of them."""
    family = HistogramMetricFamily(name, help, labels=labels)
    ends = [*(f"{float(bound)}" for bound in bounds), "+Inf"]
    for named, counts, total in series:
        buckets = list(zip(ends, accumulate(counts), strict=True))
        family.add_metric([named[label] for label in labels], buckets=buckets, sum_value=total)
    return family


def _family(tally: Tally, process: str) -> Metric:
    labels = [*tally.labels, PROCESS]
    match tally:
        case Counter():
            counter = CounterMetricFamily(tally.name, tally.help, labels=labels)
            for values, n in list(tally.values.items()):
                counter.add_metric([*values, process], n)
            return counter
        case Gauge():
            gauge = GaugeMetricFamily(tally.name, tally.help, labels=labels)
            for values, n in tally.values.items():
                gauge.add_metric([*values, process], n)
            return gauge
        case Histogram():
            series = [
                (dict(zip(labels, [*values, process], strict=True)), cells.counts, cells.sum)
                for values, cells in list(tally.series.items())
            ]
            return histogram(tally.name, tally.help, tally.bounds, series, labels)
