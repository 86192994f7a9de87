"""Numbers of this process, kept as cheaply as they can be: a look-up and an addition. Standard library only.

prometheus_client's own counters take a lock for every change, which would cost more than the rest of what is measured
here. Everything is changed on the event loop's thread; observe.exposition reads it when somebody scrapes. Values of
labels are fixed by the program or its settings, never by what users send.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence

MAX_SERIES = 1_000  # of one metric: more is a bug, and is not kept

Labels = tuple[str, ...]

# Upper ends in seconds, from a tenth of a millisecond up.
FINE_S = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
TRY_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
LATE_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 3600.0)
SIZES = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0)


class Counter:
    """What only grows. `name` without `_total`."""

    __slots__ = ("help", "labels", "name", "values")
    kind = "counter"

    def __init__(self, name: str, help: str, labels: Sequence[str] = (), start: Iterable[Labels] = ()) -> None:
        """`start`: series that are there, as 0, before anything happens."""
        self.name = name
        self.help = help
        self.labels = tuple(labels)
        self.values: dict[Labels, float] = dict.fromkeys(start if self.labels else ((),), 0)

    def add(self, labels: Labels = (), n: float = 1) -> None:
        values = self.values
        if labels in values:
            values[labels] += n
        elif len(values) < MAX_SERIES:
            values[labels] = n

    def total(self) -> float:
        return sum(self.values.values())


class Cells:
    """One series of a histogram: how many fell into each slot, the last of which has no end."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def note(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def note_all(self, values: Sequence[float]) -> None:
        bounds, counts = self.bounds, self.counts
        for value in values:
            counts[bisect_left(bounds, value)] += 1
        self.sum += sum(values)


class Histogram:
    """A distribution over fixed bounds, which are the upper ends, included."""

    __slots__ = ("bounds", "help", "labels", "name", "series")
    kind = "histogram"

    def __init__(self, name: str, help: str, bounds: Sequence[float], labels: Sequence[str] = ()) -> None:
        self.name = name
        self.help = help
        self.bounds = tuple(bounds)
        self.labels = tuple(labels)
        self.series: dict[Labels, Cells] = {} if self.labels else {(): Cells(self.bounds)}

    def of(self, labels: Labels = ()) -> Cells:
        cells = self.series.get(labels)
        if cells is None:
            cells = Cells(self.bounds)
            if len(self.series) < MAX_SERIES:
                self.series[labels] = cells
        return cells

    def note(self, value: float, labels: Labels = ()) -> None:
        self.of(labels).note(value)


class Gauge:
    """What is now: asked for when somebody scrapes. What nobody answers for is not shown."""

    __slots__ = ("_asked", "help", "labels", "name")
    kind = "gauge"

    def __init__(self, name: str, help: str, labels: Sequence[str] = ()) -> None:
        self.name = name
        self.help = help
        self.labels = tuple(labels)
        self._asked: dict[Labels, Callable[[], float]] = {}

    def ask(self, source: Callable[[], float], labels: Labels = ()) -> None:
        """Whom to ask from now on."""
        self._asked[labels] = source

    def forget(self, labels: Labels = ()) -> None:
        self._asked.pop(labels, None)

    @property
    def values(self) -> Mapping[Labels, float]:
        return {labels: source() for labels, source in self._asked.items()}


Tally = Counter | Histogram | Gauge
