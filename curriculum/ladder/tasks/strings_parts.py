"""Parts of strings: counting, vowels, replacing, padding, reversal, slices, drawing."""

family, level = "counting characters", 1

def count_letter(text, letter):
    """Write a function `count_letter(text, letter)` that returns how often the one-character string letter
    occurs in text."""
    return text.count(letter)
assert count_letter("banana", "a") == 3 and count_letter("banana", "x") == 0 and count_letter("", "a") == 0
assert count_letter("aaa", "a") == 3 and count_letter("Aa", "a") == 1 and count_letter("b", "b") == 1

def count_spaces(text):
    """Write `count_spaces(text)`, returning the number of space characters in text."""
    return text.count(" ")
assert count_spaces("a b c") == 2 and count_spaces("") == 0 and count_spaces("abc") == 0
assert count_spaces(" ") == 1 and count_spaces("  x  ") == 4 and count_spaces("one two") == 1

family, level = "counting characters", 2

def count_digit_chars(text):
    """Write a function `count_digit_chars(text)` that returns how many characters of text are digits from 0
    to 9."""
    return sum(1 for char in text if char in "0123456789")
assert count_digit_chars("abc123") == 3 and count_digit_chars("") == 0 and count_digit_chars("abc") == 0
assert count_digit_chars("1999") == 4 and count_digit_chars("a1b2c3") == 3 and count_digit_chars("-5.0") == 2

def count_capitals(text):
    """Write `count_capitals(text)` that returns how many upper-case letters there are in text."""
    return sum(1 for char in text if char.isupper())
assert count_capitals("Hello World") == 2 and count_capitals("") == 0 and count_capitals("abc") == 0
assert count_capitals("ABC") == 3 and count_capitals("aBcD") == 2 and count_capitals("123!") == 0
assert count_capitals("X") == 1

def count_any_case(text, letter):
    """Write a function `count_any_case(text, letter)` that counts how often letter occurs in text, where
    upper and lower case count as the same."""
    return text.lower().count(letter.lower())
assert count_any_case("Banana", "A") == 3 and count_any_case("AaAa", "a") == 4
assert count_any_case("", "a") == 0 and count_any_case("xyz", "a") == 0 and count_any_case("Bob", "b") == 2
assert count_any_case("BOB", "o") == 1

family, level = "vowels", 2

def starts_with_vowel(word):
    """The vowels are a, e, i, o and u. Write `starts_with_vowel(word)` that returns True if the first
    character of word is a vowel in lower or upper case. An empty word gives False."""
    return word != "" and word[0].lower() in "aeiou"
assert starts_with_vowel("apple") == True and starts_with_vowel("banana") == False
assert starts_with_vowel("") == False and starts_with_vowel("Orange") == True
assert starts_with_vowel("U") == True and starts_with_vowel("yes") == False
assert starts_with_vowel("sky") == False

def vowel_total(text):
    """Write a function `vowel_total(text)` that returns how many characters of text are one of the lower-case
    vowels a, e, i, o, u."""
    return sum(1 for char in text if char in "aeiou")
assert vowel_total("hello") == 2 and vowel_total("") == 0 and vowel_total("sky") == 0
assert vowel_total("aeiou") == 5 and vowel_total("banana") == 3 and vowel_total("AEI") == 0
assert vowel_total("queue") == 4

family, level = "vowels", 3

def hide_vowels(text):
    """Write `hide_vowels(text)` that returns text with every vowel (a, e, i, o, u in either case) replaced by
    an asterisk."""
    return "".join("*" if char in "aeiouAEIOU" else char for char in text)
assert hide_vowels("hello") == "h*ll*" and hide_vowels("") == "" and hide_vowels("sky") == "sky"
assert hide_vowels("AEIOU") == "*****" and hide_vowels("Banana Split") == "B*n*n* Spl*t"
assert hide_vowels("x1o2") == "x1*2"

def first_vowel(text):
    """Write a function `first_vowel(text)` that returns the first of the letters a, e, i, o, u found in the
    lower-case string text. If there is none, return an empty string."""
    for char in text:
        if char in "aeiou":
            return char
    return ""
assert first_vowel("hello") == "e" and first_vowel("") == "" and first_vowel("sky") == ""
assert first_vowel("apple") == "a" and first_vowel("trout") == "o" and first_vowel("zzzu") == "u"

def more_vowels(text):
    """Write `more_vowels(text)` for a string of lower-case letters. It returns True if text has strictly more
    vowels (a, e, i, o, u) than other letters."""
    vowels = sum(1 for char in text if char in "aeiou")
    return vowels > len(text) - vowels
assert more_vowels("aeb") == True and more_vowels("abe") == True and more_vowels("") == False
assert more_vowels("sky") == False and more_vowels("ab") == False and more_vowels("queue") == True
assert more_vowels("banana") == False and more_vowels("o") == True

family, level = "replacing text", 1

def spaces_to_underscores(text):
    """Write a function `spaces_to_underscores(text)` that returns text with every space changed to an
    underscore."""
    return text.replace(" ", "_")
assert spaces_to_underscores("a b c") == "a_b_c" and spaces_to_underscores("") == ""
assert spaces_to_underscores("abc") == "abc" and spaces_to_underscores(" ") == "_"
assert spaces_to_underscores("a  b") == "a__b" and spaces_to_underscores("one two") == "one_two"

def drop_commas(text):
    """Write `drop_commas(text)`, which returns text without any commas."""
    return text.replace(",", "")
assert drop_commas("1,000,000") == "1000000" and drop_commas("") == "" and drop_commas("abc") == "abc"
assert drop_commas(",") == "" and drop_commas(",,a,,") == "a" and drop_commas("a, b") == "a b"

def swap_letter(text, old, new):
    """Write a function `swap_letter(text, old, new)` that returns text with every occurrence of the character
    old changed to the character new."""
    return text.replace(old, new)
assert swap_letter("banana", "a", "o") == "bonono" and swap_letter("", "a", "b") == ""
assert swap_letter("abc", "x", "y") == "abc" and swap_letter("aaa", "a", "b") == "bbb"
assert swap_letter("Aa", "a", "z") == "Az" and swap_letter("a-b-c", "-", "+") == "a+b+c"

family, level = "replacing text", 2

def replace_once(text, old, new):
    """Write `replace_once(text, old, new)`: it returns text with only the first occurrence of old changed to
    new. If old does not occur, text is returned unchanged. old is not empty."""
    return text.replace(old, new, 1)
assert replace_once("banana", "a", "o") == "bonana" and replace_once("", "a", "b") == ""
assert replace_once("abc", "x", "y") == "abc" and replace_once("aaa", "a", "") == "aa"
assert replace_once("one one", "one", "two") == "two one" and replace_once("xyz", "z", "zz") == "xyzz"

def censor(text, word):
    """Write a function `censor(text, word)` that replaces every occurrence of the non-empty string word in
    text by asterisks, one for each character of word."""
    return text.replace(word, "*" * len(word))
assert censor("what the heck", "heck") == "what the ****" and censor("", "bad") == ""
assert censor("good", "bad") == "good" and censor("bad bad", "bad") == "*** ***"
assert censor("aaa", "a") == "***" and censor("Badly bad", "bad") == "Badly ***"

family, level = "string padding", 1

def pad_on_left(text, width):
    """Write a function `pad_on_left(text, width)` that adds spaces in front of text until it is width
    characters long. A longer text is returned unchanged."""
    return text.rjust(width)
assert pad_on_left("ab", 4) == "  ab" and pad_on_left("abcd", 4) == "abcd"
assert pad_on_left("abcdef", 4) == "abcdef" and pad_on_left("", 3) == "   " and pad_on_left("x", 0) == "x"
assert pad_on_left("7", 2) == " 7"

def pad_on_right(text, width):
    """Write `pad_on_right(text, width)`: spaces are added at the end of text until it has width characters.
    If it already has that many or more, it stays the same."""
    return text.ljust(width)
assert pad_on_right("ab", 4) == "ab  " and pad_on_right("abcd", 4) == "abcd"
assert pad_on_right("abcdef", 4) == "abcdef" and pad_on_right("", 3) == "   " and pad_on_right("x", 0) == "x"
assert pad_on_right("7", 2) == "7 "

family, level = "string padding", 2

def zero_padded(n, width):
    """Write a function `zero_padded(n, width)` that turns the non-negative integer n into a string and puts
    zeros in front until it has at least width characters."""
    return str(n).zfill(width)
assert zero_padded(7, 3) == "007" and zero_padded(0, 2) == "00" and zero_padded(42, 2) == "42"
assert zero_padded(1234, 3) == "1234" and zero_padded(5, 1) == "5" and zero_padded(9, 6) == "000009"

def dotted_width(text, width):
    """Write `dotted_width(text, width)` that returns exactly width characters: text cut off after width
    characters if it is longer, or filled up with dots at the end if it is shorter."""
    return text[:width].ljust(width, ".")
assert dotted_width("ab", 4) == "ab.." and dotted_width("abcd", 4) == "abcd"
assert dotted_width("abcdef", 4) == "abcd" and dotted_width("", 3) == "..." and dotted_width("x", 0) == ""
assert dotted_width("hi", 1) == "h"

def make_even_length(text):
    """Write a function `make_even_length(text)` that returns text unchanged if its length is even, and text
    with one underscore appended if its length is odd."""
    if len(text) % 2 == 0:
        return text
    return text + "_"
assert make_even_length("ab") == "ab" and make_even_length("abc") == "abc_" and make_even_length("") == ""
assert make_even_length("x") == "x_" and make_even_length("_") == "__"
assert make_even_length("hello world") == "hello world_"

family, level = "palindromes and reversal", 2

def backwards_upper(text):
    """Write a function `backwards_upper(text)` that returns the characters of text in reverse order and in
    upper case."""
    return text[::-1].upper()
assert backwards_upper("abc") == "CBA" and backwards_upper("") == "" and backwards_upper("a") == "A"
assert backwards_upper("Hello") == "OLLEH" and backwards_upper("a b") == "B A"
assert backwards_upper("x1Y") == "Y1X"

def mirror_text(text):
    """Write `mirror_text(text)`, which returns text followed by text written backwards."""
    return text + text[::-1]
assert mirror_text("abc") == "abccba" and mirror_text("") == "" and mirror_text("a") == "aa"
assert mirror_text("ab") == "abba" and mirror_text("Xy1") == "Xy11yX" and mirror_text("noon") == "noonnoon"

def reads_same_backwards(text):
    """Write a function `reads_same_backwards(text)` that returns True if text is the same when it is
    reversed, else False. Case and spaces matter, and the empty string gives True."""
    return text == text[::-1]
assert reads_same_backwards("level") == True and reads_same_backwards("hello") == False
assert reads_same_backwards("") == True and reads_same_backwards("a") == True
assert reads_same_backwards("ab") == False and reads_same_backwards("Anna") == False
assert reads_same_backwards("noon") == True

family, level = "palindromes and reversal", 3

def loose_palindrome(text):
    """Write `loose_palindrome(text)` that returns True if text reads the same in both directions once all
    spaces are removed and upper and lower case are treated alike."""
    cleaned = text.replace(" ", "").lower()
    return cleaned == cleaned[::-1]
assert loose_palindrome("Never odd or even") == True and loose_palindrome("hello") == False
assert loose_palindrome("") == True and loose_palindrome("Anna") == True and loose_palindrome("a b") == False
assert loose_palindrome(" x ") == True and loose_palindrome("Race car") == True

def number_reads_same(n):
    """Write a function `number_reads_same(n)` that returns True if the decimal digits of the non-negative
    integer n form a palindrome, and False if they do not."""
    text = str(n)
    return text == text[::-1]
assert number_reads_same(0) == True and number_reads_same(7) == True and number_reads_same(11) == True
assert number_reads_same(12) == False and number_reads_same(121) == True and number_reads_same(1221) == True
assert number_reads_same(1231) == False and number_reads_same(100) == False

family, level = "slices of strings", 1

def first_three_chars(text):
    """Write a function `first_three_chars(text)` that returns the first three characters of text, or all of
    text if it is shorter."""
    return text[:3]
assert first_three_chars("abcdef") == "abc" and first_three_chars("abc") == "abc"
assert first_three_chars("ab") == "ab" and first_three_chars("") == "" and first_three_chars("x") == "x"
assert first_three_chars("hello world") == "hel"

def without_first(text):
    """Write `without_first(text)`, which returns text without its first character. For an empty string return
    an empty string."""
    return text[1:]
assert without_first("abc") == "bc" and without_first("a") == "" and without_first("") == ""
assert without_first("hello") == "ello" and without_first(" x") == "x" and without_first("11") == "1"

def last_two(text):
    """Write a function `last_two(text)` that returns the last two characters of text. A text with fewer than
    two characters is returned whole."""
    return text[-2:]
assert last_two("abcdef") == "ef" and last_two("ab") == "ab" and last_two("a") == "a" and last_two("") == ""
assert last_two("hello") == "lo" and last_two("2024") == "24"

family, level = "slices of strings", 2

def every_other(text):
    """Write `every_other(text)` that returns the first, third, fifth, ... characters of text as one
    string."""
    return text[::2]
assert every_other("abcdef") == "ace" and every_other("abc") == "ac" and every_other("a") == "a"
assert every_other("") == "" and every_other("hello") == "hlo" and every_other("112233") == "123"

def first_half(text):
    """Write a function `first_half(text)` that returns the first half of text. If the length is odd, the
    character in the middle is left out."""
    return text[: len(text) // 2]
assert first_half("abcd") == "ab" and first_half("abc") == "a" and first_half("") == ""
assert first_half("a") == "" and first_half("hello world") == "hello" and first_half("xy") == "x"

family, level = "drawing with characters", 3

def counting_text(n):
    """Write a function `counting_text(n)` that returns the numbers from 1 to n as one string, separated by
    single spaces. For n = 0 return an empty string."""
    return " ".join(str(number) for number in range(1, n + 1))
assert counting_text(0) == "" and counting_text(1) == "1" and counting_text(2) == "1 2"
assert counting_text(3) == "1 2 3" and counting_text(5) == "1 2 3 4 5"
assert counting_text(10) == "1 2 3 4 5 6 7 8 9 10"

def countdown_text(n):
    """Write `countdown_text(n)`: it returns the numbers from n down to 1, each followed by a space, and then
    the word "go". For n = 0 the result is just "go"."""
    text = ""
    for number in range(n, 0, -1):
        text += str(number) + " "
    return text + "go"
assert countdown_text(0) == "go" and countdown_text(1) == "1 go" and countdown_text(2) == "2 1 go"
assert countdown_text(3) == "3 2 1 go" and countdown_text(5) == "5 4 3 2 1 go"
assert countdown_text(10) == "10 9 8 7 6 5 4 3 2 1 go"

def star_triangle(n):
    """Write a function `star_triangle(n)` that returns n lines joined by newline characters: one star in
    the first line, two in the second, and so on. There is no newline at the end, and n = 0 gives an empty
    string."""
    return "\n".join("*" * row for row in range(1, n + 1))
assert star_triangle(0) == "" and star_triangle(1) == "*" and star_triangle(2) == "*\n**"
assert star_triangle(3) == "*\n**\n***" and star_triangle(4) == "*\n**\n***\n****"
assert star_triangle(5) == "*\n**\n***\n****\n*****"

def checker_row(n):
    """Write `checker_row(n)` that returns a string of n characters which alternate between "#" and ".",
    beginning with "#"."""
    return "".join("#" if index % 2 == 0 else "." for index in range(n))
assert checker_row(0) == "" and checker_row(1) == "#" and checker_row(2) == "#." and checker_row(3) == "#.#"
assert checker_row(6) == "#.#.#." and checker_row(9) == "#.#.#.#.#"

def letters_from_to(start, end):
    """Write a function `letters_from_to(start, end)` that returns all letters of the alphabet from start to
    end, both included. Both are single lower-case letters and start never comes after end."""
    return "".join(chr(code) for code in range(ord(start), ord(end) + 1))
assert letters_from_to("a", "e") == "abcde" and letters_from_to("a", "a") == "a"
assert letters_from_to("x", "z") == "xyz" and letters_from_to("c", "d") == "cd"
assert letters_from_to("a", "z") == "abcdefghijklmnopqrstuvwxyz" and letters_from_to("m", "p") == "mnop"
