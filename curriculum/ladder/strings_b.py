"""Ladder tasks on parts of strings: counting, vowels, replacing, padding, reversal, slices, drawing."""

from __future__ import annotations

from curriculum.ladder.builder import ladder_task
from curriculum.task import Task

# Kept by hand: the formatter would put every test on a line of its own.
# fmt: off
TASKS: tuple[Task, ...] = (
    ladder_task("count_letter", family="counting characters", level=1,
        prompt=(
            "Write a function `count_letter(text, letter)` that returns how often the one-character string "
            "letter occurs in text."
        ),
        reference="def count_letter(text, letter):\n    return text.count(letter)\n",
        tests=(
            (("banana", "a"), 3), (("banana", "x"), 0), (("", "a"), 0), (("aaa", "a"), 3), (("Aa", "a"), 1),
            (("b", "b"), 1),
        ),
    ),
    ladder_task("count_spaces", family="counting characters", level=1,
        prompt="Write `count_spaces(text)`, returning the number of space characters in text.",
        reference='def count_spaces(text):\n    return text.count(" ")\n',
        tests=((("a b c",), 2), (("",), 0), (("abc",), 0), ((" ",), 1), (("  x  ",), 4), (("one two",), 1)),
    ),
    ladder_task("count_digit_chars", family="counting characters", level=2,
        prompt=(
            "Write a function `count_digit_chars(text)` that returns how many characters of text are digits "
            "from 0 to 9."
        ),
        reference=(
            "def count_digit_chars(text):\n"
            '    return sum(1 for char in text if char in "0123456789")\n'
        ),
        tests=((("abc123",), 3), (("",), 0), (("abc",), 0), (("1999",), 4), (("a1b2c3",), 3), (("-5.0",), 2)),
    ),
    ladder_task("count_capitals", family="counting characters", level=2,
        prompt="Write `count_capitals(text)` that returns how many upper-case letters there are in text.",
        reference="def count_capitals(text):\n    return sum(1 for char in text if char.isupper())\n",
        tests=(
            (("Hello World",), 2), (("",), 0), (("abc",), 0), (("ABC",), 3), (("aBcD",), 2), (("123!",), 0),
            (("X",), 1),
        ),
    ),
    ladder_task("count_any_case", family="counting characters", level=2,
        prompt=(
            "Write a function `count_any_case(text, letter)` that counts how often letter occurs in text, "
            "where upper and lower case count as the same."
        ),
        reference="def count_any_case(text, letter):\n    return text.lower().count(letter.lower())\n",
        tests=(
            (("Banana", "A"), 3), (("AaAa", "a"), 4), (("", "a"), 0), (("xyz", "a"), 0), (("Bob", "b"), 2),
            (("BOB", "o"), 1),
        ),
    ),

    ladder_task("starts_with_vowel", family="vowels", level=2,
        prompt=(
            "The vowels are a, e, i, o and u. Write `starts_with_vowel(word)` that returns True if the first "
            "character of word is a vowel in lower or upper case. An empty word gives False."
        ),
        reference='def starts_with_vowel(word):\n    return word != "" and word[0].lower() in "aeiou"\n',
        tests=(
            (("apple",), True), (("banana",), False), (("",), False), (("Orange",), True), (("U",), True),
            (("yes",), False), (("sky",), False),
        ),
    ),
    ladder_task("vowel_total", family="vowels", level=2,
        prompt=(
            "Write a function `vowel_total(text)` that returns how many characters of text are one of the "
            "lower-case vowels a, e, i, o, u."
        ),
        reference='def vowel_total(text):\n    return sum(1 for char in text if char in "aeiou")\n',
        tests=(
            (("hello",), 2), (("",), 0), (("sky",), 0), (("aeiou",), 5), (("banana",), 3), (("AEI",), 0),
            (("queue",), 4),
        ),
    ),
    ladder_task("hide_vowels", family="vowels", level=3,
        prompt=(
            "Write `hide_vowels(text)` that returns text with every vowel (a, e, i, o, u in either case) "
            "replaced by an asterisk."
        ),
        reference=(
            "def hide_vowels(text):\n"
            '    return "".join("*" if char in "aeiouAEIOU" else char for char in text)\n'
        ),
        tests=(
            (("hello",), "h*ll*"), (("",), ""), (("sky",), "sky"), (("AEIOU",), "*****"),
            (("Banana Split",), "B*n*n* Spl*t"), (("x1o2",), "x1*2"),
        ),
    ),
    ladder_task("first_vowel", family="vowels", level=3,
        prompt=(
            "Write a function `first_vowel(text)` that returns the first of the letters a, e, i, o, u found "
            "in the lower-case string text. If there is none, return an empty string."
        ),
        reference=(
            "def first_vowel(text):\n"
            "    for char in text:\n"
            '        if char in "aeiou":\n'
            "            return char\n"
            '    return ""\n'
        ),
        tests=(
            (("hello",), "e"), (("",), ""), (("sky",), ""), (("apple",), "a"), (("trout",), "o"),
            (("zzzu",), "u"),
        ),
    ),
    ladder_task("more_vowels", family="vowels", level=3,
        prompt=(
            "Write `more_vowels(text)` for a string of lower-case letters. It returns True if text has "
            "strictly more vowels (a, e, i, o, u) than other letters."
        ),
        reference=(
            "def more_vowels(text):\n"
            '    vowels = sum(1 for char in text if char in "aeiou")\n'
            "    return vowels > len(text) - vowels\n"
        ),
        tests=(
            (("aeb",), True), (("abe",), True), (("",), False), (("sky",), False), (("ab",), False),
            (("queue",), True), (("banana",), False), (("o",), True),
        ),
    ),

    ladder_task("spaces_to_underscores", family="replacing text", level=1,
        prompt=(
            "Write a function `spaces_to_underscores(text)` that returns text with every space changed to an "
            "underscore."
        ),
        reference='def spaces_to_underscores(text):\n    return text.replace(" ", "_")\n',
        tests=(
            (("a b c",), "a_b_c"), (("",), ""), (("abc",), "abc"), ((" ",), "_"), (("a  b",), "a__b"),
            (("one two",), "one_two"),
        ),
    ),
    ladder_task("drop_commas", family="replacing text", level=1,
        prompt="Write `drop_commas(text)`, which returns text without any commas.",
        reference='def drop_commas(text):\n    return text.replace(",", "")\n',
        tests=(
            (("1,000,000",), "1000000"), (("",), ""), (("abc",), "abc"), ((",",), ""), ((",,a,,",), "a"),
            (("a, b",), "a b"),
        ),
    ),
    ladder_task("swap_letter", family="replacing text", level=1,
        prompt=(
            "Write a function `swap_letter(text, old, new)` that returns text with every occurrence of the "
            "character old changed to the character new."
        ),
        reference="def swap_letter(text, old, new):\n    return text.replace(old, new)\n",
        tests=(
            (("banana", "a", "o"), "bonono"), (("", "a", "b"), ""), (("abc", "x", "y"), "abc"),
            (("aaa", "a", "b"), "bbb"), (("Aa", "a", "z"), "Az"), (("a-b-c", "-", "+"), "a+b+c"),
        ),
    ),
    ladder_task("replace_once", family="replacing text", level=2,
        prompt=(
            "Write `replace_once(text, old, new)`: it returns text with only the first occurrence of old "
            "changed to new. If old does not occur, text is returned unchanged. old is not empty."
        ),
        reference="def replace_once(text, old, new):\n    return text.replace(old, new, 1)\n",
        tests=(
            (("banana", "a", "o"), "bonana"), (("", "a", "b"), ""), (("abc", "x", "y"), "abc"),
            (("aaa", "a", ""), "aa"), (("one one", "one", "two"), "two one"), (("xyz", "z", "zz"), "xyzz"),
        ),
    ),
    ladder_task("censor", family="replacing text", level=2,
        prompt=(
            "Write a function `censor(text, word)` that replaces every occurrence of the non-empty string "
            "word in text by asterisks, one for each character of word."
        ),
        reference='def censor(text, word):\n    return text.replace(word, "*" * len(word))\n',
        tests=(
            (("what the heck", "heck"), "what the ****"), (("", "bad"), ""), (("good", "bad"), "good"),
            (("bad bad", "bad"), "*** ***"), (("aaa", "a"), "***"), (("Badly bad", "bad"), "Badly ***"),
        ),
    ),

    ladder_task("pad_on_left", family="string padding", level=1,
        prompt=(
            "Write a function `pad_on_left(text, width)` that adds spaces in front of text until it is width "
            "characters long. A longer text is returned unchanged."
        ),
        reference="def pad_on_left(text, width):\n    return text.rjust(width)\n",
        tests=(
            (("ab", 4), "  ab"), (("abcd", 4), "abcd"), (("abcdef", 4), "abcdef"), (("", 3), "   "),
            (("x", 0), "x"), (("7", 2), " 7"),
        ),
    ),
    ladder_task("pad_on_right", family="string padding", level=1,
        prompt=(
            "Write `pad_on_right(text, width)`: spaces are added at the end of text until it has width "
            "characters. If it already has that many or more, it stays the same."
        ),
        reference="def pad_on_right(text, width):\n    return text.ljust(width)\n",
        tests=(
            (("ab", 4), "ab  "), (("abcd", 4), "abcd"), (("abcdef", 4), "abcdef"), (("", 3), "   "),
            (("x", 0), "x"), (("7", 2), "7 "),
        ),
    ),
    ladder_task("zero_padded", family="string padding", level=2,
        prompt=(
            "Write a function `zero_padded(n, width)` that turns the non-negative integer n into a string "
            "and puts zeros in front until it has at least width characters."
        ),
        reference="def zero_padded(n, width):\n    return str(n).zfill(width)\n",
        tests=(
            ((7, 3), "007"), ((0, 2), "00"), ((42, 2), "42"), ((1234, 3), "1234"), ((5, 1), "5"),
            ((9, 6), "000009"),
        ),
    ),
    ladder_task("dotted_width", family="string padding", level=2,
        prompt=(
            "Write `dotted_width(text, width)` that returns exactly width characters: text cut off after "
            "width characters if it is longer, or filled up with dots at the end if it is shorter."
        ),
        reference='def dotted_width(text, width):\n    return text[:width].ljust(width, ".")\n',
        tests=(
            (("ab", 4), "ab.."), (("abcd", 4), "abcd"), (("abcdef", 4), "abcd"), (("", 3), "..."),
            (("x", 0), ""), (("hi", 1), "h"),
        ),
    ),
    ladder_task("make_even_length", family="string padding", level=2,
        prompt=(
            "Write a function `make_even_length(text)` that returns text unchanged if its length is even, "
            "and text with one underscore appended if its length is odd."
        ),
        reference=(
            "def make_even_length(text):\n"
            "    if len(text) % 2 == 0:\n"
            "        return text\n"
            '    return text + "_"\n'
        ),
        tests=(
            (("ab",), "ab"), (("abc",), "abc_"), (("",), ""), (("x",), "x_"), (("_",), "__"),
            (("hello world",), "hello world_"),
        ),
    ),

    ladder_task("backwards_upper", family="palindromes and reversal", level=2,
        prompt=(
            "Write a function `backwards_upper(text)` that returns the characters of text in reverse order "
            "and in upper case."
        ),
        reference="def backwards_upper(text):\n    return text[::-1].upper()\n",
        tests=(
            (("abc",), "CBA"), (("",), ""), (("a",), "A"), (("Hello",), "OLLEH"), (("a b",), "B A"),
            (("x1Y",), "Y1X"),
        ),
    ),
    ladder_task("mirror_text", family="palindromes and reversal", level=2,
        prompt="Write `mirror_text(text)`, which returns text followed by text written backwards.",
        reference="def mirror_text(text):\n    return text + text[::-1]\n",
        tests=(
            (("abc",), "abccba"), (("",), ""), (("a",), "aa"), (("ab",), "abba"), (("Xy1",), "Xy11yX"),
            (("noon",), "noonnoon"),
        ),
    ),
    ladder_task("reads_same_backwards", family="palindromes and reversal", level=2,
        prompt=(
            "Write a function `reads_same_backwards(text)` that returns True if text is the same when it is "
            "reversed, else False. Case and spaces matter, and the empty string gives True."
        ),
        reference="def reads_same_backwards(text):\n    return text == text[::-1]\n",
        tests=(
            (("level",), True), (("hello",), False), (("",), True), (("a",), True), (("ab",), False),
            (("Anna",), False), (("noon",), True),
        ),
    ),
    ladder_task("loose_palindrome", family="palindromes and reversal", level=3,
        prompt=(
            "Write `loose_palindrome(text)` that returns True if text reads the same in both directions once "
            "all spaces are removed and upper and lower case are treated alike."
        ),
        reference=(
            "def loose_palindrome(text):\n"
            '    cleaned = text.replace(" ", "").lower()\n'
            "    return cleaned == cleaned[::-1]\n"
        ),
        tests=(
            (("Never odd or even",), True), (("hello",), False), (("",), True), (("Anna",), True),
            (("a b",), False), ((" x ",), True), (("Race car",), True),
        ),
    ),
    ladder_task("number_reads_same", family="palindromes and reversal", level=3,
        prompt=(
            "Write a function `number_reads_same(n)` that returns True if the decimal digits of the "
            "non-negative integer n form a palindrome, and False if they do not."
        ),
        reference=(
            "def number_reads_same(n):\n"
            "    text = str(n)\n"
            "    return text == text[::-1]\n"
        ),
        tests=(
            ((0,), True), ((7,), True), ((11,), True), ((12,), False), ((121,), True), ((1221,), True),
            ((1231,), False), ((100,), False),
        ),
    ),

    ladder_task("first_three_chars", family="slices of strings", level=1,
        prompt=(
            "Write a function `first_three_chars(text)` that returns the first three characters of text, or "
            "all of text if it is shorter."
        ),
        reference="def first_three_chars(text):\n    return text[:3]\n",
        tests=(
            (("abcdef",), "abc"), (("abc",), "abc"), (("ab",), "ab"), (("",), ""), (("x",), "x"),
            (("hello world",), "hel"),
        ),
    ),
    ladder_task("without_first", family="slices of strings", level=1,
        prompt=(
            "Write `without_first(text)`, which returns text without its first character. For an empty "
            "string return an empty string."
        ),
        reference="def without_first(text):\n    return text[1:]\n",
        tests=(
            (("abc",), "bc"), (("a",), ""), (("",), ""), (("hello",), "ello"), ((" x",), "x"), (("11",), "1"),
        ),
    ),
    ladder_task("last_two", family="slices of strings", level=1,
        prompt=(
            "Write a function `last_two(text)` that returns the last two characters of text. A text with "
            "fewer than two characters is returned whole."
        ),
        reference="def last_two(text):\n    return text[-2:]\n",
        tests=(
            (("abcdef",), "ef"), (("ab",), "ab"), (("a",), "a"), (("",), ""), (("hello",), "lo"),
            (("2024",), "24"),
        ),
    ),
    ladder_task("every_other", family="slices of strings", level=2,
        prompt=(
            "Write `every_other(text)` that returns the first, third, fifth, ... characters of text as one "
            "string."
        ),
        reference="def every_other(text):\n    return text[::2]\n",
        tests=(
            (("abcdef",), "ace"), (("abc",), "ac"), (("a",), "a"), (("",), ""), (("hello",), "hlo"),
            (("112233",), "123"),
        ),
    ),
    ladder_task("first_half", family="slices of strings", level=2,
        prompt=(
            "Write a function `first_half(text)` that returns the first half of text. If the length is odd, "
            "the character in the middle is left out."
        ),
        reference="def first_half(text):\n    return text[: len(text) // 2]\n",
        tests=(
            (("abcd",), "ab"), (("abc",), "a"), (("",), ""), (("a",), ""), (("hello world",), "hello"),
            (("xy",), "x"),
        ),
    ),

    ladder_task("counting_text", family="drawing with characters", level=3,
        prompt=(
            "Write a function `counting_text(n)` that returns the numbers from 1 to n as one string, "
            "separated by single spaces. For n = 0 return an empty string."
        ),
        reference='def counting_text(n):\n    return " ".join(str(number) for number in range(1, n + 1))\n',
        tests=(
            ((0,), ""), ((1,), "1"), ((2,), "1 2"), ((3,), "1 2 3"), ((5,), "1 2 3 4 5"),
            ((10,), "1 2 3 4 5 6 7 8 9 10"),
        ),
    ),
    ladder_task("countdown_text", family="drawing with characters", level=3,
        prompt=(
            "Write `countdown_text(n)`: it returns the numbers from n down to 1, each followed by a space, "
            'and then the word "go". For n = 0 the result is just "go".'
        ),
        reference=(
            "def countdown_text(n):\n"
            '    text = ""\n'
            "    for number in range(n, 0, -1):\n"
            '        text += str(number) + " "\n'
            '    return text + "go"\n'
        ),
        tests=(
            ((0,), "go"), ((1,), "1 go"), ((2,), "2 1 go"), ((3,), "3 2 1 go"), ((5,), "5 4 3 2 1 go"),
            ((10,), "10 9 8 7 6 5 4 3 2 1 go"),
        ),
    ),
    ladder_task("star_triangle", family="drawing with characters", level=3,
        prompt=(
            "Write a function `star_triangle(n)` that returns n lines joined by newline characters: one star "
            "in the first line, two in the second, and so on. There is no newline at the end, and n = 0 "
            "gives an empty string."
        ),
        reference='def star_triangle(n):\n    return "\\n".join("*" * row for row in range(1, n + 1))\n',
        tests=(
            ((0,), ""), ((1,), "*"), ((2,), "*\n**"), ((3,), "*\n**\n***"), ((4,), "*\n**\n***\n****"),
            ((5,), "*\n**\n***\n****\n*****"),
        ),
    ),
    ladder_task("checker_row", family="drawing with characters", level=3,
        prompt=(
            'Write `checker_row(n)` that returns a string of n characters which alternate between "#" and '
            '".", beginning with "#".'
        ),
        reference=(
            "def checker_row(n):\n"
            '    return "".join("#" if index % 2 == 0 else "." for index in range(n))\n'
        ),
        tests=(((0,), ""), ((1,), "#"), ((2,), "#."), ((3,), "#.#"), ((6,), "#.#.#."), ((9,), "#.#.#.#.#")),
    ),
    ladder_task("letters_from_to", family="drawing with characters", level=3,
        prompt=(
            "Write a function `letters_from_to(start, end)` that returns all letters of the alphabet from "
            "start to end, both included. Both are single lower-case letters and start never comes after end."
        ),
        reference=(
            "def letters_from_to(start, end):\n"
            '    return "".join(chr(code) for code in range(ord(start), ord(end) + 1))\n'
        ),
        tests=(
            (("a", "e"), "abcde"), (("a", "a"), "a"), (("x", "z"), "xyz"), (("c", "d"), "cd"),
            (("a", "z"), "abcdefghijklmnopqrstuvwxyz"), (("m", "p"), "mnop"),
        ),
    ),
)
# fmt: on
