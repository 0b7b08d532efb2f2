"""Ladder tasks on numbers in use: digits, clamping, units, money, geometry, running sums, divisors."""

from __future__ import annotations

from curriculum.ladder.builder import ladder_task
from curriculum.task import Task

# Kept by hand: the formatter would put every test on a line of its own.
# fmt: off
TASKS: tuple[Task, ...] = (
    ladder_task("digit_total", family="digit sums", level=3,
        prompt=(
            "Write a function `digit_total(n)` that returns the sum of the decimal digits of the integer n. "
            "Ignore the sign of n."
        ),
        reference="def digit_total(n):\n    return sum(int(digit) for digit in str(abs(n)))\n",
        tests=(((0,), 0), ((7,), 7), ((10,), 1), ((123,), 6), ((999,), 27), ((-45,), 9), ((1000001,), 2)),
    ),
    ladder_task("digit_product", family="digit sums", level=3,
        prompt=(
            "Write `digit_product(n)` that multiplies together all decimal digits of the non-negative "
            "integer n and returns the result."
        ),
        reference=(
            "def digit_product(n):\n"
            "    product = 1\n"
            "    for digit in str(n):\n"
            "        product *= int(digit)\n"
            "    return product\n"
        ),
        tests=(((0,), 0), ((7,), 7), ((10,), 0), ((123,), 6), ((999,), 729), ((111,), 1), ((2345,), 120)),
    ),
    ladder_task("largest_digit", family="digit sums", level=3,
        prompt=(
            "Given a non-negative integer n, `largest_digit(n)` should return its biggest decimal digit as "
            "an integer."
        ),
        reference="def largest_digit(n):\n    return max(int(digit) for digit in str(n))\n",
        tests=(((0,), 0), ((7,), 7), ((10,), 1), ((123,), 3), ((321,), 3), ((555,), 5), ((90817,), 9)),
    ),
    ladder_task("repeated_digit_sum", family="digit sums", level=4,
        prompt=(
            "Write `repeated_digit_sum(n)` for a non-negative integer n: add up its digits, then the digits "
            "of that sum, and so on until a single digit is left, which is returned."
        ),
        reference=(
            "def repeated_digit_sum(n):\n"
            "    while n >= 10:\n"
            "        n = sum(int(digit) for digit in str(n))\n"
            "    return n\n"
        ),
        tests=(((0,), 0), ((9,), 9), ((10,), 1), ((38,), 2), ((99,), 9), ((12345,), 6), ((999999,), 9)),
    ),
    ladder_task("digits_strictly_rise", family="digit sums", level=4,
        prompt=(
            "Write a function `digits_strictly_rise(n)` that returns True if each decimal digit of the "
            "non-negative integer n is greater than the digit to its left. A one-digit number gives True."
        ),
        reference=(
            "def digits_strictly_rise(n):\n"
            "    text = str(n)\n"
            "    for index in range(1, len(text)):\n"
            "        if text[index] <= text[index - 1]:\n"
            "            return False\n"
            "    return True\n"
        ),
        tests=(
            ((0,), True), ((7,), True), ((123,), True), ((132,), False), ((11,), False), ((13589,), True),
            ((98,), False), ((1233,), False),
        ),
    ),

    ladder_task("at_least_zero", family="clamping", level=1,
        prompt="Write a function `at_least_zero(n)` that returns n if it is positive and 0 otherwise.",
        reference="def at_least_zero(n):\n    return max(n, 0)\n",
        tests=(((5,), 5), ((0,), 0), ((-3,), 0), ((1,), 1), ((-100,), 0), ((99,), 99)),
    ),
    ladder_task("at_most_hundred", family="clamping", level=1,
        prompt="Write `at_most_hundred(n)`, which returns n, or 100 if n is bigger than 100.",
        reference="def at_most_hundred(n):\n    return min(n, 100)\n",
        tests=(((5,), 5), ((100,), 100), ((101,), 100), ((-7,), -7), ((0,), 0), ((5000,), 100)),
    ),
    ladder_task("clamp_value", family="clamping", level=2,
        prompt=(
            "Write a function `clamp_value(x, low, high)` that returns low if x is below low, high if x is "
            "above high, and x itself otherwise. You may assume low <= high."
        ),
        reference="def clamp_value(x, low, high):\n    return max(low, min(x, high))\n",
        tests=(
            ((5, 0, 10), 5), ((-5, 0, 10), 0), ((15, 0, 10), 10), ((0, 0, 10), 0), ((10, 0, 10), 10),
            ((-3, -8, -4), -4), ((7, 2, 2), 2),
        ),
    ),
    ladder_task("dead_zone", family="clamping", level=2,
        prompt=(
            "Write `dead_zone(x, limit)`: return 0 when the absolute value of x is at most limit, and x "
            "unchanged in all other cases."
        ),
        reference=(
            "def dead_zone(x, limit):\n"
            "    if abs(x) <= limit:\n"
            "        return 0\n"
            "    return x\n"
        ),
        tests=(((3, 5), 0), ((-3, 5), 0), ((5, 5), 0), ((6, 5), 6), ((-9, 5), -9), ((0, 0), 0), ((1, 0), 1)),
    ),
    ladder_task("step_towards", family="clamping", level=2,
        prompt=(
            "Write a function `step_towards(current, target, step)` that moves current towards target by at "
            "most step and returns the new value, without going past target. The step is never negative."
        ),
        reference=(
            "def step_towards(current, target, step):\n"
            "    if current < target:\n"
            "        return min(current + step, target)\n"
            "    return max(current - step, target)\n"
        ),
        tests=(
            ((0, 10, 3), 3), ((9, 10, 3), 10), ((10, 10, 3), 10), ((10, 0, 4), 6), ((2, 0, 4), 0),
            ((-5, 5, 0), -5), ((-5, -7, 1), -6),
        ),
    ),

    ladder_task("feet_to_inches", family="unit conversion", level=1,
        prompt="Write a function `feet_to_inches(feet)` that converts feet to inches. One foot is 12 inches.",
        reference="def feet_to_inches(feet):\n    return feet * 12\n",
        tests=(((0,), 0), ((1,), 12), ((2,), 24), ((6,), 72), ((100,), 1200), ((0.5,), 6.0)),
    ),
    ladder_task("kilometers_to_meters", family="unit conversion", level=1,
        prompt="Write `kilometers_to_meters(km)` that returns how many meters there are in km kilometers.",
        reference="def kilometers_to_meters(km):\n    return km * 1000\n",
        tests=(((0,), 0), ((1,), 1000), ((5,), 5000), ((42,), 42000), ((1000,), 1000000), ((2.5,), 2500.0)),
    ),
    ladder_task("celsius_to_fahrenheit", family="unit conversion", level=1,
        prompt="Write `celsius_to_fahrenheit(celsius)`, which returns celsius * 9 / 5 + 32.",
        reference="def celsius_to_fahrenheit(celsius):\n    return celsius * 9 / 5 + 32\n",
        tests=(
            ((0,), 32.0), ((100,), 212.0), ((-40,), -40.0), ((20,), 68.0), ((12.5,), 54.5), ((-10,), 14.0),
        ),
    ),
    ladder_task("grams_to_kilograms", family="unit conversion", level=1,
        prompt=(
            "Write a function `grams_to_kilograms(grams)` that converts grams to kilograms with true "
            "division by 1000."
        ),
        reference="def grams_to_kilograms(grams):\n    return grams / 1000\n",
        tests=(((0,), 0.0), ((1000,), 1.0), ((500,), 0.5), ((250,), 0.25), ((7000,), 7.0), ((1500,), 1.5)),
    ),
    ladder_task("dozens_to_eggs", family="unit conversion", level=1,
        prompt=(
            "Eggs are sold in dozens of 12. Write `dozens_to_eggs(dozens)` that returns the number of eggs."
        ),
        reference="def dozens_to_eggs(dozens):\n    return dozens * 12\n",
        tests=(((0,), 0), ((1,), 12), ((2,), 24), ((10,), 120), ((25,), 300), ((1000,), 12000)),
    ),

    ladder_task("cost_of_items", family="prices and interest", level=1,
        prompt=(
            "Write a function `cost_of_items(price, quantity)` that returns what quantity items cost when "
            "each costs price."
        ),
        reference="def cost_of_items(price, quantity):\n    return price * quantity\n",
        tests=(((5, 3), 15), ((0, 10), 0), ((7, 0), 0), ((1, 1), 1), ((2.5, 4), 10.0), ((199, 12), 2388)),
    ),
    ladder_task("split_bill", family="prices and interest", level=1,
        prompt=(
            "Write `split_bill(total, people)` that divides total evenly by people and returns the share as "
            "a float. There is at least one person."
        ),
        reference="def split_bill(total, people):\n    return total / people\n",
        tests=(
            ((10, 2), 5.0), ((9, 4), 2.25), ((0, 3), 0.0), ((7, 1), 7.0), ((100, 8), 12.5), ((45, 6), 7.5),
        ),
    ),
    ladder_task("interest_earned", family="prices and interest", level=1,
        prompt=(
            "Write a function `interest_earned(amount, rate, years)` that returns the simple interest amount "
            "* rate * years / 100."
        ),
        reference="def interest_earned(amount, rate, years):\n    return amount * rate * years / 100\n",
        tests=(
            ((100, 5, 1), 5.0), ((1000, 5, 2), 100.0), ((0, 7, 3), 0.0), ((200, 0, 4), 0.0),
            ((500, 10, 0), 0.0), ((50, 5, 1), 2.5),
        ),
    ),
    ladder_task("change_due", family="prices and interest", level=2,
        prompt=(
            "Write a function `change_due(paid, price)` that returns paid minus price, or 0 if less than the "
            "price was paid."
        ),
        reference=(
            "def change_due(paid, price):\n"
            "    if paid < price:\n"
            "        return 0\n"
            "    return paid - price\n"
        ),
        tests=(((10, 7), 3), ((7, 10), 0), ((5, 5), 0), ((0, 0), 0), ((100, 1), 99), ((0, 3), 0)),
    ),
    ladder_task("order_with_shipping", family="prices and interest", level=2,
        prompt=(
            "Orders of 50 or more ship for free and all other orders cost 5 to ship. Write "
            "`order_with_shipping(total)` that returns the order total with the shipping cost added."
        ),
        reference=(
            "def order_with_shipping(total):\n"
            "    if total >= 50:\n"
            "        return total\n"
            "    return total + 5\n"
        ),
        tests=(((0,), 5), ((49,), 54), ((50,), 50), ((51,), 51), ((10,), 15), ((1000,), 1000)),
    ),

    ladder_task("area_of_rectangle", family="area formulas", level=1,
        prompt="Write a function `area_of_rectangle(width, height)` that returns the area of a rectangle.",
        reference="def area_of_rectangle(width, height):\n    return width * height\n",
        tests=(((3, 4), 12), ((1, 1), 1), ((0, 5), 0), ((10, 10), 100), ((2.5, 2), 5.0), ((100, 7), 700)),
    ),
    ladder_task("border_of_square", family="area formulas", level=1,
        prompt=(
            "Write `border_of_square(side)`, returning the perimeter of a square whose side has that length."
        ),
        reference="def border_of_square(side):\n    return 4 * side\n",
        tests=(((0,), 0), ((1,), 4), ((3,), 12), ((10,), 40), ((2.5,), 10.0), ((999,), 3996)),
    ),
    ladder_task("border_of_rectangle", family="area formulas", level=1,
        prompt=(
            "Write a function `border_of_rectangle(width, height)` that returns the perimeter of a rectangle."
        ),
        reference="def border_of_rectangle(width, height):\n    return 2 * (width + height)\n",
        tests=(((3, 4), 14), ((1, 1), 4), ((0, 5), 10), ((10, 10), 40), ((2.5, 2), 9.0), ((100, 7), 214)),
    ),
    ladder_task("box_volume", family="area formulas", level=1,
        prompt=(
            "A box has three side lengths. Write `box_volume(length, width, height)` that returns its volume."
        ),
        reference="def box_volume(length, width, height):\n    return length * width * height\n",
        tests=(
            ((1, 2, 3), 6), ((1, 1, 1), 1), ((0, 5, 5), 0), ((10, 10, 10), 1000), ((2, 2, 0.5), 2.0),
            ((7, 11, 13), 1001),
        ),
    ),
    ladder_task("can_form_triangle", family="area formulas", level=2,
        prompt=(
            "Write a function `can_form_triangle(a, b, c)` that returns True if the sum of any two of the "
            "three positive lengths is strictly greater than the third one, else False."
        ),
        reference="def can_form_triangle(a, b, c):\n    return a + b > c and a + c > b and b + c > a\n",
        tests=(
            ((3, 4, 5), True), ((1, 1, 1), True), ((1, 2, 3), False), ((1, 1, 5), False), ((10, 2, 3), False),
            ((2, 5, 3), False), ((5, 2, 3), False), ((5, 5, 9), True),
        ),
    ),

    ladder_task("total_up_to", family="running sums", level=2,
        prompt=(
            "Write a function `total_up_to(n)` that adds all the integers 1, 2, 3, ... up to and including "
            "n. Return 0 when n is less than 1."
        ),
        reference=(
            "def total_up_to(n):\n"
            "    total = 0\n"
            "    for number in range(1, n + 1):\n"
            "        total += number\n"
            "    return total\n"
        ),
        tests=(((0,), 0), ((1,), 1), ((2,), 3), ((10,), 55), ((100,), 5050), ((-5,), 0)),
    ),
    ladder_task("sum_between", family="running sums", level=2,
        prompt=(
            "Write `sum_between(low, high)` that returns the sum of all integers from low to high, both ends "
            "included. If low is greater than high the answer is 0."
        ),
        reference="def sum_between(low, high):\n    return sum(range(low, high + 1))\n",
        tests=(((1, 3), 6), ((5, 5), 5), ((4, 2), 0), ((-2, 2), 0), ((-3, -1), -6), ((0, 100), 5050)),
    ),
    ladder_task("sum_squares_up_to", family="running sums", level=2,
        prompt=(
            "Write a function `sum_squares_up_to(n)` that returns 1*1 + 2*2 + ... + n*n for a non-negative "
            "integer n. For n equal to 0 return 0."
        ),
        reference=(
            "def sum_squares_up_to(n):\n"
            "    return sum(number * number for number in range(1, n + 1))\n"
        ),
        tests=(((0,), 0), ((1,), 1), ((2,), 5), ((3,), 14), ((10,), 385), ((20,), 2870)),
    ),
    ladder_task("sum_multiples_below", family="running sums", level=3,
        prompt=(
            "Write `sum_multiples_below(limit, k)`, which adds up all positive multiples of k that are "
            "smaller than limit. Here k is a positive integer. Return 0 if there are none."
        ),
        reference="def sum_multiples_below(limit, k):\n    return sum(range(k, limit, k))\n",
        tests=(
            ((10, 3), 18), ((10, 5), 5), ((0, 4), 0), ((4, 4), 0), ((5, 4), 4), ((100, 10), 450),
            ((7, 1), 21),
        ),
    ),
    ladder_task("alternating_total", family="running sums", level=3,
        prompt=(
            "Write a function `alternating_total(n)` that returns 1 - 2 + 3 - 4 + ... up to n, where odd "
            "numbers are added and even numbers are subtracted. For n = 0 return 0."
        ),
        reference=(
            "def alternating_total(n):\n"
            "    total = 0\n"
            "    for number in range(1, n + 1):\n"
            "        if number % 2 == 1:\n"
            "            total += number\n"
            "        else:\n"
            "            total -= number\n"
            "    return total\n"
        ),
        tests=(((0,), 0), ((1,), 1), ((2,), -1), ((3,), 2), ((4,), -2), ((99,), 50), ((100,), -50)),
    ),

    ladder_task("number_of_divisors", family="divisors", level=4,
        prompt=(
            "Write a function `number_of_divisors(n)` that returns how many positive integers divide the "
            "positive integer n exactly, counting 1 and n."
        ),
        reference=(
            "def number_of_divisors(n):\n"
            "    return sum(1 for candidate in range(1, n + 1) if n % candidate == 0)\n"
        ),
        tests=(((1,), 1), ((2,), 2), ((6,), 4), ((7,), 2), ((12,), 6), ((16,), 5), ((100,), 9)),
    ),
    ladder_task("add_smaller_divisors", family="divisors", level=4,
        prompt=(
            "Write `add_smaller_divisors(n)` that adds up the positive divisors of the positive integer n, "
            "leaving out n itself. For n = 1 the result is 0."
        ),
        reference=(
            "def add_smaller_divisors(n):\n"
            "    return sum(candidate for candidate in range(1, n) if n % candidate == 0)\n"
        ),
        tests=(((1,), 0), ((2,), 1), ((6,), 6), ((7,), 1), ((12,), 16), ((16,), 15), ((28,), 28)),
    ),
    ladder_task("is_a_prime", family="divisors", level=4,
        prompt=(
            "Write a function `is_a_prime(n)` that tells whether the integer n is prime: True for primes, "
            "False for all other integers, including those below 2."
        ),
        reference=(
            "def is_a_prime(n):\n"
            "    if n < 2:\n"
            "        return False\n"
            "    for candidate in range(2, n):\n"
            "        if candidate * candidate > n:\n"
            "            break\n"
            "        if n % candidate == 0:\n"
            "            return False\n"
            "    return True\n"
        ),
        tests=(
            ((-7,), False), ((0,), False), ((1,), False), ((2,), True), ((3,), True), ((4,), False),
            ((9,), False), ((97,), True), ((91,), False),
        ),
    ),
    ladder_task("prime_after", family="divisors", level=5,
        prompt=(
            "Write a function `prime_after(n)` that returns the smallest prime number strictly greater than "
            "the integer n."
        ),
        reference=(
            "def prime_after(n):\n"
            "    candidate = max(n + 1, 2)\n"
            "    while any(candidate % divisor == 0 for divisor in range(2, candidate)):\n"
            "        candidate += 1\n"
            "    return candidate\n"
        ),
        tests=(
            ((-5,), 2), ((0,), 2), ((2,), 3), ((3,), 5), ((8,), 11), ((13,), 17), ((89,), 97), ((100,), 101),
        ),
    ),
    ladder_task("prime_factor_text", family="divisors", level=5,
        prompt=(
            "Write `prime_factor_text(n)` for an integer n >= 2. It returns the prime factors of n in "
            "increasing order, repeated as often as they divide n and joined by the letter x, for example "
            '"2x2x3" for 12.'
        ),
        reference=(
            "def prime_factor_text(n):\n"
            "    factors = []\n"
            "    divisor = 2\n"
            "    while n > 1:\n"
            "        while n % divisor == 0:\n"
            "            factors.append(str(divisor))\n"
            "            n //= divisor\n"
            "        divisor += 1\n"
            '    return "x".join(factors)\n'
        ),
        tests=(
            ((2,), "2"), ((12,), "2x2x3"), ((7,), "7"), ((8,), "2x2x2"), ((30,), "2x3x5"), ((49,), "7x7"),
            ((97,), "97"), ((360,), "2x2x2x3x3x5"),
        ),
    ),
)
# fmt: on
