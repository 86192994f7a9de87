"""An error in a line: for logs and for what people read of background jobs. Pure."""

MAX_ERROR_CHARS = 300


def brief(error: BaseException) -> str:
    """Its first line. The lines below may quote rows, and with them what receivers answered."""
    first = str(error).partition("\n")[0]
    return f"{type(error).__name__}: {first[:MAX_ERROR_CHARS]}"
