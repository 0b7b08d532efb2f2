"""Decisions: booleans, ranges, choices, categories, rules."""

family, level = "boolean combination", 1

def both_positive(a, b):
    """Write a function `both_positive(a, b)` that returns True if a and b are both greater than zero,
    otherwise False."""
    return a > 0 and b > 0
assert both_positive(1, 2) == True and both_positive(1, -2) == False and both_positive(-1, 2) == False
assert both_positive(-1, -2) == False and both_positive(0, 5) == False and both_positive(5, 0) == False
assert both_positive(100, 1) == True

def either_negative(a, b):
    """Write a function `either_negative(a, b)` that returns True if at least one of the two numbers is less
    than zero."""
    return a < 0 or b < 0
assert either_negative(1, 2) == False and either_negative(1, -2) == True and either_negative(-1, 2) == True
assert either_negative(-1, -2) == True and either_negative(0, 5) == False and either_negative(0, 0) == False
assert either_negative(0, -1) == True

def neither_is_zero(a, b):
    """Write `neither_is_zero(a, b)`, which returns True only when the numbers a and b are both different from
    0."""
    return a != 0 and b != 0
assert neither_is_zero(1, 2) == True and neither_is_zero(0, 2) == False and neither_is_zero(1, 0) == False
assert neither_is_zero(0, 0) == False and neither_is_zero(-1, 5) == True and neither_is_zero(-3, -3) == True

def one_of_three(a, b, c):
    """Write a function `one_of_three(a, b, c)` that returns True if exactly one of its three boolean
    arguments is True, else False."""
    return a + b + c == 1
assert one_of_three(True, True, True) == False and one_of_three(False, False, False) == False
assert one_of_three(True, False, False) == True and one_of_three(False, True, False) == True
assert one_of_three(False, False, True) == True and one_of_three(False, True, True) == False

def can_go_outside(sunny, umbrella, coat):
    """I go outside when it is sunny, or when I have both an umbrella and a coat. Write `can_go_outside(sunny,
    umbrella, coat)`, which takes three booleans and returns a boolean."""
    return sunny or (umbrella and coat)
assert can_go_outside(True, True, True) == True and can_go_outside(True, False, False) == True
assert can_go_outside(False, True, True) == True and can_go_outside(False, True, False) == False
assert can_go_outside(False, False, True) == False and can_go_outside(False, False, False) == False
assert can_go_outside(True, False, True) == True

family, level = "range checks", 1

def is_between(x, low, high):
    """Write a function `is_between(x, low, high)` that returns True if x is at least low and at most high."""
    return low <= x <= high
assert is_between(5, 1, 10) == True and is_between(1, 1, 10) == True and is_between(10, 1, 10) == True
assert is_between(0, 1, 10) == False and is_between(11, 1, 10) == False and is_between(-3, -5, -1) == True
assert is_between(4, 4, 4) == True

def is_single_digit(n):
    """Write `is_single_digit(n)` that returns True if the integer n is one of 0, 1, ..., 9 and False
    otherwise."""
    return 0 <= n <= 9
assert is_single_digit(0) == True and is_single_digit(9) == True and is_single_digit(10) == False
assert is_single_digit(-1) == False and is_single_digit(5) == True and is_single_digit(100) == False

def is_adult(age):
    """Write a function `is_adult(age)` that returns True if age is 18 or more, and False if it is less."""
    return age >= 18
assert is_adult(0) == False and is_adult(17) == False and is_adult(18) == True and is_adult(19) == True
assert is_adult(65) == True and is_adult(100) == True

family, level = "range checks", 2

def is_outside(x, low, high):
    """Write `is_outside(x, low, high)` that returns True when x is less than low or greater than high. The
    two limits themselves are not outside."""
    return x < low or x > high
assert is_outside(5, 1, 10) == False and is_outside(1, 1, 10) == False and is_outside(10, 1, 10) == False
assert is_outside(0, 1, 10) == True and is_outside(11, 1, 10) == True and is_outside(-9, -5, -1) == True
assert is_outside(4, 4, 4) == False

def ranges_touch(a, b, c, d):
    """The integers from a to b form one range and those from c to d another, ends included, with a <= b and c
    <= d. Write `ranges_touch(a, b, c, d)` that returns True if the ranges have at least one integer in
    common."""
    return a <= d and c <= b
assert ranges_touch(1, 5, 3, 8) == True and ranges_touch(1, 2, 3, 4) == False
assert ranges_touch(3, 4, 1, 2) == False and ranges_touch(1, 3, 3, 5) == True
assert ranges_touch(0, 10, 4, 5) == True and ranges_touch(3, 5, 1, 3) == True
assert ranges_touch(4, 5, 0, 10) == True and ranges_touch(-5, -1, 0, 2) == False

family, level = "choosing a value", 1

def pick_one(flag, a, b):
    """Write a function `pick_one(flag, a, b)` that returns a if flag is True and b if flag is False."""
    return a if flag else b
assert pick_one(True, 1, 2) == 1 and pick_one(False, 1, 2) == 2 and pick_one(True, "x", "y") == "x"
assert pick_one(False, "x", "y") == "y" and pick_one(True, 0, 5) == 0 and pick_one(False, 5, 0) == 0

def warm_or_cold(degrees):
    """Write `warm_or_cold(degrees)`. It returns the string "warm" if degrees is 20 or more, otherwise the
    string "cold"."""
    return "warm" if degrees >= 20 else "cold"
assert warm_or_cold(20) == "warm" and warm_or_cold(19) == "cold" and warm_or_cold(21) == "warm"
assert warm_or_cold(0) == "cold" and warm_or_cold(-5) == "cold" and warm_or_cold(35) == "warm"

family, level = "choosing a value", 2

def first_nonzero(a, b):
    """Write a function `first_nonzero(a, b)` that returns a unless a is 0, in which case it returns b."""
    if a != 0:
        return a
    return b
assert first_nonzero(1, 2) == 1 and first_nonzero(0, 2) == 2 and first_nonzero(0, 0) == 0
assert first_nonzero(-3, 4) == -3 and first_nonzero(5, 0) == 5 and first_nonzero(0, -7) == -7

def name_or_guest(name):
    """Write `name_or_guest(name)` that returns name, but "Guest" if name is the empty string."""
    if name == "":
        return "Guest"
    return name
assert name_or_guest("Ann") == "Ann" and name_or_guest("") == "Guest" and name_or_guest("Bob") == "Bob"
assert name_or_guest(" ") == " " and name_or_guest("Guest") == "Guest" and name_or_guest("x") == "x"

def closer_to_zero(a, b):
    """Write a function `closer_to_zero(a, b)` that returns the argument with the smaller absolute value. If
    both are equally far from zero, return a."""
    if abs(a) <= abs(b):
        return a
    return b
assert closer_to_zero(1, 2) == 1 and closer_to_zero(2, 1) == 1 and closer_to_zero(-1, 5) == -1
assert closer_to_zero(5, -1) == -1 and closer_to_zero(3, -3) == 3 and closer_to_zero(-3, 3) == -3
assert closer_to_zero(-5, 2) == 2 and closer_to_zero(0, -8) == 0

family, level = "categories", 2

def size_label(n):
    """Write a function `size_label(n)` that returns "small" if n is below 10, "medium" if n is at least 10
    but below 100, and "large" from 100 on."""
    if n < 10:
        return "small"
    if n < 100:
        return "medium"
    return "large"
assert size_label(0) == "small" and size_label(9) == "small" and size_label(10) == "medium"
assert size_label(99) == "medium" and size_label(100) == "large" and size_label(5000) == "large"
assert size_label(-4) == "small"

def water_state(celsius):
    """Write `water_state(celsius)`: return "ice" for temperatures of 0 or less, "steam" for 100 or more, and
    "water" in between."""
    if celsius <= 0:
        return "ice"
    if celsius >= 100:
        return "steam"
    return "water"
assert water_state(0) == "ice" and water_state(1) == "water" and water_state(50) == "water"
assert water_state(99) == "water" and water_state(100) == "steam" and water_state(-20) == "ice"
assert water_state(250) == "steam"

def age_group(age):
    """Write a function `age_group(age)` that returns "child" below 13, "teen" from 13 to 19, and "adult" from
    20 on."""
    if age < 13:
        return "child"
    if age < 20:
        return "teen"
    return "adult"
assert age_group(0) == "child" and age_group(12) == "child" and age_group(13) == "teen"
assert age_group(19) == "teen" and age_group(20) == "adult" and age_group(80) == "adult"

def exam_result(score):
    """A test is graded from 0 to 100. Write `exam_result(score)` that returns "fail" for scores under 50,
    "pass" for 50 to 89, and "honors" for 90 and above."""
    if score < 50:
        return "fail"
    if score < 90:
        return "pass"
    return "honors"
assert exam_result(0) == "fail" and exam_result(49) == "fail" and exam_result(50) == "pass"
assert exam_result(89) == "pass" and exam_result(90) == "honors" and exam_result(100) == "honors"

def speed_check(speed, limit):
    """Write a function `speed_check(speed, limit)` that returns "ok" if speed is not above limit, "warning"
    if it is above by at most 10, and "fine" if it is above by more than 10."""
    if speed <= limit:
        return "ok"
    if speed <= limit + 10:
        return "warning"
    return "fine"
assert speed_check(40, 50) == "ok" and speed_check(50, 50) == "ok" and speed_check(51, 50) == "warning"
assert speed_check(60, 50) == "warning" and speed_check(61, 50) == "fine" and speed_check(0, 30) == "ok"
assert speed_check(130, 100) == "fine"

family, level = "three numbers", 2

def biggest_of_three(a, b, c):
    """Write a function `biggest_of_three(a, b, c)` that returns the greatest of its three numbers."""
    return max(a, b, c)
assert biggest_of_three(1, 2, 3) == 3 and biggest_of_three(3, 2, 1) == 3 and biggest_of_three(1, 3, 2) == 3
assert biggest_of_three(5, 5, 5) == 5 and biggest_of_three(-1, -2, -3) == -1
assert biggest_of_three(0, 0, 9) == 9

def all_three_equal(a, b, c):
    """Write `all_three_equal(a, b, c)` returning True if the three numbers are all the same and False
    otherwise."""
    return a == b == c
assert all_three_equal(1, 1, 1) == True and all_three_equal(1, 1, 2) == False
assert all_three_equal(1, 2, 1) == False and all_three_equal(2, 1, 1) == False
assert all_three_equal(0, 0, 0) == True and all_three_equal(1, 2, 3) == False
assert all_three_equal(-4, -4, -4) == True

def rises_strictly(a, b, c):
    """Write a function `rises_strictly(a, b, c)` that returns True when a is less than b and b is less than
    c."""
    return a < b < c
assert rises_strictly(1, 2, 3) == True and rises_strictly(3, 2, 1) == False
assert rises_strictly(1, 1, 2) == False and rises_strictly(1, 2, 2) == False
assert rises_strictly(-3, 0, 8) == True and rises_strictly(1, 3, 2) == False
assert rises_strictly(0, 0, 0) == False

def sum_of_top_two(a, b, c):
    """Write `sum_of_top_two(a, b, c)`, which leaves out the smallest of the three numbers and returns the sum
    of the other two."""
    return a + b + c - min(a, b, c)
assert sum_of_top_two(1, 2, 3) == 5 and sum_of_top_two(3, 2, 1) == 5 and sum_of_top_two(2, 1, 3) == 5
assert sum_of_top_two(5, 5, 5) == 10 and sum_of_top_two(-1, -2, -3) == -3 and sum_of_top_two(0, 0, 9) == 9

family, level = "three numbers", 3

def middle_of_three(a, b, c):
    """Write a function `middle_of_three(a, b, c)` that returns the number that would stand in the middle if
    the three numbers were sorted."""
    return sorted([a, b, c])[1]
assert middle_of_three(1, 2, 3) == 2 and middle_of_three(3, 2, 1) == 2 and middle_of_three(2, 1, 3) == 2
assert middle_of_three(1, 3, 2) == 2 and middle_of_three(5, 5, 1) == 5 and middle_of_three(7, 7, 7) == 7
assert middle_of_three(-1, 0, -5) == -1

family, level = "decision rules", 2

def traffic_action(color):
    """Write a function `traffic_action(color)` that returns "go" for "green", "slow" for "yellow", and "stop"
    for "red" and for any other color."""
    if color == "green":
        return "go"
    if color == "yellow":
        return "slow"
    return "stop"
assert traffic_action("green") == "go" and traffic_action("yellow") == "slow"
assert traffic_action("red") == "stop" and traffic_action("blue") == "stop" and traffic_action("") == "stop"
assert traffic_action("GREEN") == "stop"

def museum_price(age):
    """Museum tickets are free under 6, cost 5 from 6 to 17, cost 10 from 18 to 64 and cost 7 from 65 on.
    Write `museum_price(age)` that returns the price."""
    if age < 6:
        return 0
    if age < 18:
        return 5
    if age < 65:
        return 10
    return 7
assert museum_price(0) == 0 and museum_price(5) == 0 and museum_price(6) == 5 and museum_price(17) == 5
assert museum_price(18) == 10 and museum_price(64) == 10 and museum_price(65) == 7 and museum_price(90) == 7

family, level = "decision rules", 3

def apply_operator(symbol, a, b):
    """Write a function `apply_operator(symbol, a, b)` where symbol is "+", "-" or "*". Return the result of
    that operation on a and b, or None for any other symbol."""
    if symbol == "+":
        return a + b
    if symbol == "-":
        return a - b
    if symbol == "*":
        return a * b
    return None
assert apply_operator("+", 2, 3) == 5 and apply_operator("-", 2, 3) == -1 and apply_operator("*", 2, 3) == 6
assert apply_operator("/", 6, 3) == None and apply_operator("", 1, 1) == None
assert apply_operator("*", 0, 9) == 0 and apply_operator("-", -1, -1) == 0

def rock_paper_winner(first, second):
    """Two players choose "rock", "paper" or "scissors". Rock beats scissors, scissors beats paper, paper
    beats rock. Write `rock_paper_winner(first, second)` that returns 1 or 2 for the winning player, or 0 for
    a tie."""
    if first == second:
        return 0
    beats = {"rock": "scissors", "scissors": "paper", "paper": "rock"}
    return 1 if beats[first] == second else 2
assert rock_paper_winner("rock", "scissors") == 1 and rock_paper_winner("scissors", "rock") == 2
assert rock_paper_winner("paper", "rock") == 1 and rock_paper_winner("rock", "paper") == 2
assert rock_paper_winner("scissors", "paper") == 1 and rock_paper_winner("paper", "scissors") == 2
assert rock_paper_winner("rock", "rock") == 0 and rock_paper_winner("paper", "paper") == 0

def quadrant_of(x, y):
    """A point (x, y) lies in quadrant 1 if both coordinates are positive, 2 if only y is, 3 if both are
    negative, 4 if only x is positive. Write `quadrant_of(x, y)` that returns the quadrant, or 0 if x or y is
    zero."""
    if x == 0 or y == 0:
        return 0
    if x > 0:
        return 1 if y > 0 else 4
    return 2 if y > 0 else 3
assert quadrant_of(1, 1) == 1 and quadrant_of(-1, 1) == 2 and quadrant_of(-1, -1) == 3
assert quadrant_of(1, -1) == 4 and quadrant_of(0, 5) == 0 and quadrant_of(5, 0) == 0
assert quadrant_of(0, 0) == 0 and quadrant_of(-20, 30) == 2 and quadrant_of(-1, -20) == 3
