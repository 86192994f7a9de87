"""Which failures of the database pass, and what to tell the caller meanwhile. Pure.

Asked by committer, which tries again, and by server, which answers 503 instead of 500.
"""

import asyncpg

# asyncpg.InterfaceError: a connection that closed under us, a pool that is closing. InternalClientError: one that the
# server has just ended, before asyncpg knows that it is closed.
OUTAGES = (
    OSError,
    TimeoutError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
    asyncpg.InsufficientResourcesError,
    asyncpg.TransactionRollbackError,
    asyncpg.ReadOnlySQLTransactionError,
)
# What is wrong with a row, not with the database.
BAD_ROWS = (
    asyncpg.DataError,
    asyncpg.IntegrityConstraintViolationError,
    asyncpg.ProgramLimitExceededError,
    ValueError,
    OverflowError,
)
_SLOW = "it is overloaded, or something holds a lock (`redrive doctor` says who)"


def is_bad_row(error: Exception) -> bool:
    """asyncpg's own refusal of an argument is both an InterfaceError and a ValueError: the row's fault."""
    return isinstance(error, BAD_ROWS)


def reason_of(error: Exception) -> str:
    match error:
        case asyncpg.DiskFullError():
            return "The database's disk is full. Nothing was stored; free space, then try again."
        case asyncpg.InsufficientResourcesError():
            return "The database is short of memory or connections. Nothing was stored; try again."
        case asyncpg.ReadOnlySQLTransactionError():
            return "The database takes no writes at the moment. Nothing was stored; try again."
        case asyncpg.QueryCanceledError():
            return (
                f"The database took too long to answer, and nothing was stored: {_SLOW}, or this was a lot to ask for. "
                "Try again. Ask for less where you can: a shorter period, more filters, a smaller page."
            )
        case TimeoutError():
            return (
                f"The database did not answer in time: {_SLOW}. If something was to be stored, it is not known whether "
                "it was: send it again under the same Idempotency-Key."
            )
        case asyncpg.TransactionRollbackError():
            return "The database undid this change in favour of another. Try again."
    return "The database cannot be reached at the moment. Try again."


def is_full(error: Exception) -> bool:
    """Trying again at once will not help."""
    return isinstance(error, asyncpg.DiskFullError | asyncpg.ReadOnlySQLTransactionError)
