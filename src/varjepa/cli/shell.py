"""What every command shares: one-sentence errors, exit codes, warnings, text that is safe to print.

Column names, file names and classes come from files that anybody may have written. A terminal would
obey an escape sequence in one, and a direction mark would turn the line around.

Nothing heavy is imported here: help and most errors appear before torch is loaded.
"""

from __future__ import annotations

import ctypes
import os
import re
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import typer
from rich.console import Console
from rich.segment import Segment
from typer.core import TyperCommand, TyperGroup

from varjepa.errors import InputError, Interrupted

_UNSEEN = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f"  # C0 without the line feed, DEL, C1
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # direction marks
    "\u2028\u2029\ud800-\udfff]"  # line and paragraph separators, surrogates
)


def visible(text: str) -> str:
    r"""The text with a � for each character that a terminal would obey instead of show.

    Examples:
        >>> visible("price\x1b[2J in \u202e€")
        'price�[2J in �€'
    """
    return _UNSEEN.sub("�", text)


class PlainConsole(Console):
    """Shows what it is given as text: no markup, no emoji names, no control characters."""

    def __init__(self) -> None:
        super().__init__(markup=False, emoji=False, highlight=False)

    def render(self, *given: Any, **options: Any) -> Iterable[Segment]:
        """Rich's own styles are no part of a segment's text, so they pass."""
        for segment in super().render(*given, **options):
            yield segment if segment.control else Segment(visible(segment.text), segment.style)


UsageError: Any = typer.BadParameter.__base__  # Typer may bring its own copy of Click

Word = TypeVar("Word", bound=str)

WRONG_INPUT = 2
INTERRUPTED = 130  # what shells report after Ctrl-C
TERMINATED = 143  # and after SIGTERM

console = PlainConsole()


class ListCommand(TyperCommand):
    """Lets a repeatable option take several values at once: ``--variants A G``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, _spread(self.params, args))


class ListGroup(TyperGroup):
    """The same for a group that does something by itself."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, _spread(self.params, args))


def _spread(params: list[Any], args: list[str]) -> list[str]:
    """Repeat an option's name before each of its values."""
    repeatable = {
        name for param in params if getattr(param, "multiple", False) for name in param.opts
    }
    spread: list[str] = []
    current: str | None = None
    for word in args:
        if word.startswith("-"):
            current = word if word in repeatable else None
        elif current is not None and spread[-1] != current:
            spread.append(current)
        spread.append(word)
    return spread


def run(app: typer.Typer, arguments: list[str] | None) -> None:
    """Run the command and leave with its exit code."""
    keep_freed_memory()
    with _sigterm_like_ctrl_c() as terminated:
        code = _exit_code(app, arguments)
    sys.exit(TERMINATED if code == INTERRUPTED and terminated.is_set() else code)


def _exit_code(app: typer.Typer, arguments: list[str] | None) -> int:
    try:
        refuse_unusable(sys.argv[1:] if arguments is None else arguments)
        with warnings.catch_warnings():
            warnings.showwarning = _show_each_once()
            code = app(args=arguments, standalone_mode=False)
        if code == INTERRUPTED:  # some versions of Typer turn Ctrl-C into this code themselves
            complain("interrupted")
    except (InputError, UsageError) as error:
        code = complain(str(error) if isinstance(error, InputError) else error.format_message())
    except OSError as error:  # a full disk, a file that went away
        code = complain(f"{error.filename or 'the system'}: {error.strerror or error}")
    except MemoryError as error:  # Arrow's too
        code = complain(f"there is not enough memory for this: {error or 'the table is too large'}")
    except (Interrupted, KeyboardInterrupt, typer.Abort) as stop:
        complain(str(stop) or "interrupted")
        code = INTERRUPTED
    return code if isinstance(code, int) else 0


@contextmanager
def _sigterm_like_ctrl_c() -> Iterator[threading.Event]:
    """SIGTERM ends the command as Ctrl-C does; the event says that it came."""
    came = threading.Event()

    def interrupt(*_: object) -> None:
        came.set()
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield came
        return
    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield came
    finally:
        signal.signal(signal.SIGTERM, before)


def complain(sentence: str) -> int:
    """One line on stderr; the exit code for wrong input."""
    # the sentence is empty where a group without a command has printed its help instead
    if sentence and is_main_process():
        print(f"varjepa: {visible(' '.join(sentence.split()))}", file=sys.stderr)  # noqa: T201
    return WRONG_INPUT


def torchrun_rank() -> int | None:
    """The rank of this process among those that torchrun started; None without others."""
    try:
        rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    except (KeyError, ValueError):
        return None
    return rank if size > 1 else None


def is_main_process() -> bool:
    """Whether this process prints: under torchrun only rank 0 does."""
    return not torchrun_rank()


def keep_freed_memory() -> None:
    """Let this process keep up to 1 GB of freed memory: clearing pages is a tenth of a step.

    This holds for the whole process, so commands call it, not the library.
    """
    with suppress(AttributeError, OSError, TypeError):  # only glibc has it
        mallopt = ctypes.CDLL(None).mallopt
        for threshold in (-1, -3):  # of trim and mmap
            mallopt(threshold, 1 << 30)


def refuse_unusable(words: list[str]) -> None:
    """Nothing is called "", which as a path would be the folder one happens to be in.

    Arrow opens no file whose name is not UTF-8, and no table has such a column.
    """
    for word in words:
        if not word:
            raise InputError("an argument is empty; is a variable not set?")
        if not word.isprintable() and any("\ud800" <= letter <= "\udfff" for letter in word):
            raise InputError(f"the argument {word} is not UTF-8 text")


def one_of(option: str, word: str, known: tuple[Word, ...]) -> Word:
    for one in known:
        if word == one:
            return one
    raise InputError(f"{option} {word!r} is not one of {', '.join(known)}")


def positive(option: str, value: int) -> int:
    if value < 1:
        raise InputError(f"{option} must be at least 1, not {value}")
    return value


def _show_each_once() -> Callable[..., None]:
    """What prints a warning, the same one once: commands read a table several times."""
    shown: set[str] = set()

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        words = " ".join(str(message).split())
        if is_main_process() and words not in shown:
            shown.add(words)
            print(f"varjepa: warning: {visible(words)}", file=sys.stderr)  # noqa: T201

    return show
