"""Word problems about ages, growth, averages and shares. Amounts are whole, so answers are exact."""

from __future__ import annotations

from random import Random

from curriculum.word_problems.builder import NAMES, Draft, Template, two_names


def _ages(rng: Random) -> Draft:
    first, second = two_names(rng)
    age, factor, years = rng.randint(4, 12), rng.randint(2, 5), rng.randint(3, 15)
    return Draft(
        text=f"{first} is {age} years old and {second} is {factor} times as old. How old are they together "
        f"in {years} years?",
        program=(
            f"other = {factor} * {age}",
            f"today = {age} + other",
            f"return today + 2 * {years}",
        ),
        answer=age + factor * age + 2 * years,
    )


def _average(rng: Random) -> Draft:
    name, mean = rng.choice(NAMES), rng.randint(60, 85)
    shifts = rng.sample(range(-12, 13), 3)
    scores = [mean + shift for shift in shifts]
    last = mean - sum(shifts)
    return Draft(
        text=f"In three tests {name} scored {scores[0]}, {scores[1]} and {scores[2]} points. How many "
        f"points in the fourth test would make the average {mean}?",
        program=(
            f"needed = 4 * {mean}",
            f"so_far = {scores[0]} + {scores[1]} + {scores[2]}",
            "return needed - so_far",
        ),
        answer=last,
    )


def _doubling(rng: Random) -> Draft:
    start, factor, days = rng.randint(3, 20), rng.choice((2, 3)), rng.randint(3, 6)
    return Draft(
        text=f"A pond has {start} lilies, and every week there are {factor} times as many as the week "
        f"before. How many are there after {days} weeks?",
        program=(f"return {start} * {factor} ** {days}",),
        answer=start * factor**days,
    )


def _garden(rng: Random) -> Draft:
    length, width, price = rng.randint(8, 30), rng.randint(4, 20), rng.randint(3, 12)
    return Draft(
        text=f"A garden is {length} metres long and {width} metres wide. A fence around it costs ${price} a "
        "metre. How many dollars does the fence cost?",
        program=(f"around = 2 * ({length} + {width})", f"return around * {price}"),
        answer=2 * (length + width) * price,
    )


def _tiles(rng: Random) -> Draft:
    length, width, side = rng.randint(3, 9), rng.randint(2, 8), rng.choice((20, 25, 50))
    per_metre = 100 // side
    return Draft(
        text=f"A floor of {length} by {width} metres is laid with square tiles whose sides are {side} "
        "centimetres. How many tiles does it take?",
        program=(
            f"along = {length} * 100 / {side}",
            f"across = {width} * 100 / {side}",
            "return along * across",
        ),
        answer=length * per_metre * width * per_metre,
    )


def _fraction(rng: Random) -> Draft:
    part, whole = rng.choice(((1, 2), (1, 3), (2, 3), (1, 4), (3, 4), (2, 5)))
    size, late = whole * rng.randint(8, 40), rng.randint(2, 15)
    return Draft(
        text=f"A class trip has {size} places. {part}/{whole} of them are taken at once and {late} more "
        "later. How many places are free?",
        program=(f"taken = {size} * {part} / {whole} + {late}", f"return {size} - taken"),
        answer=size - size * part // whole - late,
    )


def _percent(rng: Random) -> Draft:
    percent, size = rng.choice((10, 20, 30, 40, 60, 70, 80)), 10 * rng.randint(6, 40)
    left = rng.randint(2, 9)
    return Draft(
        text=f"{percent} percent of the {size} members of a choir sing soprano; {left} sopranos leave. How "
        "many sopranos are there then?",
        program=(f"sopranos = {size} * {percent} / 100", f"return sopranos - {left}"),
        answer=size * percent // 100 - left,
    )


def _clock(rng: Random) -> Draft:
    lessons, minutes, pause = rng.randint(3, 7), rng.randint(30, 60), rng.randint(5, 20)
    return Draft(
        text=f"A morning has {lessons} lessons of {minutes} minutes with a break of {pause} minutes between "
        "any two that follow each other. How many minutes does it last?",
        program=(
            f"lessons = {lessons} * {minutes}",
            f"breaks = ({lessons} - 1) * {pause}",
            "return lessons + breaks",
        ),
        answer=lessons * minutes + (lessons - 1) * pause,
    )


def _more_than(rng: Random) -> Draft:
    first, second = two_names(rng)
    less, gap = rng.randint(12, 60), rng.randint(4, 25)
    return Draft(
        text=f"{first} and {second} have {2 * less + gap} stamps together. {second} has {gap} more than "
        f"{first}. How many stamps does {first} have?",
        program=(f"twice = {2 * less + gap} - {gap}", "return twice / 2"),
        answer=less,
    )


def _legs(rng: Random) -> Draft:
    hens, cows, spiders = rng.randint(6, 30), rng.randint(3, 15), rng.randint(2, 9)
    return Draft(
        text=f"In a barn there are {hens} hens, {cows} cows and {spiders} spiders. How many legs do they "
        "have in all?",
        program=(
            f"hens = 2 * {hens}",
            f"cows = 4 * {cows}",
            f"spiders = 8 * {spiders}",
            "return hens + cows + spiders",
        ),
        answer=2 * hens + 4 * cows + 8 * spiders,
    )


TEMPLATES = (
    Template(family="ages", level=3, draft=_ages),
    Template(family="average", level=3, draft=_average),
    Template(family="doubling", level=1, draft=_doubling),
    Template(family="garden", level=2, draft=_garden),
    Template(family="tiles", level=3, draft=_tiles),
    Template(family="fraction", level=3, draft=_fraction),
    Template(family="percent", level=2, draft=_percent),
    Template(family="clock", level=3, draft=_clock),
    Template(family="more than", level=2, draft=_more_than),
    Template(family="legs", level=4, draft=_legs),
)
