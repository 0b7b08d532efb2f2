"""Single numbers: scaling, sums, parity, comparison, powers, signs, bits."""

family, level = "scaling numbers", 1

def double_number(n):
    """Write a function `double_number(n)` that returns n multiplied by two."""
    return n * 2
assert double_number(0) == 0 and double_number(1) == 2 and double_number(4) == 8 and double_number(-3) == -6
assert double_number(250) == 500 and double_number(1000000) == 2000000

def triple_number(n):
    """Write a function `triple_number(n)` that returns three times n."""
    return 3 * n
assert triple_number(0) == 0 and triple_number(1) == 3 and triple_number(5) == 15 and triple_number(-2) == -6
assert triple_number(33) == 99 and triple_number(123456) == 370368

def times_ten(x):
    """Define `times_ten(x)`, which gives back x multiplied by 10."""
    return x * 10
assert times_ten(0) == 0 and times_ten(1) == 10 and times_ten(7) == 70 and times_ten(-4) == -40
assert times_ten(99) == 990 and times_ten(2.5) == 25.0

def half_of(x):
    """Write a function `half_of(x)` that returns x divided by 2, using true division (so the result is a
    float)."""
    return x / 2
assert half_of(0) == 0.0 and half_of(8) == 4.0 and half_of(7) == 3.5 and half_of(-6) == -3.0
assert half_of(1) == 0.5 and half_of(1001) == 500.5

def scale_by(value, factor):
    """Write `scale_by(value, factor)`. It returns the product of value and factor."""
    return value * factor
assert scale_by(3, 4) == 12 and scale_by(0, 9) == 0 and scale_by(-2, 5) == -10 and scale_by(-3, -3) == 9
assert scale_by(7, 0) == 0 and scale_by(1.5, 4) == 6.0

family, level = "sums and differences", 1

def add_one(n):
    """Write a function `add_one(n)` that returns the integer that comes right after n."""
    return n + 1
assert add_one(0) == 1 and add_one(5) == 6 and add_one(-1) == 0 and add_one(-10) == -9 and add_one(99) == 100
assert add_one(999999) == 1000000

def number_before(n):
    """Write `number_before(n)`, which returns n minus one."""
    return n - 1
assert number_before(0) == -1 and number_before(1) == 0 and number_before(10) == 9 and number_before(-5) == -6
assert number_before(1000) == 999 and number_before(77) == 76

def add_three_numbers(a, b, c):
    """Write a function `add_three_numbers(a, b, c)` that returns the sum of its three arguments."""
    return a + b + c
assert add_three_numbers(1, 2, 3) == 6 and add_three_numbers(0, 0, 0) == 0
assert add_three_numbers(-1, 1, 5) == 5 and add_three_numbers(-2, -3, -4) == -9
assert add_three_numbers(100, 200, 300) == 600 and add_three_numbers(0.5, 0.25, 1) == 1.75

def subtract_from(total, part):
    """Create a function `subtract_from(total, part)` returning total minus part."""
    return total - part
assert subtract_from(10, 3) == 7 and subtract_from(3, 10) == -7 and subtract_from(0, 0) == 0
assert subtract_from(5, 5) == 0 and subtract_from(-4, -6) == 2 and subtract_from(1000, 1) == 999

def sum_then_double(a, b):
    """Write `sum_then_double(a, b)`. It adds a and b and returns twice that sum."""
    return (a + b) * 2
assert sum_then_double(1, 2) == 6 and sum_then_double(0, 0) == 0 and sum_then_double(-3, 3) == 0
assert sum_then_double(10, -4) == 12 and sum_then_double(-5, -6) == -22 and sum_then_double(500, 250) == 1500

family, level = "parity", 1

def is_even_number(n):
    """Write a function `is_even_number(n)` that returns True if the integer n is even, otherwise False."""
    return n % 2 == 0
assert is_even_number(0) == True and is_even_number(1) == False and is_even_number(2) == True
assert is_even_number(-3) == False and is_even_number(-4) == True and is_even_number(1001) == False
assert is_even_number(88) == True

def is_odd_number(n):
    """Write `is_odd_number(n)` so that it returns True when the integer n is odd and False when it is
    even."""
    return n % 2 == 1
assert is_odd_number(0) == False and is_odd_number(1) == True and is_odd_number(2) == False
assert is_odd_number(-1) == True and is_odd_number(-8) == False and is_odd_number(77) == True
assert is_odd_number(1000) == False

def same_parity(a, b):
    """Write a function `same_parity(a, b)` that returns True when a and b are both even or both odd, and
    False otherwise."""
    return a % 2 == b % 2
assert same_parity(2, 4) == True and same_parity(1, 3) == True and same_parity(1, 2) == False
assert same_parity(0, 7) == False and same_parity(-1, 5) == True and same_parity(-2, 0) == True
assert same_parity(10, 9) == False

family, level = "parity", 2

def parity_word(n):
    """Write a function `parity_word(n)` that returns the string "even" if n is even and the string "odd" if
    it is not."""
    if n % 2 == 0:
        return "even"
    return "odd"
assert parity_word(0) == "even" and parity_word(1) == "odd" and parity_word(2) == "even"
assert parity_word(-5) == "odd" and parity_word(-6) == "even" and parity_word(12345) == "odd"

def next_even(n):
    """Write a function `next_even(n)` that returns the smallest even integer that is strictly greater than
    n."""
    if n % 2 == 0:
        return n + 2
    return n + 1
assert next_even(0) == 2 and next_even(1) == 2 and next_even(2) == 4 and next_even(7) == 8
assert next_even(-1) == 0 and next_even(-2) == 0 and next_even(-5) == -4 and next_even(100) == 102

family, level = "divisibility", 1

def divisible_by_five(n):
    """Write a function `divisible_by_five(n)` that returns True if n can be divided by 5 without a remainder,
    else False."""
    return n % 5 == 0
assert divisible_by_five(0) == True and divisible_by_five(5) == True and divisible_by_five(7) == False
assert divisible_by_five(-10) == True and divisible_by_five(-3) == False and divisible_by_five(1000) == True
assert divisible_by_five(1001) == False

def is_multiple_of(n, k):
    """Write `is_multiple_of(n, k)` that returns True when n is a multiple of k and False when it is not. k is
    never zero."""
    return n % k == 0
assert is_multiple_of(10, 5) == True and is_multiple_of(10, 3) == False and is_multiple_of(0, 4) == True
assert is_multiple_of(7, 7) == True and is_multiple_of(-9, 3) == True and is_multiple_of(3, 9) == False
assert is_multiple_of(8, 1) == True

def remainder_by_seven(n):
    """Write a function `remainder_by_seven(n)` that returns the remainder of the non-negative integer n after
    division by 7."""
    return n % 7
assert remainder_by_seven(0) == 0 and remainder_by_seven(6) == 6 and remainder_by_seven(7) == 0
assert remainder_by_seven(8) == 1 and remainder_by_seven(20) == 6 and remainder_by_seven(700) == 0
assert remainder_by_seven(1000) == 6

family, level = "divisibility", 2

def divisible_by_both(n, a, b):
    """Write a function `divisible_by_both(n, a, b)` that returns True only if n is divisible by a and also by
    b. Neither a nor b is zero."""
    return n % a == 0 and n % b == 0
assert divisible_by_both(12, 3, 4) == True and divisible_by_both(12, 3, 5) == False
assert divisible_by_both(15, 3, 5) == True and divisible_by_both(0, 2, 9) == True
assert divisible_by_both(7, 2, 3) == False and divisible_by_both(10, 3, 5) == False
assert divisible_by_both(-30, 5, 6) == True and divisible_by_both(9, 9, 9) == True

def round_up_to_multiple(n, k):
    """Write `round_up_to_multiple(n, k)`: for integers n >= 0 and k >= 1 it returns the smallest multiple of
    k that is not less than n."""
    if n % k == 0:
        return n
    return n + k - n % k
assert round_up_to_multiple(0, 5) == 0 and round_up_to_multiple(1, 5) == 5 and round_up_to_multiple(5, 5) == 5
assert round_up_to_multiple(6, 5) == 10 and round_up_to_multiple(99, 10) == 100
assert round_up_to_multiple(7, 1) == 7 and round_up_to_multiple(3, 100) == 100

family, level = "comparison of two numbers", 1

def larger_of(a, b):
    """Write a function `larger_of(a, b)` that returns the bigger of the two numbers."""
    return max(a, b)
assert larger_of(1, 2) == 2 and larger_of(2, 1) == 2 and larger_of(3, 3) == 3 and larger_of(-1, -5) == -1
assert larger_of(0, -2) == 0 and larger_of(1000, 999) == 1000

def smaller_of(a, b):
    """Write a function `smaller_of(a, b)` that returns whichever of a and b is less."""
    return min(a, b)
assert smaller_of(1, 2) == 1 and smaller_of(2, 1) == 1 and smaller_of(4, 4) == 4 and smaller_of(-1, -5) == -5
assert smaller_of(0, 7) == 0 and smaller_of(-100, 100) == -100

def is_greater(a, b):
    """Write `is_greater(a, b)`, which returns True if a is strictly greater than b and False otherwise."""
    return a > b
assert is_greater(2, 1) == True and is_greater(1, 2) == False and is_greater(5, 5) == False
assert is_greater(0, -1) == True and is_greater(-3, -2) == False and is_greater(2.5, 2) == True

def gap_between(a, b):
    """Write a function `gap_between(a, b)` that returns the absolute difference of a and b (never
    negative)."""
    return abs(a - b)
assert gap_between(5, 2) == 3 and gap_between(2, 5) == 3 and gap_between(0, 0) == 0
assert gap_between(-3, 4) == 7 and gap_between(-2, -9) == 7 and gap_between(1000, 1) == 999

family, level = "comparison of two numbers", 2

def compare_numbers(a, b):
    """Write `compare_numbers(a, b)` that returns 1 if a is greater than b, -1 if a is less than b, and 0 if
    they are equal."""
    if a > b:
        return 1
    if a < b:
        return -1
    return 0
assert compare_numbers(2, 1) == 1 and compare_numbers(1, 2) == -1 and compare_numbers(3, 3) == 0
assert compare_numbers(0, 0) == 0 and compare_numbers(-1, -2) == 1 and compare_numbers(-5, 5) == -1
assert compare_numbers(1.5, 1) == 1

family, level = "powers", 1

def square_of(n):
    """Write a function `square_of(n)` that returns n times itself."""
    return n * n
assert square_of(0) == 0 and square_of(1) == 1 and square_of(5) == 25 and square_of(-4) == 16
assert square_of(12) == 144 and square_of(1000) == 1000000

def cube_of(n):
    """Write a function `cube_of(n)` that returns n to the third power."""
    return n**3
assert cube_of(0) == 0 and cube_of(1) == 1 and cube_of(2) == 8 and cube_of(-3) == -27 and cube_of(10) == 1000
assert cube_of(25) == 15625

def raise_to(base, exponent):
    """Write `raise_to(base, exponent)`, returning base to the power of exponent. The exponent is a
    non-negative integer."""
    return base**exponent
assert raise_to(2, 3) == 8 and raise_to(5, 0) == 1 and raise_to(0, 4) == 0 and raise_to(-2, 3) == -8
assert raise_to(-2, 2) == 4 and raise_to(10, 6) == 1000000 and raise_to(7, 1) == 7

def add_squares(a, b):
    """Write a function `add_squares(a, b)` that returns the square of a plus the square of b."""
    return a**2 + b**2
assert add_squares(3, 4) == 25 and add_squares(0, 0) == 0 and add_squares(1, 1) == 2
assert add_squares(-2, 3) == 13 and add_squares(-5, -5) == 50 and add_squares(10, 20) == 500

family, level = "powers", 2

def power_of_two_from(n):
    """Write `power_of_two_from(n)`: for an integer n >= 1 it returns the smallest power of two that is at
    least n. The number 1 counts as a power of two."""
    power = 1
    while power < n:
        power *= 2
    return power
assert power_of_two_from(1) == 1 and power_of_two_from(2) == 2 and power_of_two_from(3) == 4
assert power_of_two_from(4) == 4 and power_of_two_from(5) == 8 and power_of_two_from(100) == 128
assert power_of_two_from(1024) == 1024 and power_of_two_from(1025) == 2048

family, level = "signs", 1

def distance_from_zero(n):
    """Write a function `distance_from_zero(n)` that returns the absolute value of n."""
    return abs(n)
assert distance_from_zero(0) == 0 and distance_from_zero(5) == 5 and distance_from_zero(-5) == 5
assert distance_from_zero(-1) == 1 and distance_from_zero(1000) == 1000 and distance_from_zero(-2.5) == 2.5

def flip_sign(n):
    """Write `flip_sign(n)`, which returns n with the opposite sign."""
    return -n
assert flip_sign(5) == -5 and flip_sign(-5) == 5 and flip_sign(0) == 0 and flip_sign(1) == -1
assert flip_sign(-1000) == 1000 and flip_sign(2.5) == -2.5

def is_below_zero(n):
    """Write a function `is_below_zero(n)` that returns True if n is negative and False if it is not."""
    return n < 0
assert is_below_zero(-1) == True and is_below_zero(0) == False and is_below_zero(1) == False
assert is_below_zero(-100) == True and is_below_zero(100) == False and is_below_zero(-0.5) == True

family, level = "signs", 2

def sign_word(n):
    """Write a function `sign_word(n)` that returns "positive", "negative" or "zero", whichever describes
    n."""
    if n > 0:
        return "positive"
    if n < 0:
        return "negative"
    return "zero"
assert sign_word(5) == "positive" and sign_word(-5) == "negative" and sign_word(0) == "zero"
assert sign_word(1) == "positive" and sign_word(-1) == "negative" and sign_word(1000) == "positive"

def opposite_signs(a, b):
    """Write `opposite_signs(a, b)` that returns True if one number is positive and the other one negative.
    Zero is neither positive nor negative."""
    return a * b < 0
assert opposite_signs(1, -1) == True and opposite_signs(-1, 1) == True and opposite_signs(1, 1) == False
assert opposite_signs(-1, -1) == False and opposite_signs(0, -5) == False and opposite_signs(5, 0) == False
assert opposite_signs(0, 0) == False and opposite_signs(100, -2) == True

family, level = "binary text", 3

def binary_text(n):
    """Write a function `binary_text(n)` that returns the binary digits of the non-negative integer n as a
    string without any prefix. For 0 return "0"."""
    return format(n, "b")
assert binary_text(0) == "0" and binary_text(1) == "1" and binary_text(2) == "10" and binary_text(5) == "101"
assert binary_text(8) == "1000" and binary_text(255) == "11111111" and binary_text(1023) == "1111111111"

def number_of_ones(n):
    """Write `number_of_ones(n)` that returns how many ones the binary form of the non-negative integer n
    has."""
    return format(n, "b").count("1")
assert number_of_ones(0) == 0 and number_of_ones(1) == 1 and number_of_ones(2) == 1 and number_of_ones(7) == 3
assert number_of_ones(8) == 1 and number_of_ones(255) == 8 and number_of_ones(1000) == 6

def looks_binary(text):
    """Write a function `looks_binary(text)` that returns True if text is not empty and has no other
    characters than "0" and "1"."""
    return text != "" and all(char in "01" for char in text)
assert looks_binary("0101") == True and looks_binary("") == False and looks_binary("0") == True
assert looks_binary("102") == False and looks_binary("1111") == True and looks_binary("abc") == False
assert looks_binary("1 0") == False

family, level = "binary text", 4

def value_of_bits(bits):
    """Write `value_of_bits(bits)` that returns the integer which the non-empty string bits of zeros and ones
    stands for in base two."""
    value = 0
    for bit in bits:
        value = value * 2 + int(bit)
    return value
assert value_of_bits("0") == 0 and value_of_bits("1") == 1 and value_of_bits("10") == 2
assert value_of_bits("101") == 5 and value_of_bits("0011") == 3 and value_of_bits("11111111") == 255

def digits_in_base(n, base):
    """Write a function `digits_in_base(n, base)` that writes the non-negative integer n in the given base,
    which is between 2 and 10, and returns the digits as a string. For n = 0 return "0"."""
    if n == 0:
        return "0"
    text = ""
    while n > 0:
        text = str(n % base) + text
        n //= base
    return text
assert digits_in_base(0, 2) == "0" and digits_in_base(5, 2) == "101" and digits_in_base(10, 3) == "101"
assert digits_in_base(255, 8) == "377" and digits_in_base(123, 10) == "123" and digits_in_base(7, 7) == "10"
assert digits_in_base(6, 7) == "6"
