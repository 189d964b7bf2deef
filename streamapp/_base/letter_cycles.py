"""The error for a reader of dead letters whose failed records become dead letters in the same topic, without end."""

from __future__ import annotations

__all__ = ["MAKES_LETTERS", "letters_of_letters"]

MAKES_LETTERS = ("dead_letter", "continue")
"""The answers that make a dead letter and go on, if ``dead_letter_queue_topic`` is set."""


def letters_of_letters(reader: str, topic: str, cause: str) -> str:
    """The text of the error for a reader of dead letters that makes new dead letters in the same topic.

    ``cause`` is the setting of the reader that makes the letters.

    >>> print(letters_of_letters("the agent alert", "dead", 'the answer "continue"'))
    the agent alert reads dead, the dead-letter topic of the application, and a letter that fails there \
becomes a new letter (the answer "continue"). Each new letter would fail again, without end. Answer with "skip" or \
"fail" there, or read the letters in an application with another dead_letter_queue_topic. A pattern may leave the \
topic out
    """
    return (
        f"{reader} reads {topic}, the dead-letter topic of the application, and a letter that fails there becomes "
        f'a new letter ({cause}). Each new letter would fail again, without end. Answer with "skip" or "fail" there, '
        "or read the letters in an application with another dead_letter_queue_topic. A pattern may leave the topic out"
    )
