"""What the demo model is taught, and what is kept from it."""

import re
from random import Random

import pytest
from tools.demo_model import corpus
from tools.demo_model.corpus import Corpus, Entry, normalized


@pytest.fixture(scope="module")
def committed() -> Corpus:
    return Corpus.committed()


def test_every_line_of_the_glossary_is_an_entry_with_its_own_answer() -> None:
    text = corpus.GLOSSARY.read_text(encoding="utf-8")
    entries = corpus.glossary(text)
    assert len(entries) == len(re.findall(r"^- ", text, re.MULTILINE)) >= 60
    assert len({entry.answer for entry in entries}) == len(entries)
    assert all(entry.answer.endswith(".") and "*" not in entry.answer for entry in entries)


def test_a_glossary_line_answers_for_its_term_and_its_aliases() -> None:
    [entry] = corpus.glossary("- **KV page** (KV block) is a unit.\n")
    assert entry.answer == "KV page (KV block) is a unit."
    assert {"What is KV page", "What is a KV block", "Define the KV page"} <= set(entry.questions)


def test_the_faq_adds_at_least_sixty_answers_with_several_questions_each(committed: Corpus) -> None:
    faq = committed.entries[len(corpus.glossary(corpus.GLOSSARY.read_text(encoding="utf-8"))) :]
    assert len({entry.answer for entry in faq}) >= 60
    assert min(len(entry.questions) for entry in faq) >= 4


def test_words_in_braces_stand_for_one_question_each(committed: Corpus) -> None:
    questions = {question for entry in committed.entries for question in entry.questions}
    assert {"What is the capital of France", "What is the capital of Spain"} <= questions
    assert not [question for question in questions if "{" in question]


def test_no_question_leads_to_two_answers(committed: Corpus) -> None:
    answers: dict[str, str] = {}
    for entry in committed.entries:
        for question in entry.questions:
            assert answers.setdefault(normalized(question), entry.answer) == entry.answer, question


def test_at_least_twenty_paraphrases_are_held_out_and_each_has_a_right_answer(committed: Corpus) -> None:
    rows = corpus.held_out()
    assert len({normalized(row.question) for row in rows}) == len(rows) >= 20
    for row in rows:
        assert any(entry.answer.startswith(row.begins) for entry in committed.entries), row.begins


def test_no_held_out_paraphrase_is_a_question_of_the_corpus(committed: Corpus) -> None:
    questions = {normalized(question) for entry in committed.entries for question in entry.questions}
    assert not questions & committed.forbidden


def test_a_held_out_paraphrase_is_never_drawn_even_if_a_phrasing_forms_it() -> None:
    entry = Entry("Pool is a group.", ("What is a pool", "Define pool"))
    source = Corpus([entry], frozenset({normalized("What is a pool?")}))
    random = Random(1)
    drawn = {normalized(turn.content) for _ in range(500) for turn in source.conversation(random)}
    assert normalized("Define pool") in drawn
    assert normalized("What is a pool") not in drawn


def test_ten_thousand_draws_hold_no_held_out_paraphrase(committed: Corpus) -> None:
    random = Random(3)
    for _ in range(10_000):
        turns = committed.conversation(random)
        assert not {normalized(turn.content) for turn in turns if turn.role == "user"} & committed.forbidden


def test_conversations_alternate_and_end_with_an_answer(committed: Corpus) -> None:
    random = Random(4)
    for _ in range(200):
        roles = [turn.role for turn in committed.conversation(random)]
        body = roles[1:] if roles[0] == "system" else roles
        assert body == ["user", "assistant"] * (len(body) // 2)
        assert body


def test_the_same_seed_draws_the_same_conversations(committed: Corpus) -> None:
    one, two = Random(5), Random(5)
    assert [committed.conversation(one) for _ in range(50)] == [committed.conversation(two) for _ in range(50)]
