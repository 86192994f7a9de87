"""Where a look for lanes to wake begins: behind what was done with a while ago, and now and then at the start."""

from redrive.store.wake_floor import FROM_START_EVERY_S, FROM_START_PART, LATE_S, START, WakeFloor


def look(floor: WakeFloor, at: float, done_to: int, *, last: int | None = None, takes_s: float = 0.0) -> int:
    """From which number a look at this time begins. It is done with all up to `done_to`."""
    after = floor.begin(at)
    floor.note(at, at + takes_s, after=after, last=last or done_to, done_to=done_to, more=last is not None)
    return after


def test_a_look_begins_behind_what_was_done_with_when_the_last_of_it_cannot_be_late_any_more() -> None:
    floor = WakeFloor()
    assert look(floor, 0.0, 10) == START
    assert look(floor, 0.1, 20) == START
    for at in (1.0, 2.0):
        look(floor, at, 30)  # from the start
    assert look(floor, LATE_S + 0.1, 40) == 20


def test_a_look_begins_at_the_start_now_and_then_and_less_often_where_that_takes_long() -> None:
    floor = WakeFloor()
    look(floor, 0.0, 10)
    look(floor, 10.0, 20, takes_s=1.0)
    assert look(floor, 11.0 + FROM_START_EVERY_S, 30) == 10
    assert look(floor, 11.0 + FROM_START_PART - 0.1, 30) != START
    assert look(floor, 11.0 + FROM_START_PART, 30) == START


def test_a_look_that_did_not_see_all_is_followed_by_one_behind_it() -> None:
    """Also where wake-ups at the start stay for long: those behind them are not kept waiting."""
    floor = WakeFloor()
    assert look(floor, 0.0, 0, last=2_000) == START
    assert look(floor, 0.0, 2_500) == 2_000
    assert look(floor, FROM_START_EVERY_S, 2_500) == START


def test_a_look_that_saw_nothing_moves_nothing() -> None:
    floor = WakeFloor()
    look(floor, 0.0, 10)
    after = floor.begin(5.0)
    floor.note(5.0, 5.0, after=after, last=None, done_to=None, more=False)
    assert floor.begin(5.1) == 10
