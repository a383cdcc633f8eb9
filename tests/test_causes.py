"""One cause is one exception, with what it says of its own origin."""

import contextlib
import gc
import weakref

import pytest

from mcp_trio._causes import leaves, lone, one_cause


def nested(*exceptions: BaseException, depth: int = 1) -> BaseException:
    group = BaseExceptionGroup("", exceptions)
    for _ in range(depth - 1):
        group = BaseExceptionGroup("", [group])
    return group


def test_leaves_are_found_however_deep() -> None:
    one, two, three = ValueError(1), ValueError(2), KeyboardInterrupt()
    assert leaves(one) == [one]
    assert leaves(nested(nested(one, two, depth=3), three)) == [one, two, three]


def test_what_a_group_is_about() -> None:
    one, two = ValueError(1), ValueError(2)
    pair = nested(one, two)
    assert lone(one) is one
    assert lone(nested(one, depth=4)) is one
    assert lone(nested(pair, depth=2)) is pair
    within = nested(one)
    assert lone(nested(within), 1) is within


@pytest.mark.parametrize("depth", [1, None])
def test_one_comes_out_as_itself(depth: int | None) -> None:
    """W62: its cause and its context are what they were."""
    origin, cause = KeyError("origin"), OSError("cause")
    problem = ValueError("x")
    problem.__context__, problem.__cause__ = origin, cause
    with pytest.raises(ValueError, match="x") as caught, one_cause(depth):
        raise nested(problem)
    assert caught.value is problem
    assert (problem.__context__, problem.__cause__) == (origin, cause)


def test_several_stay_together() -> None:
    pair = ExceptionGroup("", [ValueError(1), ValueError(2)])
    with pytest.RaisesGroup(ValueError, ValueError) as caught, one_cause():
        raise pair
    assert caught.value is pair
    assert pair.__context__ is None


def test_what_a_caller_has_put_in_a_group_stays_there() -> None:
    own = ExceptionGroup("own", [ValueError(1)])
    with pytest.RaisesGroup(ValueError) as caught, one_cause(1):
        raise nested(own)
    assert caught.value is own


@pytest.mark.parametrize("depth", range(3))
def test_nothing_is_kept(depth: int) -> None:
    """No exception keeps a frame that keeps the exception, which would wait for a collection."""

    class Kept(Exception):
        pass

    problems: list[BaseException] = [Kept()]
    gone = weakref.ref(problems[0])
    if depth:
        problems.append(nested(problems.pop(), depth=depth))

    def fail() -> None:
        with one_cause():
            raise problems.pop()

    gc.disable()
    try:
        with contextlib.suppress(Kept):
            fail()
        assert gone() is None
    finally:
        gc.enable()
