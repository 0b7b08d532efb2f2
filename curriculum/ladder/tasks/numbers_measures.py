"""Numbers in use: digits, clamping, units, money, geometry, running sums, divisors."""

family, level = "digit sums", 3

def digit_total(n):
    """Write a function `digit_total(n)` that returns the sum of the decimal digits of the integer n. Ignore
    the sign of n."""
    return sum(int(digit) for digit in str(abs(n)))
assert digit_total(0) == 0 and digit_total(7) == 7 and digit_total(10) == 1 and digit_total(123) == 6
assert digit_total(999) == 27 and digit_total(-45) == 9 and digit_total(1000001) == 2

def digit_product(n):
    """Write `digit_product(n)` that multiplies together all decimal digits of the non-negative integer n and
    returns the result."""
    product = 1
    for digit in str(n):
        product *= int(digit)
    return product
assert digit_product(0) == 0 and digit_product(7) == 7 and digit_product(10) == 0 and digit_product(123) == 6
assert digit_product(999) == 729 and digit_product(111) == 1 and digit_product(2345) == 120

def largest_digit(n):
    """Given a non-negative integer n, `largest_digit(n)` should return its biggest decimal digit as an
    integer."""
    return max(int(digit) for digit in str(n))
assert largest_digit(0) == 0 and largest_digit(7) == 7 and largest_digit(10) == 1 and largest_digit(123) == 3
assert largest_digit(321) == 3 and largest_digit(555) == 5 and largest_digit(90817) == 9

family, level = "digit sums", 4

def repeated_digit_sum(n):
    """Write `repeated_digit_sum(n)` for a non-negative integer n: add up its digits, then the digits of that
    sum, and so on until a single digit is left, which is returned."""
    while n >= 10:
        n = sum(int(digit) for digit in str(n))
    return n
assert repeated_digit_sum(0) == 0 and repeated_digit_sum(9) == 9 and repeated_digit_sum(10) == 1
assert repeated_digit_sum(38) == 2 and repeated_digit_sum(99) == 9 and repeated_digit_sum(12345) == 6
assert repeated_digit_sum(999999) == 9

def digits_strictly_rise(n):
    """Write a function `digits_strictly_rise(n)` that returns True if each decimal digit of the non-negative
    integer n is greater than the digit to its left. A one-digit number gives True."""
    text = str(n)
    for index in range(1, len(text)):
        if text[index] <= text[index - 1]:
            return False
    return True
assert digits_strictly_rise(0) == True and digits_strictly_rise(7) == True
assert digits_strictly_rise(123) == True and digits_strictly_rise(132) == False
assert digits_strictly_rise(11) == False and digits_strictly_rise(13589) == True
assert digits_strictly_rise(98) == False and digits_strictly_rise(1233) == False

family, level = "clamping", 1

def at_least_zero(n):
    """Write a function `at_least_zero(n)` that returns n if it is positive and 0 otherwise."""
    return max(n, 0)
assert at_least_zero(5) == 5 and at_least_zero(0) == 0 and at_least_zero(-3) == 0 and at_least_zero(1) == 1
assert at_least_zero(-100) == 0 and at_least_zero(99) == 99

def at_most_hundred(n):
    """Write `at_most_hundred(n)`, which returns n, or 100 if n is bigger than 100."""
    return min(n, 100)
assert at_most_hundred(5) == 5 and at_most_hundred(100) == 100 and at_most_hundred(101) == 100
assert at_most_hundred(-7) == -7 and at_most_hundred(0) == 0 and at_most_hundred(5000) == 100

family, level = "clamping", 2

def clamp_value(x, low, high):
    """Write a function `clamp_value(x, low, high)` that returns low if x is below low, high if x is above
    high, and x itself otherwise. You may assume low <= high."""
    return max(low, min(x, high))
assert clamp_value(5, 0, 10) == 5 and clamp_value(-5, 0, 10) == 0 and clamp_value(15, 0, 10) == 10
assert clamp_value(0, 0, 10) == 0 and clamp_value(10, 0, 10) == 10 and clamp_value(-3, -8, -4) == -4
assert clamp_value(7, 2, 2) == 2

def dead_zone(x, limit):
    """Write `dead_zone(x, limit)`: return 0 when the absolute value of x is at most limit, and x unchanged in
    all other cases."""
    if abs(x) <= limit:
        return 0
    return x
assert dead_zone(3, 5) == 0 and dead_zone(-3, 5) == 0 and dead_zone(5, 5) == 0 and dead_zone(6, 5) == 6
assert dead_zone(-9, 5) == -9 and dead_zone(0, 0) == 0 and dead_zone(1, 0) == 1

def step_towards(current, target, step):
    """Write a function `step_towards(current, target, step)` that moves current towards target by at most
    step and returns the new value, without going past target. The step is never negative."""
    if current < target:
        return min(current + step, target)
    return max(current - step, target)
assert step_towards(0, 10, 3) == 3 and step_towards(9, 10, 3) == 10 and step_towards(10, 10, 3) == 10
assert step_towards(10, 0, 4) == 6 and step_towards(2, 0, 4) == 0 and step_towards(-5, 5, 0) == -5
assert step_towards(-5, -7, 1) == -6

family, level = "unit conversion", 1

def feet_to_inches(feet):
    """Write a function `feet_to_inches(feet)` that converts feet to inches. One foot is 12 inches."""
    return feet * 12
assert feet_to_inches(0) == 0 and feet_to_inches(1) == 12 and feet_to_inches(2) == 24
assert feet_to_inches(6) == 72 and feet_to_inches(100) == 1200 and feet_to_inches(0.5) == 6.0

def kilometers_to_meters(km):
    """Write `kilometers_to_meters(km)` that returns how many meters there are in km kilometers."""
    return km * 1000
assert kilometers_to_meters(0) == 0 and kilometers_to_meters(1) == 1000 and kilometers_to_meters(5) == 5000
assert kilometers_to_meters(42) == 42000 and kilometers_to_meters(1000) == 1000000
assert kilometers_to_meters(2.5) == 2500.0

def celsius_to_fahrenheit(celsius):
    """Write `celsius_to_fahrenheit(celsius)`, which returns celsius * 9 / 5 + 32."""
    return celsius * 9 / 5 + 32
assert celsius_to_fahrenheit(0) == 32.0 and celsius_to_fahrenheit(100) == 212.0
assert celsius_to_fahrenheit(-40) == -40.0 and celsius_to_fahrenheit(20) == 68.0
assert celsius_to_fahrenheit(12.5) == 54.5 and celsius_to_fahrenheit(-10) == 14.0

def grams_to_kilograms(grams):
    """Write a function `grams_to_kilograms(grams)` that converts grams to kilograms with true division by
    1000."""
    return grams / 1000
assert grams_to_kilograms(0) == 0.0 and grams_to_kilograms(1000) == 1.0 and grams_to_kilograms(500) == 0.5
assert grams_to_kilograms(250) == 0.25 and grams_to_kilograms(7000) == 7.0 and grams_to_kilograms(1500) == 1.5

def dozens_to_eggs(dozens):
    """Eggs are sold in dozens of 12. Write `dozens_to_eggs(dozens)` that returns the number of eggs."""
    return dozens * 12
assert dozens_to_eggs(0) == 0 and dozens_to_eggs(1) == 12 and dozens_to_eggs(2) == 24
assert dozens_to_eggs(10) == 120 and dozens_to_eggs(25) == 300 and dozens_to_eggs(1000) == 12000

family, level = "prices and interest", 1

def cost_of_items(price, quantity):
    """Write a function `cost_of_items(price, quantity)` that returns what quantity items cost when each costs
    price."""
    return price * quantity
assert cost_of_items(5, 3) == 15 and cost_of_items(0, 10) == 0 and cost_of_items(7, 0) == 0
assert cost_of_items(1, 1) == 1 and cost_of_items(2.5, 4) == 10.0 and cost_of_items(199, 12) == 2388

def split_bill(total, people):
    """Write `split_bill(total, people)` that divides total evenly by people and returns the share as a float.
    There is at least one person."""
    return total / people
assert split_bill(10, 2) == 5.0 and split_bill(9, 4) == 2.25 and split_bill(0, 3) == 0.0
assert split_bill(7, 1) == 7.0 and split_bill(100, 8) == 12.5 and split_bill(45, 6) == 7.5

def interest_earned(amount, rate, years):
    """Write a function `interest_earned(amount, rate, years)` that returns the simple interest amount * rate
    * years / 100."""
    return amount * rate * years / 100
assert interest_earned(100, 5, 1) == 5.0 and interest_earned(1000, 5, 2) == 100.0
assert interest_earned(0, 7, 3) == 0.0 and interest_earned(200, 0, 4) == 0.0
assert interest_earned(500, 10, 0) == 0.0 and interest_earned(50, 5, 1) == 2.5

family, level = "prices and interest", 2

def change_due(paid, price):
    """Write a function `change_due(paid, price)` that returns paid minus price, or 0 if less than the price
    was paid."""
    if paid < price:
        return 0
    return paid - price
assert change_due(10, 7) == 3 and change_due(7, 10) == 0 and change_due(5, 5) == 0 and change_due(0, 0) == 0
assert change_due(100, 1) == 99 and change_due(0, 3) == 0

def order_with_shipping(total):
    """Orders of 50 or more ship for free and all other orders cost 5 to ship. Write
    `order_with_shipping(total)` that returns the order total with the shipping cost added."""
    if total >= 50:
        return total
    return total + 5
assert order_with_shipping(0) == 5 and order_with_shipping(49) == 54 and order_with_shipping(50) == 50
assert order_with_shipping(51) == 51 and order_with_shipping(10) == 15 and order_with_shipping(1000) == 1000

family, level = "area formulas", 1

def area_of_rectangle(width, height):
    """Write a function `area_of_rectangle(width, height)` that returns the area of a rectangle."""
    return width * height
assert area_of_rectangle(3, 4) == 12 and area_of_rectangle(1, 1) == 1 and area_of_rectangle(0, 5) == 0
assert area_of_rectangle(10, 10) == 100 and area_of_rectangle(2.5, 2) == 5.0
assert area_of_rectangle(100, 7) == 700

def border_of_square(side):
    """Write `border_of_square(side)`, returning the perimeter of a square whose side has that length."""
    return 4 * side
assert border_of_square(0) == 0 and border_of_square(1) == 4 and border_of_square(3) == 12
assert border_of_square(10) == 40 and border_of_square(2.5) == 10.0 and border_of_square(999) == 3996

def border_of_rectangle(width, height):
    """Write a function `border_of_rectangle(width, height)` that returns the perimeter of a rectangle."""
    return 2 * (width + height)
assert border_of_rectangle(3, 4) == 14 and border_of_rectangle(1, 1) == 4 and border_of_rectangle(0, 5) == 10
assert border_of_rectangle(10, 10) == 40 and border_of_rectangle(2.5, 2) == 9.0
assert border_of_rectangle(100, 7) == 214

def box_volume(length, width, height):
    """A box has three side lengths. Write `box_volume(length, width, height)` that returns its volume."""
    return length * width * height
assert box_volume(1, 2, 3) == 6 and box_volume(1, 1, 1) == 1 and box_volume(0, 5, 5) == 0
assert box_volume(10, 10, 10) == 1000 and box_volume(2, 2, 0.5) == 2.0 and box_volume(7, 11, 13) == 1001

family, level = "area formulas", 2

def can_form_triangle(a, b, c):
    """Write a function `can_form_triangle(a, b, c)` that returns True if the sum of any two of the three
    positive lengths is strictly greater than the third one, else False."""
    return a + b > c and a + c > b and b + c > a
assert can_form_triangle(3, 4, 5) == True and can_form_triangle(1, 1, 1) == True
assert can_form_triangle(1, 2, 3) == False and can_form_triangle(1, 1, 5) == False
assert can_form_triangle(10, 2, 3) == False and can_form_triangle(2, 5, 3) == False
assert can_form_triangle(5, 2, 3) == False and can_form_triangle(5, 5, 9) == True

family, level = "running sums", 2

def total_up_to(n):
    """Write a function `total_up_to(n)` that adds all the integers 1, 2, 3, ... up to and including n. Return
    0 when n is less than 1."""
    total = 0
    for number in range(1, n + 1):
        total += number
    return total
assert total_up_to(0) == 0 and total_up_to(1) == 1 and total_up_to(2) == 3 and total_up_to(10) == 55
assert total_up_to(100) == 5050 and total_up_to(-5) == 0

def sum_between(low, high):
    """Write `sum_between(low, high)` that returns the sum of all integers from low to high, both ends
    included. If low is greater than high the answer is 0."""
    return sum(range(low, high + 1))
assert sum_between(1, 3) == 6 and sum_between(5, 5) == 5 and sum_between(4, 2) == 0
assert sum_between(-2, 2) == 0 and sum_between(-3, -1) == -6 and sum_between(0, 100) == 5050

def sum_squares_up_to(n):
    """Write a function `sum_squares_up_to(n)` that returns 1*1 + 2*2 + ... + n*n for a non-negative integer
    n. For n equal to 0 return 0."""
    return sum(number * number for number in range(1, n + 1))
assert sum_squares_up_to(0) == 0 and sum_squares_up_to(1) == 1 and sum_squares_up_to(2) == 5
assert sum_squares_up_to(3) == 14 and sum_squares_up_to(10) == 385 and sum_squares_up_to(20) == 2870

family, level = "running sums", 3

def sum_multiples_below(limit, k):
    """Write `sum_multiples_below(limit, k)`, which adds up all positive multiples of k that are smaller than
    limit. Here k is a positive integer. Return 0 if there are none."""
    return sum(range(k, limit, k))
assert sum_multiples_below(10, 3) == 18 and sum_multiples_below(10, 5) == 5 and sum_multiples_below(0, 4) == 0
assert sum_multiples_below(4, 4) == 0 and sum_multiples_below(5, 4) == 4
assert sum_multiples_below(100, 10) == 450 and sum_multiples_below(7, 1) == 21

def alternating_total(n):
    """Write a function `alternating_total(n)` that returns 1 - 2 + 3 - 4 + ... up to n, where odd numbers are
    added and even numbers are subtracted. For n = 0 return 0."""
    total = 0
    for number in range(1, n + 1):
        if number % 2 == 1:
            total += number
        else:
            total -= number
    return total
assert alternating_total(0) == 0 and alternating_total(1) == 1 and alternating_total(2) == -1
assert alternating_total(3) == 2 and alternating_total(4) == -2 and alternating_total(99) == 50
assert alternating_total(100) == -50

family, level = "divisors", 4

def number_of_divisors(n):
    """Write a function `number_of_divisors(n)` that returns how many positive integers divide the positive
    integer n exactly, counting 1 and n."""
    return sum(1 for candidate in range(1, n + 1) if n % candidate == 0)
assert number_of_divisors(1) == 1 and number_of_divisors(2) == 2 and number_of_divisors(6) == 4
assert number_of_divisors(7) == 2 and number_of_divisors(12) == 6 and number_of_divisors(16) == 5
assert number_of_divisors(100) == 9

def add_smaller_divisors(n):
    """Write `add_smaller_divisors(n)` that adds up the positive divisors of the positive integer n, leaving
    out n itself. For n = 1 the result is 0."""
    return sum(candidate for candidate in range(1, n) if n % candidate == 0)
assert add_smaller_divisors(1) == 0 and add_smaller_divisors(2) == 1 and add_smaller_divisors(6) == 6
assert add_smaller_divisors(7) == 1 and add_smaller_divisors(12) == 16 and add_smaller_divisors(16) == 15
assert add_smaller_divisors(28) == 28

def is_a_prime(n):
    """Write a function `is_a_prime(n)` that tells whether the integer n is prime: True for primes, False for
    all other integers, including those below 2."""
    if n < 2:
        return False
    for candidate in range(2, n):
        if candidate * candidate > n:
            break
        if n % candidate == 0:
            return False
    return True
assert is_a_prime(-7) == False and is_a_prime(0) == False and is_a_prime(1) == False and is_a_prime(2) == True
assert is_a_prime(3) == True and is_a_prime(4) == False and is_a_prime(9) == False and is_a_prime(97) == True
assert is_a_prime(91) == False

family, level = "divisors", 5

def prime_after(n):
    """Write a function `prime_after(n)` that returns the smallest prime number strictly greater than the
    integer n."""
    candidate = max(n + 1, 2)
    while any(candidate % divisor == 0 for divisor in range(2, candidate)):
        candidate += 1
    return candidate
assert prime_after(-5) == 2 and prime_after(0) == 2 and prime_after(2) == 3 and prime_after(3) == 5
assert prime_after(8) == 11 and prime_after(13) == 17 and prime_after(89) == 97 and prime_after(100) == 101

def prime_factor_text(n):
    """Write `prime_factor_text(n)` for an integer n >= 2. It returns the prime factors of n in increasing
    order, repeated as often as they divide n and joined by the letter x, for example "2x2x3" for 12."""
    factors = []
    divisor = 2
    while n > 1:
        while n % divisor == 0:
            factors.append(str(divisor))
            n //= divisor
        divisor += 1
    return "x".join(factors)
assert prime_factor_text(2) == "2" and prime_factor_text(12) == "2x2x3" and prime_factor_text(7) == "7"
assert prime_factor_text(8) == "2x2x2" and prime_factor_text(30) == "2x3x5" and prime_factor_text(49) == "7x7"
assert prime_factor_text(97) == "97" and prime_factor_text(360) == "2x2x2x3x3x5"
