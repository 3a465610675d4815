"""What a user did, not what we did: errors that end as one sentence and exit code 2."""


class InputError(ValueError):
    """A column, file or option the user can change; the message names it in one sentence."""


class Interrupted(Exception):  # noqa: N818 - nothing went wrong
    """The user pressed Ctrl-C; the message says what is kept."""
