"""Benchmarks: ceilings, peers and Redrive itself on the same work, in the same run. See docs/benchmarks.md."""
