"""Ladder tasks on decisions: booleans, ranges, choices, categories, rules."""

from __future__ import annotations

from curriculum.ladder.builder import ladder_task
from curriculum.task import Task

# Kept by hand: the formatter would put every test on a line of its own.
# fmt: off
TASKS: tuple[Task, ...] = (
    ladder_task("both_positive", family="boolean combination", level=1,
        prompt=(
            "Write a function `both_positive(a, b)` that returns True if a and b are both greater than zero, "
            "otherwise False."
        ),
        reference="def both_positive(a, b):\n    return a > 0 and b > 0\n",
        tests=(
            ((1, 2), True), ((1, -2), False), ((-1, 2), False), ((-1, -2), False), ((0, 5), False),
            ((5, 0), False), ((100, 1), True),
        ),
    ),
    ladder_task("either_negative", family="boolean combination", level=1,
        prompt=(
            "Write a function `either_negative(a, b)` that returns True if at least one of the two numbers "
            "is less than zero."
        ),
        reference="def either_negative(a, b):\n    return a < 0 or b < 0\n",
        tests=(
            ((1, 2), False), ((1, -2), True), ((-1, 2), True), ((-1, -2), True), ((0, 5), False),
            ((0, 0), False), ((0, -1), True),
        ),
    ),
    ladder_task("neither_is_zero", family="boolean combination", level=1,
        prompt=(
            "Write `neither_is_zero(a, b)`, which returns True only when the numbers a and b are both "
            "different from 0."
        ),
        reference="def neither_is_zero(a, b):\n    return a != 0 and b != 0\n",
        tests=(
            ((1, 2), True), ((0, 2), False), ((1, 0), False), ((0, 0), False), ((-1, 5), True),
            ((-3, -3), True),
        ),
    ),
    ladder_task("any_of_three", family="boolean combination", level=1,
        prompt=(
            "Write a function `any_of_three(a, b, c)` that returns True if at least one of its three boolean "
            "arguments is True, else False."
        ),
        reference="def any_of_three(a, b, c):\n    return a or b or c\n",
        tests=(
            ((True, True, True), True), ((False, False, False), False), ((True, False, False), True),
            ((False, True, False), True), ((False, False, True), True), ((False, True, True), True),
        ),
    ),
    ladder_task("can_go_outside", family="boolean combination", level=1,
        prompt=(
            "I go outside when it is sunny, or when I have both an umbrella and a coat. Write "
            "`can_go_outside(sunny, umbrella, coat)`, which takes three booleans and returns a boolean."
        ),
        reference="def can_go_outside(sunny, umbrella, coat):\n    return sunny or (umbrella and coat)\n",
        tests=(
            ((True, True, True), True), ((True, False, False), True), ((False, True, True), True),
            ((False, True, False), False), ((False, False, True), False), ((False, False, False), False),
            ((True, False, True), True),
        ),
    ),

    ladder_task("is_between", family="range checks", level=1,
        prompt=(
            "Write a function `is_between(x, low, high)` that returns True if x is at least low and at most "
            "high."
        ),
        reference="def is_between(x, low, high):\n    return low <= x <= high\n",
        tests=(
            ((5, 1, 10), True), ((1, 1, 10), True), ((10, 1, 10), True), ((0, 1, 10), False),
            ((11, 1, 10), False), ((-3, -5, -1), True), ((4, 4, 4), True),
        ),
    ),
    ladder_task("is_single_digit", family="range checks", level=1,
        prompt=(
            "Write `is_single_digit(n)` that returns True if the integer n is one of 0, 1, ..., 9 and False "
            "otherwise."
        ),
        reference="def is_single_digit(n):\n    return 0 <= n <= 9\n",
        tests=(((0,), True), ((9,), True), ((10,), False), ((-1,), False), ((5,), True), ((100,), False)),
    ),
    ladder_task("is_adult", family="range checks", level=1,
        prompt=(
            "Write a function `is_adult(age)` that returns True if age is 18 or more, and False if it is "
            "less."
        ),
        reference="def is_adult(age):\n    return age >= 18\n",
        tests=(((0,), False), ((17,), False), ((18,), True), ((19,), True), ((65,), True), ((100,), True)),
    ),
    ladder_task("is_outside", family="range checks", level=2,
        prompt=(
            "Write `is_outside(x, low, high)` that returns True when x is less than low or greater than "
            "high. The two limits themselves are not outside."
        ),
        reference="def is_outside(x, low, high):\n    return x < low or x > high\n",
        tests=(
            ((5, 1, 10), False), ((1, 1, 10), False), ((10, 1, 10), False), ((0, 1, 10), True),
            ((11, 1, 10), True), ((-9, -5, -1), True), ((4, 4, 4), False),
        ),
    ),
    ladder_task("ranges_touch", family="range checks", level=2,
        prompt=(
            "The integers from a to b form one range and those from c to d another, ends included, with a <= "
            "b and c <= d. Write `ranges_touch(a, b, c, d)` that returns True if the ranges have at least "
            "one integer in common."
        ),
        reference="def ranges_touch(a, b, c, d):\n    return a <= d and c <= b\n",
        tests=(
            ((1, 5, 3, 8), True), ((1, 2, 3, 4), False), ((3, 4, 1, 2), False), ((1, 3, 3, 5), True),
            ((0, 10, 4, 5), True), ((3, 5, 1, 3), True), ((4, 5, 0, 10), True), ((-5, -1, 0, 2), False),
        ),
    ),

    ladder_task("pick_one", family="choosing a value", level=1,
        prompt=(
            "Write a function `pick_one(flag, a, b)` that returns a if flag is True and b if flag is False."
        ),
        reference="def pick_one(flag, a, b):\n    return a if flag else b\n",
        tests=(
            ((True, 1, 2), 1), ((False, 1, 2), 2), ((True, "x", "y"), "x"), ((False, "x", "y"), "y"),
            ((True, 0, 5), 0), ((False, 5, 0), 0),
        ),
    ),
    ladder_task("warm_or_cold", family="choosing a value", level=1,
        prompt=(
            'Write `warm_or_cold(degrees)`. It returns the string "warm" if degrees is 20 or more, otherwise '
            'the string "cold".'
        ),
        reference='def warm_or_cold(degrees):\n    return "warm" if degrees >= 20 else "cold"\n',
        tests=(
            ((20,), "warm"), ((19,), "cold"), ((21,), "warm"), ((0,), "cold"), ((-5,), "cold"),
            ((35,), "warm"),
        ),
    ),
    ladder_task("first_nonzero", family="choosing a value", level=2,
        prompt=(
            "Write a function `first_nonzero(a, b)` that returns a unless a is 0, in which case it returns b."
        ),
        reference=(
            "def first_nonzero(a, b):\n"
            "    if a != 0:\n"
            "        return a\n"
            "    return b\n"
        ),
        tests=(((1, 2), 1), ((0, 2), 2), ((0, 0), 0), ((-3, 4), -3), ((5, 0), 5), ((0, -7), -7)),
    ),
    ladder_task("name_or_guest", family="choosing a value", level=2,
        prompt='Write `name_or_guest(name)` that returns name, but "Guest" if name is the empty string.',
        reference=(
            "def name_or_guest(name):\n"
            '    if name == "":\n'
            '        return "Guest"\n'
            "    return name\n"
        ),
        tests=(
            (("Ann",), "Ann"), (("",), "Guest"), (("Bob",), "Bob"), ((" ",), " "), (("Guest",), "Guest"),
            (("x",), "x"),
        ),
    ),
    ladder_task("closer_to_zero", family="choosing a value", level=2,
        prompt=(
            "Write a function `closer_to_zero(a, b)` that returns the argument with the smaller absolute "
            "value. If both are equally far from zero, return a."
        ),
        reference=(
            "def closer_to_zero(a, b):\n"
            "    if abs(a) <= abs(b):\n"
            "        return a\n"
            "    return b\n"
        ),
        tests=(
            ((1, 2), 1), ((2, 1), 1), ((-1, 5), -1), ((5, -1), -1), ((3, -3), 3), ((-3, 3), -3), ((-5, 2), 2),
            ((0, -8), 0),
        ),
    ),

    ladder_task("size_label", family="categories", level=2,
        prompt=(
            'Write a function `size_label(n)` that returns "small" if n is below 10, "medium" if n is at '
            'least 10 but below 100, and "large" from 100 on.'
        ),
        reference=(
            "def size_label(n):\n"
            "    if n < 10:\n"
            '        return "small"\n'
            "    if n < 100:\n"
            '        return "medium"\n'
            '    return "large"\n'
        ),
        tests=(
            ((0,), "small"), ((9,), "small"), ((10,), "medium"), ((99,), "medium"), ((100,), "large"),
            ((5000,), "large"), ((-4,), "small"),
        ),
    ),
    ladder_task("water_state", family="categories", level=2,
        prompt=(
            'Write `water_state(celsius)`: return "ice" for temperatures of 0 or less, "steam" for 100 or '
            'more, and "water" in between.'
        ),
        reference=(
            "def water_state(celsius):\n"
            "    if celsius <= 0:\n"
            '        return "ice"\n'
            "    if celsius >= 100:\n"
            '        return "steam"\n'
            '    return "water"\n'
        ),
        tests=(
            ((0,), "ice"), ((1,), "water"), ((50,), "water"), ((99,), "water"), ((100,), "steam"),
            ((-20,), "ice"), ((250,), "steam"),
        ),
    ),
    ladder_task("age_group", family="categories", level=2,
        prompt=(
            'Write a function `age_group(age)` that returns "child" below 13, "teen" from 13 to 19, and '
            '"adult" from 20 on.'
        ),
        reference=(
            "def age_group(age):\n"
            "    if age < 13:\n"
            '        return "child"\n'
            "    if age < 20:\n"
            '        return "teen"\n'
            '    return "adult"\n'
        ),
        tests=(
            ((0,), "child"), ((12,), "child"), ((13,), "teen"), ((19,), "teen"), ((20,), "adult"),
            ((80,), "adult"),
        ),
    ),
    ladder_task("exam_result", family="categories", level=2,
        prompt=(
            'A test is graded from 0 to 100. Write `exam_result(score)` that returns "fail" for scores under '
            '50, "pass" for 50 to 89, and "honors" for 90 and above.'
        ),
        reference=(
            "def exam_result(score):\n"
            "    if score < 50:\n"
            '        return "fail"\n'
            "    if score < 90:\n"
            '        return "pass"\n'
            '    return "honors"\n'
        ),
        tests=(
            ((0,), "fail"), ((49,), "fail"), ((50,), "pass"), ((89,), "pass"), ((90,), "honors"),
            ((100,), "honors"),
        ),
    ),
    ladder_task("speed_check", family="categories", level=2,
        prompt=(
            'Write a function `speed_check(speed, limit)` that returns "ok" if speed is not above limit, '
            '"warning" if it is above by at most 10, and "fine" if it is above by more than 10.'
        ),
        reference=(
            "def speed_check(speed, limit):\n"
            "    if speed <= limit:\n"
            '        return "ok"\n'
            "    if speed <= limit + 10:\n"
            '        return "warning"\n'
            '    return "fine"\n'
        ),
        tests=(
            ((40, 50), "ok"), ((50, 50), "ok"), ((51, 50), "warning"), ((60, 50), "warning"),
            ((61, 50), "fine"), ((0, 30), "ok"), ((130, 100), "fine"),
        ),
    ),

    ladder_task("biggest_of_three", family="three numbers", level=2,
        prompt="Write a function `biggest_of_three(a, b, c)` that returns the greatest of its three numbers.",
        reference="def biggest_of_three(a, b, c):\n    return max(a, b, c)\n",
        tests=(
            ((1, 2, 3), 3), ((3, 2, 1), 3), ((1, 3, 2), 3), ((5, 5, 5), 5), ((-1, -2, -3), -1),
            ((0, 0, 9), 9),
        ),
    ),
    ladder_task("all_three_equal", family="three numbers", level=2,
        prompt=(
            "Write `all_three_equal(a, b, c)` returning True if the three numbers are all the same and False "
            "otherwise."
        ),
        reference="def all_three_equal(a, b, c):\n    return a == b == c\n",
        tests=(
            ((1, 1, 1), True), ((1, 1, 2), False), ((1, 2, 1), False), ((2, 1, 1), False), ((0, 0, 0), True),
            ((1, 2, 3), False), ((-4, -4, -4), True),
        ),
    ),
    ladder_task("rises_strictly", family="three numbers", level=2,
        prompt=(
            "Write a function `rises_strictly(a, b, c)` that returns True when a is less than b and b is "
            "less than c."
        ),
        reference="def rises_strictly(a, b, c):\n    return a < b < c\n",
        tests=(
            ((1, 2, 3), True), ((3, 2, 1), False), ((1, 1, 2), False), ((1, 2, 2), False), ((-3, 0, 8), True),
            ((1, 3, 2), False), ((0, 0, 0), False),
        ),
    ),
    ladder_task("sum_of_top_two", family="three numbers", level=2,
        prompt=(
            "Write `sum_of_top_two(a, b, c)`, which leaves out the smallest of the three numbers and returns "
            "the sum of the other two."
        ),
        reference="def sum_of_top_two(a, b, c):\n    return a + b + c - min(a, b, c)\n",
        tests=(
            ((1, 2, 3), 5), ((3, 2, 1), 5), ((2, 1, 3), 5), ((5, 5, 5), 10), ((-1, -2, -3), -3),
            ((0, 0, 9), 9),
        ),
    ),
    ladder_task("middle_of_three", family="three numbers", level=3,
        prompt=(
            "Write a function `middle_of_three(a, b, c)` that returns the number that would stand in the "
            "middle if the three numbers were sorted."
        ),
        reference="def middle_of_three(a, b, c):\n    return sorted([a, b, c])[1]\n",
        tests=(
            ((1, 2, 3), 2), ((3, 2, 1), 2), ((2, 1, 3), 2), ((1, 3, 2), 2), ((5, 5, 1), 5), ((7, 7, 7), 7),
            ((-1, 0, -5), -1),
        ),
    ),

    ladder_task("traffic_action", family="decision rules", level=2,
        prompt=(
            'Write a function `traffic_action(color)` that returns "go" for "green", "slow" for "yellow", '
            'and "stop" for "red" and for any other color.'
        ),
        reference=(
            "def traffic_action(color):\n"
            '    if color == "green":\n'
            '        return "go"\n'
            '    if color == "yellow":\n'
            '        return "slow"\n'
            '    return "stop"\n'
        ),
        tests=(
            (("green",), "go"), (("yellow",), "slow"), (("red",), "stop"), (("blue",), "stop"),
            (("",), "stop"), (("GREEN",), "stop"),
        ),
    ),
    ladder_task("museum_price", family="decision rules", level=2,
        prompt=(
            "Museum tickets are free under 6, cost 5 from 6 to 17, cost 10 from 18 to 64 and cost 7 from 65 "
            "on. Write `museum_price(age)` that returns the price."
        ),
        reference=(
            "def museum_price(age):\n"
            "    if age < 6:\n"
            "        return 0\n"
            "    if age < 18:\n"
            "        return 5\n"
            "    if age < 65:\n"
            "        return 10\n"
            "    return 7\n"
        ),
        tests=(((0,), 0), ((5,), 0), ((6,), 5), ((17,), 5), ((18,), 10), ((64,), 10), ((65,), 7), ((90,), 7)),
    ),
    ladder_task("apply_operator", family="decision rules", level=3,
        prompt=(
            'Write a function `apply_operator(symbol, a, b)` where symbol is "+", "-" or "*". Return the '
            "result of that operation on a and b, or None for any other symbol."
        ),
        reference=(
            "def apply_operator(symbol, a, b):\n"
            '    if symbol == "+":\n'
            "        return a + b\n"
            '    if symbol == "-":\n'
            "        return a - b\n"
            '    if symbol == "*":\n'
            "        return a * b\n"
            "    return None\n"
        ),
        tests=(
            (("+", 2, 3), 5), (("-", 2, 3), -1), (("*", 2, 3), 6), (("/", 6, 3), None), (("", 1, 1), None),
            (("*", 0, 9), 0), (("-", -1, -1), 0),
        ),
    ),
    ladder_task("rock_paper_winner", family="decision rules", level=3,
        prompt=(
            'Two players choose "rock", "paper" or "scissors". Rock beats scissors, scissors beats paper, '
            "paper beats rock. Write `rock_paper_winner(first, second)` that returns 1 or 2 for the winning "
            "player, or 0 for a tie."
        ),
        reference=(
            "def rock_paper_winner(first, second):\n"
            "    if first == second:\n"
            "        return 0\n"
            '    beats = {"rock": "scissors", "scissors": "paper", "paper": "rock"}\n'
            "    return 1 if beats[first] == second else 2\n"
        ),
        tests=(
            (("rock", "scissors"), 1), (("scissors", "rock"), 2), (("paper", "rock"), 1),
            (("rock", "paper"), 2), (("scissors", "paper"), 1), (("paper", "scissors"), 2),
            (("rock", "rock"), 0), (("paper", "paper"), 0),
        ),
    ),
    ladder_task("quadrant_of", family="decision rules", level=3,
        prompt=(
            "A point (x, y) lies in quadrant 1 if both coordinates are positive, 2 if only y is, 3 if both "
            "are negative, 4 if only x is positive. Write `quadrant_of(x, y)` that returns the quadrant, or "
            "0 if x or y is zero."
        ),
        reference=(
            "def quadrant_of(x, y):\n"
            "    if x == 0 or y == 0:\n"
            "        return 0\n"
            "    if x > 0:\n"
            "        return 1 if y > 0 else 4\n"
            "    return 2 if y > 0 else 3\n"
        ),
        tests=(
            ((1, 1), 1), ((-1, 1), 2), ((-1, -1), 3), ((1, -1), 4), ((0, 5), 0), ((5, 0), 0), ((0, 0), 0),
            ((-20, 30), 2),
        ),
    ),
)
# fmt: on
