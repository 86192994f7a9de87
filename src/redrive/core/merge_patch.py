"""JSON merge patch (RFC 7396): a value that says what to change in another, null meaning away with it. Pure.

Called by store.edits to edit payloads. Neither argument is changed; what is not touched is shared with the target.
"""


def merge_patch(target: object, patch: object) -> object:
    """The target with the patch's fields set, and those that it has as null removed. Any other patch replaces it."""
    if not isinstance(patch, dict):
        return patch
    merged: dict[object, object] = dict(target) if isinstance(target, dict) else {}
    for name, change in patch.items():
        if change is None:
            merged.pop(name, None)
        else:
            merged[name] = merge_patch(merged.get(name), change)
    return merged
