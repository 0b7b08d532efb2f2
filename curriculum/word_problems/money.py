"""Word problems about prices, wages and savings. Amounts are whole, so answers are exact."""

from __future__ import annotations

from random import Random

from curriculum.word_problems.builder import NAMES, Draft, Template, two_names

_GOODS = (("notebook", "notebooks"), ("mug", "mugs"), ("lamp", "lamps"), ("scarf", "scarves"))


def _two_goods(rng: Random) -> Draft:
    name, price, other = rng.choice(NAMES), rng.randint(3, 19), rng.randint(4, 25)
    count, others = rng.randint(2, 9), rng.randint(2, 6)
    (_, goods), (_, more) = rng.sample(_GOODS, 2)
    return Draft(
        text=f"A shop sells {goods} for ${price} each and {more} for ${other} each. {name} buys {count} "
        f"{goods} and {others} {more}. How many dollars does {name} pay?",
        program=(f"first = {count} * {price}", f"second = {others} * {other}", "return first + second"),
        answer=count * price + others * other,
    )


def _change(rng: Random) -> Draft:
    name, price, count = rng.choice(NAMES), rng.randint(2, 11), rng.randint(2, 8)
    _, goods = rng.choice(_GOODS)
    bill = price * count + rng.randint(3, 40)
    return Draft(
        text=f"{name} buys {count} {goods} at ${price} each and hands over ${bill}. "
        f"How many dollars of change does {name} get?",
        program=(f"cost = {count} * {price}", f"return {bill} - cost"),
        answer=bill - price * count,
    )


def _discount(rng: Random) -> Draft:
    percent, price, count = rng.choice((10, 20, 25, 50)), 20 * rng.randint(2, 12), rng.randint(2, 7)
    good, goods = rng.choice(_GOODS)
    return Draft(
        text=f"A {good} costs ${price}. Today everything is {percent} percent cheaper. "
        f"How many dollars do {count} {goods} cost today?",
        program=(
            f"reduction = {price} * {percent} / 100",
            f"reduced = {price} - reduction",
            f"return {count} * reduced",
        ),
        answer=count * price * (100 - percent) // 100,
    )


def _overtime(rng: Random) -> Draft:
    name, wage, hours = rng.choice(NAMES), 2 * rng.randint(5, 15), rng.randint(43, 56)
    return Draft(
        text=f"{name} earns ${wage} an hour for the first 40 hours of a week, and half as much again for "
        f"every hour beyond them. This week {name} worked {hours} hours. How many dollars is that?",
        program=(
            f"normal = 40 * {wage}",
            f"extra_hours = {hours} - 40",
            f"extra = extra_hours * {wage} * 1.5",
            "return normal + extra",
        ),
        answer=40 * wage + (hours - 40) * wage * 3 // 2,
    )


def _saving(rng: Random) -> Draft:
    name, weekly, spent, weeks = (
        rng.choice(NAMES),
        rng.randint(12, 40),
        rng.randint(3, 10),
        rng.randint(3, 11),
    )
    start = rng.randint(5, 60)
    return Draft(
        text=f"{name} has ${start}. Each week {name} gets ${weekly} and spends ${spent} of it. "
        f"How many dollars does {name} have after {weeks} weeks?",
        program=(f"kept = {weekly} - {spent}", f"return {start} + {weeks} * kept"),
        answer=start + weeks * (weekly - spent),
    )


def _split_bill(rng: Random) -> Draft:
    people, share, tip = rng.randint(3, 8), rng.randint(9, 30), rng.randint(2, 6)
    return Draft(
        text=f"{people} friends share a dinner of ${people * share} equally, and each of them leaves ${tip} "
        "for the waiter as well. How many dollars does each of them pay?",
        program=(f"share = {people * share} / {people}", f"return share + {tip}"),
        answer=share + tip,
    )


def _bakery(rng: Random) -> Draft:
    name, trays, per_tray = rng.choice(NAMES), rng.randint(3, 8), rng.randint(6, 12)
    price, cost = rng.randint(2, 6), rng.randint(8, 30)
    return Draft(
        text=f"{name} bakes {trays} trays of {per_tray} rolls, for which the ingredients cost ${cost}. All "
        f"rolls are sold, for ${price} each. How many dollars are left after the ingredients are paid?",
        program=(
            f"rolls = {trays} * {per_tray}",
            f"income = rolls * {price}",
            f"return income - {cost}",
        ),
        answer=trays * per_tray * price - cost,
    )


def _tickets(rng: Random) -> Draft:
    adult, child = rng.randint(10, 20), rng.randint(4, 9)
    adults, children = rng.randint(20, 80), rng.randint(10, 60)
    return Draft(
        text=f"A ticket for the play costs ${adult}, and ${child} for a child. Of the {adults + children} "
        f"people who came, {children} were children. How many dollars did the tickets bring?",
        program=(
            f"adults = {adults + children} - {children}",
            f"income = adults * {adult}",
            f"return income + {children} * {child}",
        ),
        answer=adults * adult + children * child,
    )


def _loan(rng: Random) -> Draft:
    first, second = two_names(rng)
    months, rate, paid = rng.randint(4, 12), rng.randint(15, 40), rng.randint(2, 3)
    return Draft(
        text=f"{first} owes {second} ${months * rate} and pays back ${rate} a month. "
        f"How many months are left after {paid} payments?",
        program=(f"left = {months * rate} - {paid} * {rate}", f"return left / {rate}"),
        answer=months - paid,
    )


def _gift(rng: Random) -> Draft:
    first, second = two_names(rng)
    amount, factor, price = rng.randint(8, 25), rng.randint(2, 4), rng.randint(3, 9)
    total = amount + factor * amount
    return Draft(
        text=f"{first} has ${amount} and {second} has {factor} times as much. Together they buy a gift for "
        f"${total - price}. How many dollars are left?",
        program=(
            f"other = {factor} * {amount}",
            f"together = {amount} + other",
            f"return together - {total - price}",
        ),
        answer=price,
    )


TEMPLATES = (
    Template(family="two goods", level=3, draft=_two_goods),
    Template(family="change", level=2, draft=_change),
    Template(family="discount", level=3, draft=_discount),
    Template(family="overtime", level=4, draft=_overtime),
    Template(family="saving", level=2, draft=_saving),
    Template(family="split bill", level=2, draft=_split_bill),
    Template(family="bakery", level=3, draft=_bakery),
    Template(family="tickets", level=3, draft=_tickets),
    Template(family="loan", level=2, draft=_loan),
    Template(family="gift", level=3, draft=_gift),
)
