"""What lists of dead letters say and take: kinds of tasks, and the text of an empty list. Pure.

Called by the pages and the commands, so that both say the same.
"""

KINDS = ("http", "relay", "rabbitmq", "mail", "apprise", "handler", "step")


def empty_text(*, is_filtered: bool, waiting: int, held: int) -> str:
    """Say why a list of dead letters is empty. `waiting`: deliveries in the retry queue; `held`: those held.

    It says that all is well only if nothing waits for a retry and nothing is held.
    """
    if is_filtered:
        return "No dead letters match these filters."
    if waiting:
        return f"No dead letters. {_deliveries(waiting)} waiting for a retry."
    if held:
        return f"No dead letters. {_deliveries(held)} held."
    return "No failed events. All integrations healthy."


def _deliveries(count: int) -> str:
    return f"{count:,} deliver{'y is' if count == 1 else 'ies are'}"
