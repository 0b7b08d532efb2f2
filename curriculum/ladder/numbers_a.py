"""Ladder tasks on single numbers: scaling, sums, parity, comparison, powers, signs, bits."""

from __future__ import annotations

from curriculum.ladder.builder import ladder_task
from curriculum.task import Task

# Kept by hand: the formatter would put every test on a line of its own.
# fmt: off
TASKS: tuple[Task, ...] = (
    ladder_task("double_number", family="scaling numbers", level=1,
        prompt="Write a function `double_number(n)` that returns n multiplied by two.",
        reference="def double_number(n):\n    return n * 2\n",
        tests=(((0,), 0), ((1,), 2), ((4,), 8), ((-3,), -6), ((250,), 500), ((1000000,), 2000000)),
    ),
    ladder_task("triple_number", family="scaling numbers", level=1,
        prompt="Write a function `triple_number(n)` that returns three times n.",
        reference="def triple_number(n):\n    return 3 * n\n",
        tests=(((0,), 0), ((1,), 3), ((5,), 15), ((-2,), -6), ((33,), 99), ((123456,), 370368)),
    ),
    ladder_task("times_ten", family="scaling numbers", level=1,
        prompt="Define `times_ten(x)`, which gives back x multiplied by 10.",
        reference="def times_ten(x):\n    return x * 10\n",
        tests=(((0,), 0), ((1,), 10), ((7,), 70), ((-4,), -40), ((99,), 990), ((2.5,), 25.0)),
    ),
    ladder_task("half_of", family="scaling numbers", level=1,
        prompt=(
            "Write a function `half_of(x)` that returns x divided by 2, using true division (so the result "
            "is a float)."
        ),
        reference="def half_of(x):\n    return x / 2\n",
        tests=(((0,), 0.0), ((8,), 4.0), ((7,), 3.5), ((-6,), -3.0), ((1,), 0.5), ((1001,), 500.5)),
    ),
    ladder_task("scale_by", family="scaling numbers", level=1,
        prompt="Write `scale_by(value, factor)`. It returns the product of value and factor.",
        reference="def scale_by(value, factor):\n    return value * factor\n",
        tests=(((3, 4), 12), ((0, 9), 0), ((-2, 5), -10), ((-3, -3), 9), ((7, 0), 0), ((1.5, 4), 6.0)),
    ),

    ladder_task("add_one", family="sums and differences", level=1,
        prompt="Write a function `add_one(n)` that returns the integer that comes right after n.",
        reference="def add_one(n):\n    return n + 1\n",
        tests=(((0,), 1), ((5,), 6), ((-1,), 0), ((-10,), -9), ((99,), 100), ((999999,), 1000000)),
    ),
    ladder_task("number_before", family="sums and differences", level=1,
        prompt="Write `number_before(n)`, which returns n minus one.",
        reference="def number_before(n):\n    return n - 1\n",
        tests=(((0,), -1), ((1,), 0), ((10,), 9), ((-5,), -6), ((1000,), 999), ((77,), 76)),
    ),
    ladder_task("add_three_numbers", family="sums and differences", level=1,
        prompt="Write a function `add_three_numbers(a, b, c)` that returns the sum of its three arguments.",
        reference="def add_three_numbers(a, b, c):\n    return a + b + c\n",
        tests=(
            ((1, 2, 3), 6), ((0, 0, 0), 0), ((-1, 1, 5), 5), ((-2, -3, -4), -9), ((100, 200, 300), 600),
            ((0.5, 0.25, 1), 1.75),
        ),
    ),
    ladder_task("subtract_from", family="sums and differences", level=1,
        prompt="Create a function `subtract_from(total, part)` returning total minus part.",
        reference="def subtract_from(total, part):\n    return total - part\n",
        tests=(((10, 3), 7), ((3, 10), -7), ((0, 0), 0), ((5, 5), 0), ((-4, -6), 2), ((1000, 1), 999)),
    ),
    ladder_task("sum_then_double", family="sums and differences", level=1,
        prompt="Write `sum_then_double(a, b)`. It adds a and b and returns twice that sum.",
        reference="def sum_then_double(a, b):\n    return (a + b) * 2\n",
        tests=(((1, 2), 6), ((0, 0), 0), ((-3, 3), 0), ((10, -4), 12), ((-5, -6), -22), ((500, 250), 1500)),
    ),

    ladder_task("is_even_number", family="parity", level=1,
        prompt=(
            "Write a function `is_even_number(n)` that returns True if the integer n is even, otherwise "
            "False."
        ),
        reference="def is_even_number(n):\n    return n % 2 == 0\n",
        tests=(
            ((0,), True), ((1,), False), ((2,), True), ((-3,), False), ((-4,), True), ((1001,), False),
            ((88,), True),
        ),
    ),
    ladder_task("is_odd_number", family="parity", level=1,
        prompt=(
            "Write `is_odd_number(n)` so that it returns True when the integer n is odd and False when it is "
            "even."
        ),
        reference="def is_odd_number(n):\n    return n % 2 == 1\n",
        tests=(
            ((0,), False), ((1,), True), ((2,), False), ((-1,), True), ((-8,), False), ((77,), True),
            ((1000,), False),
        ),
    ),
    ladder_task("same_parity", family="parity", level=1,
        prompt=(
            "Write a function `same_parity(a, b)` that returns True when a and b are both even or both odd, "
            "and False otherwise."
        ),
        reference="def same_parity(a, b):\n    return a % 2 == b % 2\n",
        tests=(
            ((2, 4), True), ((1, 3), True), ((1, 2), False), ((0, 7), False), ((-1, 5), True),
            ((-2, 0), True), ((10, 9), False),
        ),
    ),
    ladder_task("parity_word", family="parity", level=2,
        prompt=(
            'Write a function `parity_word(n)` that returns the string "even" if n is even and the string '
            '"odd" if it is not.'
        ),
        reference=(
            "def parity_word(n):\n"
            "    if n % 2 == 0:\n"
            '        return "even"\n'
            '    return "odd"\n'
        ),
        tests=(
            ((0,), "even"), ((1,), "odd"), ((2,), "even"), ((-5,), "odd"), ((-6,), "even"), ((12345,), "odd"),
        ),
    ),
    ladder_task("next_even", family="parity", level=2,
        prompt=(
            "Write a function `next_even(n)` that returns the smallest even integer that is strictly greater "
            "than n."
        ),
        reference=(
            "def next_even(n):\n"
            "    if n % 2 == 0:\n"
            "        return n + 2\n"
            "    return n + 1\n"
        ),
        tests=(
            ((0,), 2), ((1,), 2), ((2,), 4), ((7,), 8), ((-1,), 0), ((-2,), 0), ((-5,), -4), ((100,), 102),
        ),
    ),

    ladder_task("divisible_by_five", family="divisibility", level=1,
        prompt=(
            "Write a function `divisible_by_five(n)` that returns True if n can be divided by 5 without a "
            "remainder, else False."
        ),
        reference="def divisible_by_five(n):\n    return n % 5 == 0\n",
        tests=(
            ((0,), True), ((5,), True), ((7,), False), ((-10,), True), ((-3,), False), ((1000,), True),
            ((1001,), False),
        ),
    ),
    ladder_task("is_multiple_of", family="divisibility", level=1,
        prompt=(
            "Write `is_multiple_of(n, k)` that returns True when n is a multiple of k and False when it is "
            "not. k is never zero."
        ),
        reference="def is_multiple_of(n, k):\n    return n % k == 0\n",
        tests=(
            ((10, 5), True), ((10, 3), False), ((0, 4), True), ((7, 7), True), ((-9, 3), True),
            ((3, 9), False), ((8, 1), True),
        ),
    ),
    ladder_task("remainder_by_seven", family="divisibility", level=1,
        prompt=(
            "Write a function `remainder_by_seven(n)` that returns the remainder of the non-negative integer "
            "n after division by 7."
        ),
        reference="def remainder_by_seven(n):\n    return n % 7\n",
        tests=(((0,), 0), ((6,), 6), ((7,), 0), ((8,), 1), ((20,), 6), ((700,), 0), ((1000,), 6)),
    ),
    ladder_task("divisible_by_both", family="divisibility", level=2,
        prompt=(
            "Write a function `divisible_by_both(n, a, b)` that returns True only if n is divisible by a and "
            "also by b. Neither a nor b is zero."
        ),
        reference="def divisible_by_both(n, a, b):\n    return n % a == 0 and n % b == 0\n",
        tests=(
            ((12, 3, 4), True), ((12, 3, 5), False), ((15, 3, 5), True), ((0, 2, 9), True),
            ((7, 2, 3), False), ((10, 3, 5), False), ((-30, 5, 6), True), ((9, 9, 9), True),
        ),
    ),
    ladder_task("round_up_to_multiple", family="divisibility", level=2,
        prompt=(
            "Write `round_up_to_multiple(n, k)`: for integers n >= 0 and k >= 1 it returns the smallest "
            "multiple of k that is not less than n."
        ),
        reference=(
            "def round_up_to_multiple(n, k):\n"
            "    if n % k == 0:\n"
            "        return n\n"
            "    return n + k - n % k\n"
        ),
        tests=(
            ((0, 5), 0), ((1, 5), 5), ((5, 5), 5), ((6, 5), 10), ((99, 10), 100), ((7, 1), 7),
            ((3, 100), 100),
        ),
    ),

    ladder_task("larger_of", family="comparison of two numbers", level=1,
        prompt="Write a function `larger_of(a, b)` that returns the bigger of the two numbers.",
        reference="def larger_of(a, b):\n    return max(a, b)\n",
        tests=(((1, 2), 2), ((2, 1), 2), ((3, 3), 3), ((-1, -5), -1), ((0, -2), 0), ((1000, 999), 1000)),
    ),
    ladder_task("smaller_of", family="comparison of two numbers", level=1,
        prompt="Write a function `smaller_of(a, b)` that returns whichever of a and b is less.",
        reference="def smaller_of(a, b):\n    return min(a, b)\n",
        tests=(((1, 2), 1), ((2, 1), 1), ((4, 4), 4), ((-1, -5), -5), ((0, 7), 0), ((-100, 100), -100)),
    ),
    ladder_task("is_greater", family="comparison of two numbers", level=1,
        prompt=(
            "Write `is_greater(a, b)`, which returns True if a is strictly greater than b and False "
            "otherwise."
        ),
        reference="def is_greater(a, b):\n    return a > b\n",
        tests=(
            ((2, 1), True), ((1, 2), False), ((5, 5), False), ((0, -1), True), ((-3, -2), False),
            ((2.5, 2), True),
        ),
    ),
    ladder_task("gap_between", family="comparison of two numbers", level=1,
        prompt=(
            "Write a function `gap_between(a, b)` that returns the absolute difference of a and b (never "
            "negative)."
        ),
        reference="def gap_between(a, b):\n    return abs(a - b)\n",
        tests=(((5, 2), 3), ((2, 5), 3), ((0, 0), 0), ((-3, 4), 7), ((-2, -9), 7), ((1000, 1), 999)),
    ),
    ladder_task("compare_numbers", family="comparison of two numbers", level=2,
        prompt=(
            "Write `compare_numbers(a, b)` that returns 1 if a is greater than b, -1 if a is less than b, "
            "and 0 if they are equal."
        ),
        reference=(
            "def compare_numbers(a, b):\n"
            "    if a > b:\n"
            "        return 1\n"
            "    if a < b:\n"
            "        return -1\n"
            "    return 0\n"
        ),
        tests=(
            ((2, 1), 1), ((1, 2), -1), ((3, 3), 0), ((0, 0), 0), ((-1, -2), 1), ((-5, 5), -1), ((1.5, 1), 1),
        ),
    ),

    ladder_task("square_of", family="powers", level=1,
        prompt="Write a function `square_of(n)` that returns n times itself.",
        reference="def square_of(n):\n    return n * n\n",
        tests=(((0,), 0), ((1,), 1), ((5,), 25), ((-4,), 16), ((12,), 144), ((1000,), 1000000)),
    ),
    ladder_task("cube_of", family="powers", level=1,
        prompt="Write a function `cube_of(n)` that returns n to the third power.",
        reference="def cube_of(n):\n    return n ** 3\n",
        tests=(((0,), 0), ((1,), 1), ((2,), 8), ((-3,), -27), ((10,), 1000), ((25,), 15625)),
    ),
    ladder_task("raise_to", family="powers", level=1,
        prompt=(
            "Write `raise_to(base, exponent)`, returning base to the power of exponent. The exponent is a "
            "non-negative integer."
        ),
        reference="def raise_to(base, exponent):\n    return base ** exponent\n",
        tests=(
            ((2, 3), 8), ((5, 0), 1), ((0, 4), 0), ((-2, 3), -8), ((-2, 2), 4), ((10, 6), 1000000),
            ((7, 1), 7),
        ),
    ),
    ladder_task("add_squares", family="powers", level=1,
        prompt="Write a function `add_squares(a, b)` that returns the square of a plus the square of b.",
        reference="def add_squares(a, b):\n    return a ** 2 + b ** 2\n",
        tests=(((3, 4), 25), ((0, 0), 0), ((1, 1), 2), ((-2, 3), 13), ((-5, -5), 50), ((10, 20), 500)),
    ),
    ladder_task("power_of_two_from", family="powers", level=2,
        prompt=(
            "Write `power_of_two_from(n)`: for an integer n >= 1 it returns the smallest power of two that "
            "is at least n. The number 1 counts as a power of two."
        ),
        reference=(
            "def power_of_two_from(n):\n"
            "    power = 1\n"
            "    while power < n:\n"
            "        power *= 2\n"
            "    return power\n"
        ),
        tests=(
            ((1,), 1), ((2,), 2), ((3,), 4), ((4,), 4), ((5,), 8), ((100,), 128), ((1024,), 1024),
            ((1025,), 2048),
        ),
    ),

    ladder_task("distance_from_zero", family="signs", level=1,
        prompt="Write a function `distance_from_zero(n)` that returns the absolute value of n.",
        reference="def distance_from_zero(n):\n    return abs(n)\n",
        tests=(((0,), 0), ((5,), 5), ((-5,), 5), ((-1,), 1), ((1000,), 1000), ((-2.5,), 2.5)),
    ),
    ladder_task("flip_sign", family="signs", level=1,
        prompt="Write `flip_sign(n)`, which returns n with the opposite sign.",
        reference="def flip_sign(n):\n    return -n\n",
        tests=(((5,), -5), ((-5,), 5), ((0,), 0), ((1,), -1), ((-1000,), 1000), ((2.5,), -2.5)),
    ),
    ladder_task("is_below_zero", family="signs", level=1,
        prompt=(
            "Write a function `is_below_zero(n)` that returns True if n is negative and False if it is not."
        ),
        reference="def is_below_zero(n):\n    return n < 0\n",
        tests=(
            ((-1,), True), ((0,), False), ((1,), False), ((-100,), True), ((100,), False), ((-0.5,), True),
        ),
    ),
    ladder_task("sign_word", family="signs", level=2,
        prompt=(
            'Write a function `sign_word(n)` that returns "positive", "negative" or "zero", whichever '
            "describes n."
        ),
        reference=(
            "def sign_word(n):\n"
            "    if n > 0:\n"
            '        return "positive"\n'
            "    if n < 0:\n"
            '        return "negative"\n'
            '    return "zero"\n'
        ),
        tests=(
            ((5,), "positive"), ((-5,), "negative"), ((0,), "zero"), ((1,), "positive"), ((-1,), "negative"),
            ((1000,), "positive"),
        ),
    ),
    ladder_task("opposite_signs", family="signs", level=2,
        prompt=(
            "Write `opposite_signs(a, b)` that returns True if one number is positive and the other one "
            "negative. Zero is neither positive nor negative."
        ),
        reference="def opposite_signs(a, b):\n    return a * b < 0\n",
        tests=(
            ((1, -1), True), ((-1, 1), True), ((1, 1), False), ((-1, -1), False), ((0, -5), False),
            ((5, 0), False), ((0, 0), False), ((100, -2), True),
        ),
    ),

    ladder_task("binary_text", family="binary text", level=3,
        prompt=(
            "Write a function `binary_text(n)` that returns the binary digits of the non-negative integer n "
            'as a string without any prefix. For 0 return "0".'
        ),
        reference='def binary_text(n):\n    return format(n, "b")\n',
        tests=(
            ((0,), "0"), ((1,), "1"), ((2,), "10"), ((5,), "101"), ((8,), "1000"), ((255,), "11111111"),
            ((1023,), "1111111111"),
        ),
    ),
    ladder_task("number_of_ones", family="binary text", level=3,
        prompt=(
            "Write `number_of_ones(n)` that returns how many ones the binary form of the non-negative "
            "integer n has."
        ),
        reference='def number_of_ones(n):\n    return format(n, "b").count("1")\n',
        tests=(((0,), 0), ((1,), 1), ((2,), 1), ((7,), 3), ((8,), 1), ((255,), 8), ((1000,), 6)),
    ),
    ladder_task("looks_binary", family="binary text", level=3,
        prompt=(
            "Write a function `looks_binary(text)` that returns True if text is not empty and has no other "
            'characters than "0" and "1".'
        ),
        reference='def looks_binary(text):\n    return text != "" and all(char in "01" for char in text)\n',
        tests=(
            (("0101",), True), (("",), False), (("0",), True), (("102",), False), (("1111",), True),
            (("abc",), False), (("1 0",), False),
        ),
    ),
    ladder_task("value_of_bits", family="binary text", level=4,
        prompt=(
            "Write `value_of_bits(bits)` that returns the integer which the non-empty string bits of zeros "
            "and ones stands for in base two."
        ),
        reference=(
            "def value_of_bits(bits):\n"
            "    value = 0\n"
            "    for bit in bits:\n"
            "        value = value * 2 + int(bit)\n"
            "    return value\n"
        ),
        tests=((("0",), 0), (("1",), 1), (("10",), 2), (("101",), 5), (("0011",), 3), (("11111111",), 255)),
    ),
    ladder_task("digits_in_base", family="binary text", level=4,
        prompt=(
            "Write a function `digits_in_base(n, base)` that writes the non-negative integer n in the given "
            'base, which is between 2 and 10, and returns the digits as a string. For n = 0 return "0".'
        ),
        reference=(
            "def digits_in_base(n, base):\n"
            "    if n == 0:\n"
            '        return "0"\n'
            '    text = ""\n'
            "    while n > 0:\n"
            "        text = str(n % base) + text\n"
            "        n //= base\n"
            "    return text\n"
        ),
        tests=(
            ((0, 2), "0"), ((5, 2), "101"), ((10, 3), "101"), ((255, 8), "377"), ((123, 10), "123"),
            ((7, 7), "10"), ((6, 7), "6"),
        ),
    ),
)
# fmt: on
