"""What `--answer` means: numbers of options, their exact words, other words; what is refused."""

from __future__ import annotations

import pytest

from shunter.service.say import answer_questions
from shunter.wire.errors import ShunterError
from shunter.wire.messages import Question

COLOUR = Question("Colour?", ("red", "blue"))
PORT = Question("Port?", ("8080", "-1", "1=2", "1"))
SIZE = Question("Size?")


def answered(question, words):
    return answer_questions([question], [words]).removeprefix(f"Question: {question.text}\nAnswer: ")


@pytest.mark.parametrize(
    ("question", "words", "answer"),
    [
        (COLOUR, "2", "blue"),
        (COLOUR, "1=2", "blue"),
        (COLOUR, "green", "green"),
        (COLOUR, "2 of them", "2 of them"),
        (PORT, "8080", "8080"),
        (PORT, "1=8080", "8080"),
        (PORT, "-1", "-1"),
        (PORT, "1=2", "1=2"),
        (PORT, "1", "1"),
        (PORT, "2", "-1"),
        (SIZE, "81", "81"),
        (SIZE, "-81", "-81"),
        (SIZE, "width=3", "width=3"),
    ],
)
def test_the_exact_words_of_an_option_come_before_a_number_and_both_before_other_words(question, words, answer):
    assert answered(question, words) == answer


MANY = "9" * 5000
WRONG = ["0", "3", "-1", "+3", MANY, "1=-1", "1=0", "2=1", "0=1", "-1=1", f"{MANY}=1"]


@pytest.mark.parametrize("words", WRONG, ids=lambda words: words[-12:])
def test_a_number_that_is_none_of_the_options_or_questions_is_refused(words):
    with pytest.raises(ShunterError) as caught:
        answer_questions([COLOUR], [words])
    assert caught.value.code == "ANSWER_INVALID"


def test_no_question_is_left_open_unless_a_message_may_tell():
    with pytest.raises(ShunterError) as caught:
        answer_questions([COLOUR, SIZE], ["1=2"])
    assert (caught.value.code, caught.value.text) == ("ANSWER_INVALID", "question 2 is not answered: Size?")
    only = "Question: Colour?\nAnswer: blue"
    assert answer_questions([COLOUR, SIZE], ["1=2"], in_part=True) == only
    assert answer_questions([COLOUR, SIZE], ["2=big", "1=2"]) == f"{only}\n\nQuestion: Size?\nAnswer: big"
