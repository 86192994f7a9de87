"""An error in a line: for logs and for what people read of background jobs. Pure."""

MAX_ERROR_CHARS = 300


def brief(error: BaseException) -> str:
    """Its first line; its name where it says nothing. The lines below may quote rows, and with them what receivers
    answered.
    """
    first = str(error).partition("\n")[0].strip()
    name = type(error).__name__
    if not first:
        return f"no answer in time ({name})" if isinstance(error, TimeoutError) else name
    return f"{name}: {first[:MAX_ERROR_CHARS]}"


def words_of(error: BaseException) -> str:
    """What it says, for a sentence; in brief where it says nothing."""
    return str(error) or brief(error)
