"""Which methods a path takes, as /openapi.json says: for a 405 and its Allow header. Pure.

The framework knows only the first route that has the path, and not the hot ones. Asked by server.
"""

import re
from collections.abc import Iterable, Mapping

_PARAMETER = re.compile(r"\\\{.*?\\\}")


class PathMethods:
    def __init__(self, paths: Mapping[str, Iterable[str]]) -> None:
        self._exact = {path: _named(methods) for path, methods in paths.items()}
        self._patterns = [(_pattern(path), _named(methods)) for path, methods in paths.items() if "{" in path]

    def lacks(self, path: str, method: str) -> bool:
        """Whether the path stands there itself, without this method: then it must not be read as another with an id."""
        exact = self._exact.get(path)
        return exact is not None and method not in exact

    def allowed(self, path: str) -> str:
        """As an Allow header says it. A path that stands there itself means nothing else."""
        exact = self._exact.get(path)
        if exact is None:
            fitting = [methods for pattern, methods in self._patterns if pattern.fullmatch(path)]
            exact = frozenset().union(*fitting)
        return ", ".join(sorted(exact))


def _named(methods: Iterable[str]) -> frozenset[str]:
    return frozenset(method.upper() for method in methods)


def _pattern(path: str) -> re.Pattern[str]:
    return re.compile(_PARAMETER.sub("[^/]+", re.escape(path)))
