"""Ladder tasks on text as data: words, filters, pairs of strings, ciphers, runs."""

from __future__ import annotations

from curriculum.ladder.builder import ladder_task
from curriculum.task import Task

# Kept by hand: the formatter would put every test on a line of its own.
# fmt: off
TASKS: tuple[Task, ...] = (
    ladder_task("number_of_words", family="words of a sentence", level=2,
        prompt=(
            "Words are separated by spaces. Write `number_of_words(text)` that returns how many words text "
            "has. The empty string has none, and several spaces in a row count as one."
        ),
        reference="def number_of_words(text):\n    return len(text.split())\n",
        tests=(
            (("hello world",), 2), (("",), 0), (("one",), 1), (("  a   b  ",), 2), (("a b c d",), 4),
            (("   ",), 0),
        ),
    ),
    ladder_task("first_word_of", family="words of a sentence", level=2,
        prompt=(
            "Write a function `first_word_of(text)` that returns the part of text before its first space. If "
            "there is no space, return all of text."
        ),
        reference='def first_word_of(text):\n    return text.split(" ")[0]\n',
        tests=(
            (("hello world",), "hello"), (("",), ""), (("one",), "one"), (("a b c",), "a"),
            (("go home now",), "go"), (("x y",), "x"),
        ),
    ),
    ladder_task("words_backwards", family="words of a sentence", level=3,
        prompt=(
            "Write `words_backwards(text)` that returns the words of text in reverse order, separated by "
            "single spaces. The letters inside each word stay as they are."
        ),
        reference='def words_backwards(text):\n    return " ".join(reversed(text.split()))\n',
        tests=(
            (("hello world",), "world hello"), (("",), ""), (("one",), "one"), (("a b c",), "c b a"),
            (("I am here",), "here am I"), (("x  y",), "y x"),
        ),
    ),
    ladder_task("length_of_longest_word", family="words of a sentence", level=3,
        prompt=(
            "Write a function `length_of_longest_word(text)` that returns the number of characters of the "
            "longest word in text, where words are separated by spaces. Return 0 if there are no words."
        ),
        reference=(
            "def length_of_longest_word(text):\n"
            "    return max((len(word) for word in text.split()), default=0)\n"
        ),
        tests=(
            (("hello world",), 5), (("",), 0), (("a bb ccc",), 3), (("one",), 3), (("   ",), 0),
            (("the quick brown foxes",), 5),
        ),
    ),
    ladder_task("word_initials", family="words of a sentence", level=3,
        prompt=(
            "Write `word_initials(text)`: it returns a string made of the first letter of each word of text "
            "in upper case. Words are separated by spaces, and an empty text gives an empty string."
        ),
        reference='def word_initials(text):\n    return "".join(word[0].upper() for word in text.split())\n',
        tests=(
            (("as soon as possible",), "ASAP"), (("",), ""), (("one",), "O"), (("Hello World",), "HW"),
            (("a b c",), "ABC"), (("  x  ",), "X"),
        ),
    ),

    ladder_task("keep_digits", family="filtering characters", level=2,
        prompt=(
            "Write a function `keep_digits(text)` that returns a string with only the digits of text, in "
            "their order."
        ),
        reference='def keep_digits(text):\n    return "".join(char for char in text if char.isdigit())\n',
        tests=(
            (("a1b2",), "12"), (("",), ""), (("abc",), ""), (("123",), "123"), (("(555) 12-34",), "5551234"),
            (("0",), "0"),
        ),
    ),
    ladder_task("keep_capitals", family="filtering characters", level=2,
        prompt="Write `keep_capitals(text)` that returns only the upper-case letters of text, as one string.",
        reference='def keep_capitals(text):\n    return "".join(char for char in text if char.isupper())\n',
        tests=(
            (("Hello World",), "HW"), (("",), ""), (("abc",), ""), (("ABC",), "ABC"), (("aBcD1",), "BD"),
            (("X",), "X"),
        ),
    ),
    ladder_task("erase_char", family="filtering characters", level=2,
        prompt=(
            "Write a function `erase_char(text, char)` that returns text without any occurrence of the "
            "single character char."
        ),
        reference='def erase_char(text, char):\n    return text.replace(char, "")\n',
        tests=(
            (("banana", "a"), "bnn"), (("", "a"), ""), (("abc", "x"), "abc"), (("aaa", "a"), ""),
            (("a b c", " "), "abc"), (("Aa", "a"), "A"),
        ),
    ),
    ladder_task("squash_repeats", family="filtering characters", level=3,
        prompt=(
            "Write `squash_repeats(text)` that shortens every group of equal neighboring characters in text "
            'to a single one, so "aabbba" becomes "aba".'
        ),
        reference=(
            "def squash_repeats(text):\n"
            '    result = ""\n'
            "    for char in text:\n"
            "        if not result or result[-1] != char:\n"
            "            result += char\n"
            "    return result\n"
        ),
        tests=(
            (("aabbba",), "aba"), (("",), ""), (("a",), "a"), (("aaaa",), "a"), (("abc",), "abc"),
            (("hello  world",), "helo world"), (("1122211",), "121"),
        ),
    ),
    ladder_task("first_occurrences", family="filtering characters", level=3,
        prompt=(
            "Write a function `first_occurrences(text)` that returns text with each character kept only the "
            "first time it appears."
        ),
        reference=(
            "def first_occurrences(text):\n"
            '    result = ""\n'
            "    for char in text:\n"
            "        if char not in result:\n"
            "            result += char\n"
            "    return result\n"
        ),
        tests=(
            (("banana",), "ban"), (("",), ""), (("a",), "a"), (("aaaa",), "a"), (("abc",), "abc"),
            (("hello world",), "helo wrd"), (("aAa",), "aA"),
        ),
    ),

    ladder_task("count_differences", family="checks on two strings", level=3,
        prompt=(
            "Write a function `count_differences(a, b)` for two strings of the same length that returns the "
            "number of positions at which their characters differ."
        ),
        reference=(
            "def count_differences(a, b):\n"
            "    return sum(1 for left, right in zip(a, b) if left != right)\n"
        ),
        tests=(
            (("abc", "abd"), 1), (("abc", "abc"), 0), (("", ""), 0), (("a", "b"), 1), (("aaaa", "bbbb"), 4),
            (("Karl", "karL"), 2),
        ),
    ),
    ladder_task("same_letters", family="checks on two strings", level=3,
        prompt=(
            "Write `same_letters(a, b)` that returns True if b can be made from a by putting its characters "
            "in another order. Every character must be used exactly as often in both."
        ),
        reference="def same_letters(a, b):\n    return sorted(a) == sorted(b)\n",
        tests=(
            (("listen", "silent"), True), (("abc", "abd"), False), (("", ""), True), (("aab", "abb"), False),
            (("a", "aa"), False), (("ab", "ba"), True),
        ),
    ),
    ladder_task("shared_start", family="checks on two strings", level=3,
        prompt=(
            "Write a function `shared_start(a, b)` that returns the longest string with which both a and b "
            "begin. It may be empty."
        ),
        reference=(
            "def shared_start(a, b):\n"
            "    length = 0\n"
            "    while length < len(a) and length < len(b) and a[length] == b[length]:\n"
            "        length += 1\n"
            "    return a[:length]\n"
        ),
        tests=(
            (("flower", "flow"), "flow"), (("abc", "abd"), "ab"), (("abc", "xyz"), ""), (("", "abc"), ""),
            (("same", "same"), "same"), (("one two", "one too"), "one t"), (("xyz1", "xyz2"), "xyz"),
            (("a", "A"), ""),
        ),
    ),
    ladder_task("hidden_in_order", family="checks on two strings", level=4,
        prompt=(
            "Write `hidden_in_order(part, text)` that returns True if all characters of part appear in text "
            "in the same order, with other characters allowed in between. An empty part gives True."
        ),
        reference=(
            "def hidden_in_order(part, text):\n"
            "    position = 0\n"
            "    for char in text:\n"
            "        if position < len(part) and char == part[position]:\n"
            "            position += 1\n"
            "    return position == len(part)\n"
        ),
        tests=(
            (("ace", "abcde"), True), (("aec", "abcde"), False), (("", "abc"), True), (("a", ""), False),
            (("", ""), True), (("aa", "a"), False), (("abc", "abc"), True),
        ),
    ),
    ladder_task("is_rotated", family="checks on two strings", level=4,
        prompt=(
            "Write a function `is_rotated(a, b)` that returns True if b is a with some number of characters "
            "(possibly none) moved from its front to its end, keeping their order."
        ),
        reference="def is_rotated(a, b):\n    return len(a) == len(b) and b in a + a\n",
        tests=(
            (("abcd", "cdab"), True), (("abcd", "abdc"), False), (("", ""), True), (("a", "a"), True),
            (("abc", "abc"), True), (("ab", "aba"), False), (("aab", "aba"), True),
        ),
    ),

    ladder_task("next_letters", family="ciphers", level=4,
        prompt=(
            "Write a function `next_letters(text)` for a string of lower-case letters: replace every letter "
            'by the one after it in the alphabet, with "a" coming after "z", and return the result.'
        ),
        reference=(
            "def next_letters(text):\n"
            '    result = ""\n'
            "    for char in text:\n"
            '        result += "a" if char == "z" else chr(ord(char) + 1)\n'
            "    return result\n"
        ),
        tests=(
            (("abc",), "bcd"), (("",), ""), (("z",), "a"), (("xyz",), "yza"), (("hello",), "ifmmp"),
            (("zebra",), "afcsb"),
        ),
    ),
    ladder_task("swap_neighbors", family="ciphers", level=4,
        prompt=(
            "Write `swap_neighbors(text)` that exchanges the first character with the second, the third with "
            "the fourth, and so on. If the length is odd, the last character stays in its place."
        ),
        reference=(
            "def swap_neighbors(text):\n"
            '    result = ""\n'
            "    for index in range(0, len(text), 2):\n"
            "        result += text[index : index + 2][::-1]\n"
            "    return result\n"
        ),
        tests=(
            (("abcd",), "badc"), (("abc",), "bac"), (("",), ""), (("a",), "a"), (("hello",), "ehllo"),
            (("112233",), "112233"),
        ),
    ),
    ladder_task("mirror_alphabet", family="ciphers", level=4,
        prompt=(
            "Write a function `mirror_alphabet(text)` that replaces each lower-case letter by the one at the "
            "same place counted from the other end of the alphabet (a becomes z, b becomes y, ...). All "
            "other characters stay unchanged."
        ),
        reference=(
            "def mirror_alphabet(text):\n"
            '    result = ""\n'
            "    for char in text:\n"
            '        if "a" <= char <= "z":\n'
            '            result += chr(ord("a") + ord("z") - ord(char))\n'
            "        else:\n"
            "            result += char\n"
            "    return result\n"
        ),
        tests=(
            (("abc",), "zyx"), (("",), ""), (("z",), "a"), (("hello world",), "svool dliow"),
            (("ABC",), "ABC"), (("m1n2",), "n1m2"),
        ),
    ),
    ladder_task("caesar_shift", family="ciphers", level=5,
        prompt=(
            "Write `caesar_shift(text, k)` that moves every letter of text k places forward in the alphabet, "
            "going from the end back to the start, and keeps the case. k may be negative, and characters "
            "that are not letters from a to z stay the same."
        ),
        reference=(
            "def caesar_shift(text, k):\n"
            '    result = ""\n'
            "    for char in text:\n"
            '        if "a" <= char <= "z":\n'
            '            result += chr((ord(char) - ord("a") + k) % 26 + ord("a"))\n'
            '        elif "A" <= char <= "Z":\n'
            '            result += chr((ord(char) - ord("A") + k) % 26 + ord("A"))\n'
            "        else:\n"
            "            result += char\n"
            "    return result\n"
        ),
        tests=(
            (("abc", 3), "def"), (("xyz", 3), "abc"), (("Hello, World!", 13), "Uryyb, Jbeyq!"), (("", 5), ""),
            (("abc", 0), "abc"), (("abc", -1), "zab"), (("ABC", 1), "BCD"), (("Zz", 27), "Aa"),
        ),
    ),
    ladder_task("add_key", family="ciphers", level=5,
        prompt=(
            "Write a function `add_key(text, key)` for two strings of lower-case letters, key not empty. "
            "Each letter of text is moved forward in the alphabet (wrapping after z) by the place of the "
            "matching key letter, where a counts 0, b counts 1 and so on. The key is repeated as often as "
            "needed."
        ),
        reference=(
            "def add_key(text, key):\n"
            '    result = ""\n'
            "    for index, char in enumerate(text):\n"
            '        shift = ord(key[index % len(key)]) - ord("a")\n'
            '        result += chr((ord(char) - ord("a") + shift) % 26 + ord("a"))\n'
            "    return result\n"
        ),
        tests=(
            (("abc", "a"), "abc"), (("abc", "b"), "bcd"), (("attack", "ab"), "autbcl"), (("", "key"), ""),
            (("xyz", "bcd"), "yac"), (("aaaaa", "xyz"), "xyzxy"),
        ),
    ),

    ladder_task("longest_run_length", family="runs of characters", level=4,
        prompt=(
            "A run is a group of equal neighboring characters. Write `longest_run_length(text)` that returns "
            "the length of the longest run in text, or 0 for an empty string."
        ),
        reference=(
            "def longest_run_length(text):\n"
            "    best = 0\n"
            "    current = 0\n"
            '    previous = ""\n'
            "    for char in text:\n"
            "        current = current + 1 if char == previous else 1\n"
            "        best = max(best, current)\n"
            "        previous = char\n"
            "    return best\n"
        ),
        tests=(
            (("aabbba",), 3), (("",), 0), (("a",), 1), (("abc",), 1), (("aaaa",), 4), (("abbccc",), 3),
            (("xxyxx",), 2),
        ),
    ),
    ladder_task("count_runs", family="runs of characters", level=4,
        prompt=(
            "Write a function `count_runs(text)` that returns into how many groups of equal neighboring "
            'characters text falls. For example, "aab" has two and the empty string has none.'
        ),
        reference=(
            "def count_runs(text):\n"
            "    runs = 0\n"
            '    previous = ""\n'
            "    for char in text:\n"
            "        if char != previous:\n"
            "            runs += 1\n"
            "        previous = char\n"
            "    return runs\n"
        ),
        tests=(
            (("aab",), 2), (("",), 0), (("a",), 1), (("abc",), 3), (("aaaa",), 1), (("aabbaa",), 3),
            (("  x",), 2),
        ),
    ),
    ladder_task("has_triple", family="runs of characters", level=4,
        prompt=(
            "Write `has_triple(text)` that returns True if some character stands in text at least three "
            "times directly in a row, else False."
        ),
        reference=(
            "def has_triple(text):\n"
            "    for index in range(len(text) - 2):\n"
            "        if text[index] == text[index + 1] == text[index + 2]:\n"
            "            return True\n"
            "    return False\n"
        ),
        tests=(
            (("aaa",), True), (("",), False), (("aa",), False), (("abaca",), False), (("xaaay",), True),
            (("aabbaabb",), False), (("abccccd",), True),
        ),
    ),
    ladder_task("pack_runs", family="runs of characters", level=5,
        prompt=(
            "Write a function `pack_runs(text)` that replaces every group of equal neighboring characters by "
            'the character followed by the size of the group: "aabbba" becomes "a2b3a1". An empty string '
            "stays empty."
        ),
        reference=(
            "def pack_runs(text):\n"
            '    result = ""\n'
            "    index = 0\n"
            "    while index < len(text):\n"
            "        end = index\n"
            "        while end < len(text) and text[end] == text[index]:\n"
            "            end += 1\n"
            "        result += text[index] + str(end - index)\n"
            "        index = end\n"
            "    return result\n"
        ),
        tests=(
            (("aabbba",), "a2b3a1"), (("",), ""), (("a",), "a1"), (("abc",), "a1b1c1"),
            (("aaaaaaaaaaaa",), "a12"), (("xxYY",), "x2Y2"), (("  a",), " 2a1"),
        ),
    ),
    ladder_task("unpack_runs", family="runs of characters", level=5,
        prompt=(
            "Write `unpack_runs(code)` where code is made of letters, each followed by a count that may have "
            "several digits. Return the text in which every letter is repeated as often as its count says: "
            '"a2b3" gives "aabbb".'
        ),
        reference=(
            "def unpack_runs(code):\n"
            '    result = ""\n'
            "    index = 0\n"
            "    while index < len(code):\n"
            "        letter = code[index]\n"
            "        index += 1\n"
            '        digits = ""\n'
            "        while index < len(code) and code[index].isdigit():\n"
            "            digits += code[index]\n"
            "            index += 1\n"
            "        result += letter * int(digits)\n"
            "    return result\n"
        ),
        tests=(
            (("a2b3",), "aabbb"), (("",), ""), (("x1",), "x"), (("a12",), "aaaaaaaaaaaa"),
            (("a1b1c1",), "abc"), (("z0y2",), "yy"), (("h1e1l2o1",), "hello"),
        ),
    ),
)
# fmt: on
