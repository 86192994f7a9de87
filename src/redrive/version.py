"""The version of this program. A test keeps it equal to the package's."""

__version__ = "0.1.0"
