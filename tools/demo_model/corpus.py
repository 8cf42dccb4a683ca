"""What the demo model learns: the sentences of the glossary and the answers of the FAQ, each under many questions.

`Corpus.conversation` draws endlessly from them; the held-out paraphrases are never among the draws (tested over all
phrasings that can arise). Known hole: English only, and one answer for each question.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, product
from pathlib import Path
from random import Random

import yaml

HERE = Path(__file__).parent
GLOSSARY = HERE.parents[1] / "docs" / "glossary.md"

_LINE = re.compile(r"^- \*\*(?P<term>.+?)\*\*(?: \((?P<aliases>[^)]+)\))? (?P<rest>.+)$", re.MULTILINE)

_DEFINE = (
    "What is {x}", "What's {x}", "What is {x} in LLM serving", "What exactly is {x}", "What does {x} mean",
    "What does the word {x} mean", "What do you mean by {x}", "What do people mean by {x}",
    "What is the meaning of {x}",
    "Define {x}", "Give me a definition of {x}", "Give me the definition of {x}", "How do you define {x}",
    "Explain {x}", "Explain {x} to me", "Explain what {x} is", "Explain what {x} means", "Can you explain {x}",
    "Could you explain {x} to me", "How would you explain {x}", "Describe {x}", "Can you describe {x} for me",
    "Tell me about {x}", "Tell me what {x} is", "Tell me what {x} means", "Can you tell me what {x} is",
    "I want to know what {x} is", "I do not know what {x} means", "I do not understand {x}", "Do you know what {x} is",
    "What should I know about {x}", "What would you call {x}", "Somebody spoke of {x}. What is that",
    "I read about {x}. What does it mean", "Help me understand {x}", "{x}", "In short, what is {x}", "So {x} is what",
    "Everyone talks about {x}. What is it", "We do not agree on what {x} is", "{x} means what", "{x}, what is that",
    "How would you put {x} into words", "What job has {x}", "What role has {x}", "What is the definition of {x}",
    "What is {x} for a beginner", "Explain {x} as if I were new to this", "They call it {x}. What do they mean",
    "How is {x} described", "How is {x} explained", "The page mentions {x}. What is this",
)  # fmt: skip
_FRAMES = (
    "{q}", "{q}", "{q}", "{q}", "{q}", "Please: {q}", "Hi, {q}", "Hello, {q}", "Excuse me, {q}", "Okay, {q}",
    "One more thing: {q}", "A question: {q}", "I wonder, {q}", "{q}, please", "{q} and thanks", "Well, {q}",
    "Now {q}", "Tell me, {q}", "I am new here. {q}", "Let me ask: {q}", "For my notes: {q}",
    "Could you help? {q}", "{q}, if I may ask", "And {q}", "So {q}", "I was asked this: {q}", "{q} Be short.",
)  # fmt: skip
_SWAPS = (
    ("How do I ", ("How do we ", "How might I ", "How would I ", "Show me how to ", "I want to know how to ")),
    ("How can I ", ("How can we ", "How could I ", "What must I do to ", "Is there some way to ", "I want to ")),
    ("How does ", ("How exactly does ", "In which way does ", "By what rule does ")),
    ("What happens ", ("What exactly happens ", "What will happen ", "What takes place ", "Tell me what happens ")),
    ("Why is ", ("Why really is ", "For what reason is ", "How come that ", "Say why ")),
    ("Why do ", ("Why really do ", "For what reason do ", "Say why ")),
    ("What is ", ("What's ", "Tell me what is ", "What really is ", "Do you know what is ")),
    ("What does ", ("What exactly does ", "What really does ")),
    ("Which ", ("What ", "Tell me which ")),
    ("Where do ", ("At which place do ", "In which place do ")),
)
_MARKS = ("?", "?", "?", "?", "", "", ".", "!", "??", " ?")
_SMALL = frozenset((
    "a", "an", "the", "is", "are", "do", "does", "to", "of", "me", "my", "you", "your", "we",
    "it", "what", "how", "please", "for", "by", "in", "on",
))  # fmt: skip
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
    faq = [Entry(row["answer"], tuple(chain.from_iterable(map(_alternatives, row["questions"])))) for row in rows]
    return glossary(GLOSSARY.read_text(encoding="utf-8")) + faq


def _alternatives(question: str) -> list[str]:
    """`Where is {Rome|Oslo}` -> two questions."""
    before, brace, rest = question.partition("{")
    words, _, after = rest.partition("}")
    return [before + word + after for word in words.split("|")] if brace else [question]


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
    question = _swapped(question, random) if random.random() < 0.3 else question
    if frame != "{q}" and not question[:2].isupper():
        question = question[0].lower() + question[1:]
    text = _one_word_less(frame.format(q=question), random) + random.choice(_MARKS)
    return text.lower() if random.random() < 0.3 else text


def _swapped(question: str, random: Random) -> str:
    for start, others in _SWAPS:
        if question.startswith(start):
            return random.choice(others) + question.removeprefix(start)
    return question


def _one_word_less(text: str, random: Random) -> str:
    words = text.split(" ")
    small = [index for index, word in enumerate(words) if word.lower() in _SMALL]
    if len(words) > 3 and small and random.random() < 0.15:
        del words[random.choice(small)]
    return " ".join(words)
