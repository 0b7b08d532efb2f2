"""Ladder tasks on whole strings: case, joining, repetition, length, affixes, simple tests."""

from __future__ import annotations

from curriculum.ladder.builder import ladder_task
from curriculum.task import Task

# Kept by hand: the formatter would put every test on a line of its own.
# fmt: off
TASKS: tuple[Task, ...] = (
    ladder_task("shout", family="string case", level=1,
        prompt="Write a function `shout(text)` that returns text in upper case.",
        reference="def shout(text):\n    return text.upper()\n",
        tests=(
            (("hello",), "HELLO"), (("",), ""), (("Hello World",), "HELLO WORLD"), (("ABC",), "ABC"),
            (("a1b2",), "A1B2"), (("x",), "X"),
        ),
    ),
    ladder_task("whisper", family="string case", level=1,
        prompt="Write a function `whisper(text)` that returns text in lower case.",
        reference="def whisper(text):\n    return text.lower()\n",
        tests=(
            (("HELLO",), "hello"), (("",), ""), (("Hello World",), "hello world"), (("abc",), "abc"),
            (("A1B2",), "a1b2"), (("X",), "x"),
        ),
    ),
    ladder_task("capitalize_text", family="string case", level=1,
        prompt=(
            "Write `capitalize_text(text)` that returns text with its first character in upper case and all "
            "the others in lower case. An empty string stays empty."
        ),
        reference="def capitalize_text(text):\n    return text.capitalize()\n",
        tests=(
            (("hello",), "Hello"), (("",), ""), (("HELLO",), "Hello"), (("hello World",), "Hello world"),
            (("x",), "X"), (("1abc",), "1abc"),
        ),
    ),
    ladder_task("same_ignoring_case", family="string case", level=1,
        prompt=(
            "Write a function `same_ignoring_case(a, b)` that returns True if the two strings are equal when "
            "upper and lower case do not matter."
        ),
        reference="def same_ignoring_case(a, b):\n    return a.lower() == b.lower()\n",
        tests=(
            (("abc", "ABC"), True), (("abc", "abd"), False), (("", ""), True), (("Hi", "hI"), True),
            (("a", ""), False), (("One Two", "one two"), True),
        ),
    ),
    ladder_task("loud_and_quiet", family="string case", level=1,
        prompt=(
            "Write `loud_and_quiet(a, b)`, which returns a in upper case followed directly by b in lower "
            "case."
        ),
        reference="def loud_and_quiet(a, b):\n    return a.upper() + b.lower()\n",
        tests=(
            (("abc", "DEF"), "ABCdef"), (("", "X"), "x"), (("x", ""), "X"), (("", ""), ""),
            (("Ab", "Cd"), "ABcd"), (("go ", "AWAY"), "GO away"),
        ),
    ),

    ladder_task("say_hello", family="joining text", level=1,
        prompt=(
            'Write a function `say_hello(name)` that returns the string "Hello, " followed by the name and '
            "an exclamation mark."
        ),
        reference='def say_hello(name):\n    return "Hello, " + name + "!"\n',
        tests=(
            (("Ann",), "Hello, Ann!"), (("Bob",), "Hello, Bob!"), (("",), "Hello, !"),
            (("World",), "Hello, World!"), (("Mary Jane",), "Hello, Mary Jane!"), (("x",), "Hello, x!"),
        ),
    ),
    ladder_task("full_name", family="joining text", level=1,
        prompt=(
            "Write `full_name(first, last)` that returns the first name and the last name with one space "
            "between them."
        ),
        reference='def full_name(first, last):\n    return first + " " + last\n',
        tests=(
            (("Ada", "Lovelace"), "Ada Lovelace"), (("Alan", "Turing"), "Alan Turing"), (("A", "B"), "A B"),
            (("Jean Luc", "Picard"), "Jean Luc Picard"), (("ann", "lee"), "ann lee"), (("X", "Y Z"), "X Y Z"),
        ),
    ),
    ladder_task("join_with_dash", family="joining text", level=1,
        prompt=(
            "Write a function `join_with_dash(a, b)` that returns the two strings joined by a single dash."
        ),
        reference='def join_with_dash(a, b):\n    return a + "-" + b\n',
        tests=(
            (("a", "b"), "a-b"), (("red", "blue"), "red-blue"), (("", "x"), "-x"), (("x", ""), "x-"),
            (("", ""), "-"), (("1", "2"), "1-2"),
        ),
    ),
    ladder_task("in_brackets", family="joining text", level=1,
        prompt='Write `in_brackets(text)`, returning text with a "[" in front of it and a "]" behind it.',
        reference='def in_brackets(text):\n    return "[" + text + "]"\n',
        tests=(
            (("a",), "[a]"), (("",), "[]"), (("hello",), "[hello]"), (("x y",), "[x y]"), (("[",), "[[]"),
            (("123",), "[123]"),
        ),
    ),
    ladder_task("email_address", family="joining text", level=1,
        prompt=(
            "Write a function `email_address(user, domain)` that puts an @ sign between user and domain and "
            "returns the result."
        ),
        reference='def email_address(user, domain):\n    return user + "@" + domain\n',
        tests=(
            (("ann", "mail.com"), "ann@mail.com"), (("bob", "site.org"), "bob@site.org"), (("x", "y"), "x@y"),
            (("a.b", "c.d"), "a.b@c.d"), (("me", "home.net"), "me@home.net"),
            (("info", "shop.io"), "info@shop.io"),
        ),
    ),

    ladder_task("repeat_text", family="repeating strings", level=1,
        prompt=(
            "Write a function `repeat_text(text, n)` that returns text repeated n times in a row. n is zero "
            "or more."
        ),
        reference="def repeat_text(text, n):\n    return text * n\n",
        tests=(
            (("ab", 3), "ababab"), (("x", 1), "x"), (("x", 0), ""), (("", 5), ""), (("hi ", 2), "hi hi "),
            (("-", 10), "----------"),
        ),
    ),
    ladder_task("line_of_stars", family="repeating strings", level=1,
        prompt=(
            "Write `line_of_stars(n)`, which returns a string made of n asterisks. For n = 0 the string is "
            "empty."
        ),
        reference='def line_of_stars(n):\n    return "*" * n\n',
        tests=(
            ((0,), ""), ((1,), "*"), ((2,), "**"), ((5,), "*****"), ((10,), "**********"),
            ((30,), "******************************"),
        ),
    ),
    ladder_task("say_twice", family="repeating strings", level=1,
        prompt="Write a function `say_twice(word)` that returns the word, a space, and the word again.",
        reference='def say_twice(word):\n    return word + " " + word\n',
        tests=(
            (("hey",), "hey hey"), (("no",), "no no"), (("a",), "a a"), (("",), " "),
            (("knock",), "knock knock"), (("so so",), "so so so so"),
        ),
    ),
    ladder_task("laugh", family="repeating strings", level=1,
        prompt='Write `laugh(n)` that returns "ha" repeated n times, followed by one exclamation mark.',
        reference='def laugh(n):\n    return "ha" * n + "!"\n',
        tests=(
            ((1,), "ha!"), ((2,), "haha!"), ((3,), "hahaha!"), ((0,), "!"), ((5,), "hahahahaha!"),
            ((8,), "hahahahahahahaha!"),
        ),
    ),
    ladder_task("repeat_with_comma", family="repeating strings", level=2,
        prompt=(
            "Write a function `repeat_with_comma(word, n)` that returns the word n times with a comma "
            "between the copies and none at the end. For n = 0 return an empty string."
        ),
        reference='def repeat_with_comma(word, n):\n    return ",".join([word] * n)\n',
        tests=(
            (("a", 3), "a,a,a"), (("hi", 1), "hi"), (("hi", 0), ""), (("no", 2), "no,no"), (("", 3), ",,"),
            (("x y", 2), "x y,x y"),
        ),
    ),

    ladder_task("first_letter_of", family="first and last characters", level=1,
        prompt=(
            "Write a function `first_letter_of(word)` that returns the first character of word, which is "
            "never empty."
        ),
        reference="def first_letter_of(word):\n    return word[0]\n",
        tests=(
            (("hello",), "h"), (("x",), "x"), (("Python",), "P"), ((" abc",), " "), (("123",), "1"),
            (("Zoo",), "Z"),
        ),
    ),
    ladder_task("last_letter_of", family="first and last characters", level=1,
        prompt="Write `last_letter_of(word)` that returns the last character of the non-empty string word.",
        reference="def last_letter_of(word):\n    return word[-1]\n",
        tests=(
            (("hello",), "o"), (("x",), "x"), (("Python",), "n"), (("abc ",), " "), (("123",), "3"),
            (("wow!",), "!"),
        ),
    ),
    ladder_task("two_initials", family="first and last characters", level=1,
        prompt=(
            "Write a function `two_initials(first, last)` that returns the first character of first followed "
            "by the first character of last. Neither is empty."
        ),
        reference="def two_initials(first, last):\n    return first[0] + last[0]\n",
        tests=(
            (("Ada", "Lovelace"), "AL"), (("Alan", "Turing"), "AT"), (("a", "b"), "ab"), (("x", "Yz"), "xY"),
            (("John", "Smith"), "JS"), (("9a", "8b"), "98"),
        ),
    ),
    ladder_task("same_ends", family="first and last characters", level=2,
        prompt=(
            "Write `same_ends(text)` that returns True if the first and the last character of text are "
            "equal. Return False if text is empty."
        ),
        reference=(
            "def same_ends(text):\n"
            '    if text == "":\n'
            "        return False\n"
            "    return text[0] == text[-1]\n"
        ),
        tests=(
            (("abca",), True), (("abc",), False), (("",), False), (("x",), True), (("aa",), True),
            (("Aba",), False), (("level",), True),
        ),
    ),
    ladder_task("swap_end_letters", family="first and last characters", level=2,
        prompt=(
            "Write a function `swap_end_letters(text)` that returns text with its first and last characters "
            "exchanged. Strings with fewer than two characters are returned unchanged."
        ),
        reference=(
            "def swap_end_letters(text):\n"
            "    if len(text) < 2:\n"
            "        return text\n"
            "    return text[-1] + text[1:-1] + text[0]\n"
        ),
        tests=(
            (("abcd",), "dbca"), (("ab",), "ba"), (("a",), "a"), (("",), ""), (("hello",), "oellh"),
            (("xyx",), "xyx"), (("12 3",), "32 1"),
        ),
    ),

    ladder_task("text_length", family="string length", level=1,
        prompt="Write a function `text_length(text)` that returns the number of characters in text.",
        reference="def text_length(text):\n    return len(text)\n",
        tests=((("",), 0), (("a",), 1), (("hello",), 5), (("a b c",), 5), (("12345678",), 8), (("\n",), 1)),
    ),
    ladder_task("is_empty_text", family="string length", level=1,
        prompt=(
            "Write `is_empty_text(text)`, which returns True if the string has no characters and False "
            "otherwise."
        ),
        reference='def is_empty_text(text):\n    return text == ""\n',
        tests=(
            (("",), True), (("a",), False), ((" ",), False), (("hello",), False), (("0",), False),
            (("\n",), False),
        ),
    ),
    ladder_task("longer_than", family="string length", level=1,
        prompt=(
            "Write a function `longer_than(text, n)` that returns True if text has more than n characters."
        ),
        reference="def longer_than(text, n):\n    return len(text) > n\n",
        tests=(
            (("hello", 4), True), (("hello", 5), False), (("", 0), False), (("a", 0), True),
            (("abc", 10), False), (("a b", 2), True),
        ),
    ),
    ladder_task("combined_length", family="string length", level=1,
        prompt=(
            "Write `combined_length(a, b)` that returns how many characters the strings a and b have "
            "together."
        ),
        reference="def combined_length(a, b):\n    return len(a) + len(b)\n",
        tests=(
            (("abc", "de"), 5), (("", ""), 0), (("a", ""), 1), (("", "xyz"), 3), (("hello", "world"), 10),
            ((" ", " "), 2),
        ),
    ),
    ladder_task("pick_longer", family="string length", level=2,
        prompt=(
            "Write a function `pick_longer(a, b)` that returns the string with more characters. If both have "
            "the same length, return a."
        ),
        reference=(
            "def pick_longer(a, b):\n"
            "    if len(b) > len(a):\n"
            "        return b\n"
            "    return a\n"
        ),
        tests=(
            (("abc", "de"), "abc"), (("a", "bcd"), "bcd"), (("ab", "cd"), "ab"), (("", ""), ""),
            (("", "x"), "x"), (("zz", "yyy"), "yyy"),
        ),
    ),

    ladder_task("has_prefix", family="prefix and suffix", level=1,
        prompt=(
            "Write a function `has_prefix(text, prefix)` that returns True if text starts with prefix, else "
            "False."
        ),
        reference="def has_prefix(text, prefix):\n    return text.startswith(prefix)\n",
        tests=(
            (("hello", "he"), True), (("hello", "lo"), False), (("hello", ""), True), (("", "a"), False),
            (("abc", "abc"), True), (("ab", "abc"), False), (("Hello", "he"), False),
        ),
    ),
    ladder_task("ends_with_dot", family="prefix and suffix", level=1,
        prompt=(
            "Write `ends_with_dot(text)` which checks whether text ends with a full stop: return True if so, "
            "else False. The empty string gives False."
        ),
        reference='def ends_with_dot(text):\n    return text.endswith(".")\n',
        tests=(
            (("Hello.",), True), (("Hello",), False), (("",), False), ((".",), True), (("a.b",), False),
            (("wait...",), True),
        ),
    ),
    ladder_task("is_python_file", family="prefix and suffix", level=1,
        prompt=(
            'Write a function `is_python_file(name)` that returns True if the file name ends in ".py" and '
            "False otherwise."
        ),
        reference='def is_python_file(name):\n    return name.endswith(".py")\n',
        tests=(
            (("main.py",), True), (("main.txt",), False), (("py",), False), ((".py",), True),
            (("a.py.bak",), False), (("notes.PY",), False),
        ),
    ),
    ladder_task("without_prefix", family="prefix and suffix", level=2,
        prompt=(
            "Write `without_prefix(text, prefix)`: if text starts with prefix, return the rest of text after "
            "it, otherwise return text unchanged."
        ),
        reference=(
            "def without_prefix(text, prefix):\n"
            "    if text.startswith(prefix):\n"
            "        return text[len(prefix) :]\n"
            "    return text\n"
        ),
        tests=(
            (("unhappy", "un"), "happy"), (("happy", "un"), "happy"), (("", "un"), ""), (("abc", ""), "abc"),
            (("abc", "abc"), ""), (("ababc", "ab"), "abc"),
        ),
    ),
    ladder_task("ensure_ending", family="prefix and suffix", level=2,
        prompt=(
            "Write a function `ensure_ending(text, ending)` that returns text as it is if it already ends "
            "with ending, and text with ending appended if it does not."
        ),
        reference=(
            "def ensure_ending(text, ending):\n"
            "    if text.endswith(ending):\n"
            "        return text\n"
            "    return text + ending\n"
        ),
        tests=(
            (("file", ".txt"), "file.txt"), (("file.txt", ".txt"), "file.txt"), (("", "!"), "!"),
            (("hi", ""), "hi"), (("hi!", "!"), "hi!"), (("!hi", "!"), "!hi!"),
        ),
    ),

    ladder_task("contains_text", family="character tests", level=1,
        prompt=(
            "Write a function `contains_text(text, part)` that returns True if part occurs somewhere in "
            "text, else False."
        ),
        reference="def contains_text(text, part):\n    return part in text\n",
        tests=(
            (("hello", "ell"), True), (("hello", "x"), False), (("", ""), True), (("abc", ""), True),
            (("", "a"), False), (("Hello", "h"), False), (("abc", "abc"), True),
        ),
    ),
    ladder_task("has_space", family="character tests", level=1,
        prompt=(
            "Write `has_space(text)` that returns True if there is at least one space in text and False if "
            "there is none."
        ),
        reference='def has_space(text):\n    return " " in text\n',
        tests=(
            (("a b",), True), (("ab",), False), (("",), False), ((" ",), True), (("end ",), True),
            (("a_b",), False),
        ),
    ),
    ladder_task("only_letters", family="character tests", level=1,
        prompt=(
            "Write a function `only_letters(text)` that returns True if text is not empty and all its "
            "characters are letters."
        ),
        reference="def only_letters(text):\n    return text.isalpha()\n",
        tests=(
            (("abc",), True), (("",), False), (("abc1",), False), (("a b",), False), (("XYZ",), True),
            (("q",), True), (("!",), False),
        ),
    ),
    ladder_task("has_number_inside", family="character tests", level=2,
        prompt=(
            "Write `has_number_inside(text)`, which returns True if at least one character of text is a "
            "digit."
        ),
        reference="def has_number_inside(text):\n    return any(char.isdigit() for char in text)\n",
        tests=(
            (("abc1",), True), (("abc",), False), (("",), False), (("9",), True), (("a 2 b",), True),
            (("one",), False),
        ),
    ),
    ladder_task("good_password", family="character tests", level=2,
        prompt=(
            "A password is good if it has at least 8 characters and contains no space. Write "
            "`good_password(password)` that returns True or False."
        ),
        reference='def good_password(password):\n    return len(password) >= 8 and " " not in password\n',
        tests=(
            (("abcdefgh",), True), (("abcdefg",), False), (("",), False), (("abcd efgh",), False),
            (("        ",), False), (("longer-than-that",), True),
        ),
    ),

    ladder_task("comes_before", family="ordering two strings", level=1,
        prompt=(
            "Write a function `comes_before(a, b)` that returns True if the lower-case word a comes strictly "
            "before the lower-case word b in the alphabet, that is, if a < b."
        ),
        reference="def comes_before(a, b):\n    return a < b\n",
        tests=(
            (("apple", "banana"), True), (("banana", "apple"), False), (("a", "a"), False), (("", "a"), True),
            (("car", "cart"), True), (("zoo", "ant"), False),
        ),
    ),
    ladder_task("earlier_word", family="ordering two strings", level=1,
        prompt=(
            "Write `earlier_word(a, b)`: given two lower-case words, return the one that comes first in the "
            "alphabet."
        ),
        reference="def earlier_word(a, b):\n    return min(a, b)\n",
        tests=(
            (("apple", "banana"), "apple"), (("banana", "apple"), "apple"), (("a", "a"), "a"),
            (("", "a"), ""), (("cart", "car"), "car"), (("zoo", "ant"), "ant"),
        ),
    ),
    ladder_task("same_when_trimmed", family="ordering two strings", level=2,
        prompt=(
            "Write a function `same_when_trimmed(a, b)` that returns True if a and b are equal once spaces "
            "at the start and at the end of both are removed."
        ),
        reference="def same_when_trimmed(a, b):\n    return a.strip() == b.strip()\n",
        tests=(
            ((" hi", "hi "), True), (("hi", "hi"), True), (("hi", "ho"), False), (("", "   "), True),
            (("a b", "ab"), False), (("  x", "  y"), False),
        ),
    ),
    ladder_task("is_written_backwards", family="ordering two strings", level=2,
        prompt=(
            "Write `is_written_backwards(a, b)` that returns True if the string a is exactly the string b "
            "written backwards."
        ),
        reference="def is_written_backwards(a, b):\n    return a == b[::-1]\n",
        tests=(
            (("abc", "cba"), True), (("abc", "abc"), False), (("", ""), True), (("a", "a"), True),
            (("ab", "b"), False), (("noon", "noon"), True), (("Ab", "ba"), False),
        ),
    ),
    ladder_task("join_in_order", family="ordering two strings", level=2,
        prompt=(
            "Write a function `join_in_order(a, b)` that returns the two lower-case words joined by a space, "
            "the one that comes first in the alphabet at the front."
        ),
        reference=(
            "def join_in_order(a, b):\n"
            "    if a <= b:\n"
            '        return a + " " + b\n'
            '    return b + " " + a\n'
        ),
        tests=(
            (("pear", "apple"), "apple pear"), (("apple", "pear"), "apple pear"), (("a", "a"), "a a"),
            (("b", "a"), "a b"), (("car", "cart"), "car cart"), (("cart", "car"), "car cart"),
        ),
    ),
)
# fmt: on
