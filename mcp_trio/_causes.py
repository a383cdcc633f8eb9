"""The exceptions behind an exception group: one cause is raised as one exception."""

__all__ = ["leaves", "lone", "one_cause"]


def leaves(problem: BaseException) -> list[BaseException]:
    """The exceptions in a group, however deep; the exception alone if it is no group."""
    if not isinstance(problem, BaseExceptionGroup):
        return [problem]
    return [leaf for member in problem.exceptions for leaf in leaves(member)]


def lone(problem: BaseException, depth: int | None = None) -> BaseException:
    """What a group is about; the group itself, or one within it, if that is several exceptions.

    Args:
        problem: the group, or anything else, which is about itself.
        depth: through how many groups to look; by default through all.
    """
    while isinstance(problem, BaseExceptionGroup) and len(problem.exceptions) == 1 and depth != 0:
        problem = problem.exceptions[0]
        depth = None if depth is None else depth - 1
    return problem


class one_cause:  # noqa: N801 (it is used as a function)
    """Let one exception out of the block as itself, and not in a group.

    Args:
        depth: out of how many groups, one in the other; by default out of all. With 1, what a
            nursery around a caller's block has added is taken off, and no more: a group that
            the caller has raised is the caller's own.
    """

    # Not a generator with contextlib around it: an exception that comes out of that has frames
    # that hold the group, which holds the exception, until the garbage is collected.

    def __init__(self, depth: int | None = None) -> None:
        self._depth = depth

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, problem: BaseException | None, __: object) -> None:
        if not isinstance(problem, BaseExceptionGroup):
            return
        cause = lone(problem, self._depth)
        if cause is problem:
            return
        # It says of its own origin what it did; to Python it would come from the group.
        context = cause.__context__
        try:
            raise cause
        finally:
            cause.__context__ = context
            del cause, context, problem, _, __
