"""Word problems about sharing, packing, travel and work. Amounts are whole, so answers are exact."""

from __future__ import annotations

from random import Random

from curriculum.word_problems.builder import NAMES, Draft, Template, two_names


def _sharing(rng: Random) -> Draft:
    name, children, each, kept = rng.choice(NAMES), rng.randint(3, 9), rng.randint(4, 12), rng.randint(2, 9)
    return Draft(
        text=f"{name} has {children * each + kept} marbles, keeps {kept} and shares the rest equally among "
        f"{children} children. How many marbles does each child get?",
        program=(f"shared = {children * each + kept} - {kept}", f"return shared / {children}"),
        answer=each,
    )


def _boxes(rng: Random) -> Draft:
    size, full, rest = rng.randint(6, 14), rng.randint(5, 20), rng.randint(1, 5)
    return Draft(
        text=f"A farm packs {size * full + rest} eggs into boxes of {size}. Eggs that do not fill a box are "
        "packed as well. How many boxes are needed?",
        program=(
            f"full, rest = divmod({size * full + rest}, {size})",
            "return full + 1 if rest else full",
        ),
        answer=full + 1,
    )


def _trip(rng: Random) -> Draft:
    name, fast, slow = rng.choice(NAMES), rng.randint(60, 100), rng.randint(30, 55)
    hours, more = rng.randint(2, 5), rng.randint(2, 4)
    return Draft(
        text=f"{name} drives {hours} hours at {fast} kilometres an hour and then {more} hours at {slow} "
        "kilometres an hour. How many kilometres is that in all?",
        program=(f"first = {hours} * {fast}", f"second = {more} * {slow}", "return first + second"),
        answer=hours * fast + more * slow,
    )


def _meeting(rng: Random) -> Draft:
    first, second = two_names(rng)
    one, two, hours = rng.randint(4, 9), rng.randint(10, 18), rng.randint(2, 6)
    return Draft(
        text=f"{first} walks at {one} kilometres an hour and {second} cycles at {two} kilometres an hour. "
        f"They start {(one + two) * hours} kilometres apart and go towards each other. After how many hours "
        "do they meet?",
        program=(f"closing = {one} + {two}", f"return {(one + two) * hours} / closing"),
        answer=hours,
    )


def _tank(rng: Random) -> Draft:
    into, out, minutes = rng.randint(9, 20), rng.randint(2, 8), rng.randint(6, 30)
    start = rng.randint(10, 80)
    return Draft(
        text=f"A tank holds {start} litres. Each minute {into} litres flow into it and {out} litres leak "
        f"out. How many litres does it hold after {minutes} minutes?",
        program=(f"gain = {into} - {out}", f"return {start} + {minutes} * gain"),
        answer=start + minutes * (into - out),
    )


def _pages(rng: Random) -> Draft:
    name, daily, days, first = rng.choice(NAMES), rng.randint(12, 40), rng.randint(3, 9), rng.randint(10, 60)
    return Draft(
        text=f"{name} has read {first} pages of a book with {first + daily * days} pages, and reads {daily} "
        "pages a day. In how many days is the book finished?",
        program=(f"left = {first + daily * days} - {first}", f"return left / {daily}"),
        answer=days,
    )


def _recipe(rng: Random) -> Draft:
    grams, people, guests = 10 * rng.randint(3, 12), rng.randint(2, 5), rng.randint(6, 14)
    return Draft(
        text=f"A soup for {people} people takes {grams * people} grams of lentils. How many grams does it "
        f"take for {guests} people?",
        program=(f"each = {grams * people} / {people}", f"return each * {guests}"),
        answer=grams * guests,
    )


def _workers(rng: Random) -> Draft:
    men, days, more = rng.randint(3, 6), rng.randint(4, 9), rng.randint(2, 4)
    crew = men * more
    return Draft(
        text=f"{men} painters paint a school in {days * more} days. How many days do {crew} painters need, "
        "if all work equally fast?",
        program=(f"work = {men} * {days * more}", f"return work / {crew}"),
        answer=days,
    )


def _harvest(rng: Random) -> Draft:
    rows, trees, apples, bad = rng.randint(4, 9), rng.randint(5, 12), rng.randint(20, 60), rng.randint(15, 90)
    return Draft(
        text=f"An orchard has {rows} rows of {trees} trees. Each tree bears {apples} apples, and {bad} "
        "apples in all are spoilt. How many good apples are there?",
        program=(
            f"trees = {rows} * {trees}",
            f"apples = trees * {apples}",
            f"return apples - {bad}",
        ),
        answer=rows * trees * apples - bad,
    )


def _buses(rng: Random) -> Draft:
    seats, buses, free = rng.randint(28, 52), rng.randint(3, 7), rng.randint(4, 20)
    teachers = rng.randint(3, 9)
    return Draft(
        text=f"{buses} buses with {seats} seats each take a school on a trip. {teachers} seats are taken by "
        f"teachers and {free} stay free; pupils sit in the others. How many pupils are there?",
        program=(f"seats = {buses} * {seats}", f"return seats - {teachers} - {free}"),
        answer=buses * seats - teachers - free,
    )


TEMPLATES = (
    Template(family="sharing", level=2, draft=_sharing),
    Template(family="boxes", level=2, draft=_boxes),
    Template(family="trip", level=3, draft=_trip),
    Template(family="meeting", level=2, draft=_meeting),
    Template(family="tank", level=2, draft=_tank),
    Template(family="pages", level=2, draft=_pages),
    Template(family="recipe", level=2, draft=_recipe),
    Template(family="workers", level=2, draft=_workers),
    Template(family="harvest", level=3, draft=_harvest),
    Template(family="buses", level=3, draft=_buses),
)
