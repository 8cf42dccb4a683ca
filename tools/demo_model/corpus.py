"""What the demo model learns: the glossary's sentences and the FAQ's answers, each under many phrasings of its question.

`Corpus.conversation` draws endlessly from them; the held-out paraphrases are never among the draws (tested over all
phrasings that can arise). Known hole: English only, and one answer for each question.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from random import Random

import yaml

HERE = Path(__file__).parent
GLOSSARY = HERE.parents[1] / "docs" / "glossary.md"

_LINE = re.compile(r"^- \*\*(?P<term>.+?)\*\*(?: \((?P<aliases>[^)]+)\))? (?P<rest>.+)$", re.MULTILINE)

_DEFINE = (
    "What is {x}", "What's {x}", "What is {x} in LLM serving", "What exactly is {x}", "What does {x} mean",
    "What does the word {x} mean", "What do you mean by {x}", "What do people mean by {x}", "What is the meaning of {x}",
    "Define {x}", "Give me a definition of {x}", "Give me the definition of {x}", "How do you define {x}",
    "Explain {x}", "Explain {x} to me", "Explain what {x} is", "Explain what {x} means", "Can you explain {x}",
    "Could you explain {x} to me", "How would you explain {x}", "Describe {x}", "Can you describe {x} for me",
    "Tell me about {x}", "Tell me what {x} is", "Tell me what {x} means", "Can you tell me what {x} is",
    "I want to know what {x} is", "I do not know what {x} means", "I do not understand {x}", "Do you know what {x} is",
    "What should I know about {x}", "What would you call {x}", "Somebody spoke of {x}. What is that",
    "I read about {x}. What does it mean", "Help me understand {x}", "{x}", "In short, what is {x}", "So {x} is what",
)  # fmt: skip
_FRAMES = (
    "{q}", "{q}", "{q}", "{q}", "{q}", "Please: {q}", "Hi, {q}", "Hello, {q}", "Excuse me, {q}", "Okay, {q}",
    "One more thing: {q}", "A question: {q}", "I wonder, {q}", "{q}, please", "{q} and thanks", "Well, {q}",
    "Now {q}", "Tell me, {q}", "I am new here. {q}", "Let me ask: {q}", "For my notes: {q}",
)  # fmt: skip
_MARKS = ("?", "?", "?", "?", "", "", ".", "!", "??", " ?")
_SMALL = frozenset("a an the is are do does to of me my you your we it what how please for by in on".split())
_SYSTEMS = (
    "You are a helpful assistant.",
    "Answer in one sentence.",
    "You answer questions about serving language models.",
    "You are the assistant of paceline. Be short and exact.",
)


@dataclass(frozen=True, slots=True)
class Entry:
    """One answer and the bare questions that lead to it."""

    answer: str
    questions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class HeldOut:
    """A paraphrase kept out of training; a right answer starts with `begins`."""

    question: str
    begins: str


@dataclass(frozen=True, slots=True)
class Turn:
    """One message of a conversation, with the role names of the chat template."""

    role: str
    content: str


def glossary(text: str) -> list[Entry]:
    """One entry for each `- **Term** (alias, alias) is ...` line: the answer is the line without its marks."""
    return [_term(match) for match in _LINE.finditer(text)]


def _term(match: re.Match[str]) -> Entry:
    term, aliases, rest = match["term"], match["aliases"], match["rest"]
    names = [term, *(aliases.split(", ") if aliases else ())]
    questions = (form.format(x=name) for form, raw in product(_DEFINE, names) for name in _with_articles(raw))
    middle = f" ({aliases}) " if aliases else " "
    return Entry(f"{term}{middle}{rest}", tuple(questions))


def _with_articles(name: str) -> tuple[str, ...]:
    plain = name if name[:2].isupper() or re.search(r"[a-z][A-Z]", name) else name[0].lower() + name[1:]
    article = "an" if plain[0].lower() in "aeiou" or plain.startswith("S") else "a"
    return (plain, plain, f"{article} {plain}", f"the {plain}")


def load() -> list[Entry]:
    """All entries of the committed sources."""
    rows = yaml.safe_load((HERE / "faq.yaml").read_text(encoding="utf-8"))
    faq = [Entry(row["answer"], tuple(row["questions"])) for row in rows]
    return glossary(GLOSSARY.read_text(encoding="utf-8")) + faq


def held_out() -> list[HeldOut]:
    """The committed paraphrases that training never sees."""
    rows = yaml.safe_load((HERE / "held_out.yaml").read_text(encoding="utf-8"))
    return [HeldOut(row["question"], row["begins"]) for row in rows]


def normalized(question: str) -> str:
    """Letters and digits in lower case: two questions that differ in courtesy of punctuation alone are one."""
    return " ".join(re.findall(r"[a-z0-9]+", question.lower()))


def phrasings(entry: Entry) -> Iterator[str]:
    """Every framed question of an entry, before case, marks and dropped words."""
    for frame, question in product(dict.fromkeys(_FRAMES), dict.fromkeys(entry.questions)):
        yield frame.format(q=question)


@dataclass(frozen=True, slots=True)
class Corpus:
    """An endless, seeded source of conversations."""

    entries: Sequence[Entry]
    forbidden: frozenset[str]

    @classmethod
    def committed(cls) -> "Corpus":
        """The corpus of this repository."""
        return cls(load(), frozenset(normalized(row.question) for row in held_out()))

    def conversation(self, random: Random) -> list[Turn]:
        """One to three questions with their answers, one time in five behind a system message."""
        turns = [Turn("system", random.choice(_SYSTEMS))] if random.random() < 0.2 else []
        for _ in range(random.choice((1, 1, 1, 2, 3))):
            entry = random.choice(self.entries)
            turns += [Turn("user", self._question(entry, random)), Turn("assistant", entry.answer)]
        return turns

    def _question(self, entry: Entry, random: Random) -> str:
        while True:
            question = _varied(random.choice(_FRAMES), random.choice(entry.questions), random)
            if normalized(question) not in self.forbidden:
                return question


def _varied(frame: str, question: str, random: Random) -> str:
    if frame != "{q}" and not question[:2].isupper():
        question = question[0].lower() + question[1:]
    text = _one_word_less(frame.format(q=question), random) + random.choice(_MARKS)
    return text.lower() if random.random() < 0.3 else text


def _one_word_less(text: str, random: Random) -> str:
    words = text.split(" ")
    small = [index for index, word in enumerate(words) if word.lower() in _SMALL]
    if len(words) > 3 and small and random.random() < 0.15:
        del words[random.choice(small)]
    return " ".join(words)
