"""The text of a formula, taken apart: response, fixed effects, random terms.

    y ~ x * z + offset(log(t)) + (1 + x | g) + (1 | h/k)

What stands in `( ... | ... )` is read here; the rest is the business of the formulae package, and
so is the left side of every bar. A few ways of writing stand for others:

    (x || g)     as (x | g), with covariances of 0
    (x | g/h)    as (x | g) + (x | g:h)
    g:h          a factor with a level for every pair that occurs
"""

import re
from typing import NamedTuple

__all__ = ["Formula", "RandomTerm", "parse"]

OPEN, CLOSE, QUOTES = "([{", ")]}", "'\""
NAME = re.compile(r"[^\W\d]\w*$")
POWER = re.compile(r"(?<![\w.)\]])([^\W\d]\w*)\s*(\*\*|\^)\s*(\d+)")


class RandomTerm(NamedTuple):
    """One `(effects | group)`.

    Attributes:
        effects: the left side of the bar, as written.
        factors: the columns whose pairs (or triples, ...) are the levels; mostly one.
        correlated: whether the effects of a level may be correlated: one bar and not two.
    """

    effects: str
    factors: tuple[str, ...]
    correlated: bool

    @property
    def group(self) -> str:
        """The name of the grouping factor."""
        return ":".join(self.factors)

    @property
    def text(self) -> str:
        """The term as one would write it."""
        return f"({self.effects} {'|' if self.correlated else '||'} {self.group})"


class Formula(NamedTuple):
    """A formula, taken apart.

    Attributes:
        text: as given, without spaces that say nothing.
        response: the left side.
        fixed: the right side without its random terms; "1" if nothing is left.
        random: the random terms, nested ones written out.
    """

    text: str
    response: str
    fixed: str
    random: tuple[RandomTerm, ...]


def parse(formula: str) -> Formula:
    """The parts of a formula, or a sentence about what is wrong with it."""
    if not isinstance(formula, str):
        raise TypeError(
            f"The formula is a {type(formula).__name__}; it must be a text such as "
            '"y ~ x + (1 | g)".'
        )
    text = " ".join(formula.split())
    _check_brackets(text)
    sides = _split(text, "~")
    if len(sides) != 2 or not sides[0].strip():
        raise ValueError(
            f"The formula {text!r} needs a response, a tilde and what explains it, such as "
            '"y ~ x + (1 | g)".'
        )
    response, right = sides[0].strip(), sides[1].strip()
    fixed: list[str] = []
    random: list[RandomTerm] = []
    for sign, part in _terms(right, text):
        inside = _inside_of_bars(part)
        if inside is None:
            fixed.append(f"{sign} {part}")
        elif sign == "-":
            raise ValueError(
                f"The formula {text!r} takes away {part}: a random term is left out by not writing "
                "it."
            )
        else:
            random += _random_terms(inside, part)
    whole = " ".join(fixed).removeprefix("+ ").strip() or "1"
    _check_fixed(whole, response)
    _check_twice(random)
    return Formula(text, response, whole, tuple(random))


def _check_brackets(text: str) -> None:
    waiting: list[str] = []
    for char in text:
        if char in OPEN:
            waiting.append(CLOSE[OPEN.index(char)])
        elif char in CLOSE and (not waiting or waiting.pop() != char):
            raise ValueError(f"The formula {text!r} has a {char!r} that closes nothing.")
    if waiting:
        raise ValueError(f"The formula {text!r} lacks a {waiting[-1]!r} at its end.")


def _split(text: str, marks: str) -> list[str]:
    """The text between marks that are outside of brackets and quotes."""
    parts, begin = [], 0
    for i in _outside(text):
        if text.startswith(marks, i):
            parts.append(text[begin:i])
            begin = i + len(marks)
    return [*parts, text[begin:]]


def _outside(text: str) -> list[int]:
    """The places outside of brackets and quotes."""
    depth, quote, places = 0, "", []
    for i, char in enumerate(text):
        if quote:
            quote = "" if char == quote else quote
        elif char in QUOTES:
            quote = char
        elif char in OPEN:
            depth += 1
        elif char in CLOSE:
            depth -= 1
        elif depth == 0:
            places.append(i)
    return places


def _terms(right: str, text: str) -> list[tuple[str, str]]:
    """The summands of the right side, each with its sign."""
    cuts = [i for i in _outside(right) if right[i] in "+-"]
    pieces = [right[i:j] for i, j in zip([0, *cuts], [*cuts, len(right)], strict=True)]
    terms = []
    for piece in pieces:
        sign, rest = ("+", piece) if piece[:1] not in ("+", "-") else (piece[0], piece[1:])
        if rest.strip():
            terms.append((sign, rest.strip()))
        elif piece is not pieces[0]:
            raise ValueError(f"The formula {text!r} has a {sign!r} with nothing after it.")
    if not terms:
        raise ValueError(
            f'The formula {text!r} has nothing right of its tilde; write "1" for a mean alone.'
        )
    return terms


def _inside_of_bars(part: str) -> str | None:
    """What is in the brackets of a random term; None of any other."""
    if part.startswith("(") and part.endswith(")") and "|" in part:
        inside = part[1:-1]
        if any(inside[i] == "|" for i in _outside(inside)):
            return inside
    if any(part[i] == "|" for i in _outside(part)):
        raise ValueError(
            f'The term {part!r} has a bar outside of brackets: a random term is written "({part})".'
        )
    if re.search(r"\(([^()]*\|[^()]*)\)", part):
        raise ValueError(
            f"The term {part!r} has a random term inside: these are added, not multiplied. Write "
            'them as summands, such as "y ~ x + (x | g)".'
        )
    return None


def _random_terms(inside: str, part: str) -> list[RandomTerm]:
    double = len(_split(inside, "||")) == 2
    sides = _split(inside, "||" if double else "|")
    if len(sides) != 2 or not sides[0].strip() or not sides[1].strip():
        raise ValueError(
            f'The random term {part} must be "(effects | group)", such as "(1 + x | g)".'
        )
    effects, group = sides[0].strip(), sides[1].strip()
    chain = [_factors(one, part) for one in group.split("/")]
    return [
        RandomTerm(effects, tuple(name for names in chain[:depth] for name in names), not double)
        for depth in range(1, len(chain) + 1)
    ]


def _factors(group: str, part: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in group.split(":"))
    for name in names:
        if not NAME.match(name):
            raise ValueError(
                f"The group {name!r} of the random term {part} is not the name of a column. A "
                'group is a column, or several as "g:h" or "g/h"; for two factors write two terms, '
                '"(1 | g) + (1 | h)".'
            )
    return names


def _check_fixed(fixed: str, response: str) -> None:
    found = next((one for one in POWER.finditer(fixed) if one.start() in _outside(fixed)), None)
    if found:
        name, _, power = found.groups()
        raise ValueError(
            f"The term {found.group(0)!r} is not a power in a formula: it is {name} crossed with "
            f'itself, which is {name}. Write "I({name}**{power})" or "poly({name}, {power})".'
        )
    if response in {part.strip() for part in re.split(r"[+*:-]", fixed)}:
        raise ValueError(
            f"The response {response!r} is among what explains it. Take it out of the right side."
        )


def _check_twice(random: list[RandomTerm]) -> None:
    for i, term in enumerate(random):
        if term in random[:i]:
            raise ValueError(
                f"The random term {term.text} is there twice: their variances cannot be told "
                "apart. Write it once."
            )
