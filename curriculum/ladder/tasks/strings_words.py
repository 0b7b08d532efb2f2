"""Text as data: words, filters, pairs of strings, ciphers, runs."""

family, level = "words of a sentence", 2

def number_of_words(text):
    """Words are separated by spaces. Write `number_of_words(text)` that returns how many words text has. The
    empty string has none, and several spaces in a row count as one."""
    return len(text.split())
assert number_of_words("hello world") == 2 and number_of_words("") == 0 and number_of_words("one") == 1
assert number_of_words("  a   b  ") == 2 and number_of_words("a b c d") == 4 and number_of_words("   ") == 0

def first_word_of(text):
    """Write a function `first_word_of(text)` that returns the part of text before its first space. If there
    is no space, return all of text."""
    return text.split(" ")[0]
assert first_word_of("hello world") == "hello" and first_word_of("") == "" and first_word_of("one") == "one"
assert first_word_of("a b c") == "a" and first_word_of("go home now") == "go" and first_word_of("x y") == "x"

family, level = "words of a sentence", 3

def words_backwards(text):
    """Write `words_backwards(text)` that returns the words of text in reverse order, separated by single
    spaces. The letters inside each word stay as they are."""
    return " ".join(reversed(text.split()))
assert words_backwards("hello world") == "world hello" and words_backwards("") == ""
assert words_backwards("one") == "one" and words_backwards("a b c") == "c b a"
assert words_backwards("I am here") == "here am I" and words_backwards("x  y") == "y x"

def length_of_longest_word(text):
    """Write a function `length_of_longest_word(text)` that returns the number of characters of the longest
    word in text, where words are separated by spaces. Return 0 if there are no words."""
    return max((len(word) for word in text.split()), default=0)
assert length_of_longest_word("hello world") == 5 and length_of_longest_word("") == 0
assert length_of_longest_word("a bb ccc") == 3 and length_of_longest_word("one") == 3
assert length_of_longest_word("   ") == 0 and length_of_longest_word("the quick brown foxes") == 5

def word_initials(text):
    """Write `word_initials(text)`: it returns a string made of the first letter of each word of text in upper
    case. Words are separated by spaces, and an empty text gives an empty string."""
    return "".join(word[0].upper() for word in text.split())
assert word_initials("as soon as possible") == "ASAP" and word_initials("") == ""
assert word_initials("one") == "O" and word_initials("Hello World") == "HW"
assert word_initials("a b c") == "ABC" and word_initials("  x  ") == "X"

family, level = "filtering characters", 2

def keep_digits(text):
    """Write a function `keep_digits(text)` that returns a string with only the digits of text, in their
    order."""
    return "".join(char for char in text if char.isdigit())
assert keep_digits("a1b2") == "12" and keep_digits("") == "" and keep_digits("abc") == ""
assert keep_digits("123") == "123" and keep_digits("(555) 12-34") == "5551234" and keep_digits("0") == "0"

def keep_capitals(text):
    """Write `keep_capitals(text)` that returns only the upper-case letters of text, as one string."""
    return "".join(char for char in text if char.isupper())
assert keep_capitals("Hello World") == "HW" and keep_capitals("") == "" and keep_capitals("abc") == ""
assert keep_capitals("ABC") == "ABC" and keep_capitals("aBcD1") == "BD" and keep_capitals("X") == "X"

def erase_char(text, char):
    """Write a function `erase_char(text, char)` that returns text without any occurrence of the single
    character char."""
    return text.replace(char, "")
assert erase_char("banana", "a") == "bnn" and erase_char("", "a") == "" and erase_char("abc", "x") == "abc"
assert erase_char("aaa", "a") == "" and erase_char("a b c", " ") == "abc" and erase_char("Aa", "a") == "A"

family, level = "filtering characters", 3

def squash_repeats(text):
    """Write `squash_repeats(text)` that shortens every group of equal neighboring characters in text to a
    single one, so "aabbba" becomes "aba"."""
    result = ""
    for char in text:
        if not result or result[-1] != char:
            result += char
    return result
assert squash_repeats("aabbba") == "aba" and squash_repeats("") == "" and squash_repeats("a") == "a"
assert squash_repeats("aaaa") == "a" and squash_repeats("abc") == "abc"
assert squash_repeats("hello  world") == "helo world" and squash_repeats("1122211") == "121"

def first_occurrences(text):
    """Write a function `first_occurrences(text)` that returns text with each character kept only the first
    time it appears."""
    result = ""
    for char in text:
        if char not in result:
            result += char
    return result
assert first_occurrences("banana") == "ban" and first_occurrences("") == "" and first_occurrences("a") == "a"
assert first_occurrences("aaaa") == "a" and first_occurrences("abc") == "abc"
assert first_occurrences("hello world") == "helo wrd" and first_occurrences("aAa") == "aA"

family, level = "checks on two strings", 3

def count_differences(a, b):
    """Write a function `count_differences(a, b)` for two strings of the same length that returns the number
    of positions at which their characters differ."""
    return sum(1 for left, right in zip(a, b) if left != right)
assert count_differences("abc", "abd") == 1 and count_differences("abc", "abc") == 0
assert count_differences("", "") == 0 and count_differences("a", "b") == 1
assert count_differences("aaaa", "bbbb") == 4 and count_differences("Karl", "karL") == 2

def same_letters(a, b):
    """Write `same_letters(a, b)` that returns True if b can be made from a by putting its characters in
    another order. Every character must be used exactly as often in both."""
    return sorted(a) == sorted(b)
assert same_letters("listen", "silent") == True and same_letters("abc", "abd") == False
assert same_letters("", "") == True and same_letters("aab", "abb") == False
assert same_letters("a", "aa") == False and same_letters("ab", "ba") == True

def shared_start(a, b):
    """Write a function `shared_start(a, b)` that returns the longest string with which both a and b begin. It
    may be empty."""
    length = 0
    while length < len(a) and length < len(b) and a[length] == b[length]:
        length += 1
    return a[:length]
assert shared_start("flower", "flow") == "flow" and shared_start("abc", "abd") == "ab"
assert shared_start("abc", "xyz") == "" and shared_start("", "abc") == ""
assert shared_start("same", "same") == "same" and shared_start("one two", "one too") == "one t"
assert shared_start("xyz1", "xyz2") == "xyz" and shared_start("a", "A") == ""

family, level = "checks on two strings", 4

def hidden_in_order(part, text):
    """Write `hidden_in_order(part, text)` that returns True if all characters of part appear in text in the
    same order, with other characters allowed in between. An empty part gives True."""
    position = 0
    for char in text:
        if position < len(part) and char == part[position]:
            position += 1
    return position == len(part)
assert hidden_in_order("ace", "abcde") == True and hidden_in_order("aec", "abcde") == False
assert hidden_in_order("", "abc") == True and hidden_in_order("a", "") == False
assert hidden_in_order("", "") == True and hidden_in_order("aa", "a") == False
assert hidden_in_order("abc", "abc") == True

def is_rotated(a, b):
    """Write a function `is_rotated(a, b)` that returns True if b is a with some number of characters
    (possibly none) moved from its front to its end, keeping their order."""
    return len(a) == len(b) and b in a + a
assert is_rotated("abcd", "cdab") == True and is_rotated("abcd", "abdc") == False
assert is_rotated("", "") == True and is_rotated("a", "a") == True and is_rotated("abc", "abc") == True
assert is_rotated("ab", "aba") == False and is_rotated("aab", "aba") == True

family, level = "ciphers", 4

def next_letters(text):
    """Write a function `next_letters(text)` for a string of lower-case letters: replace every letter by the
    one after it in the alphabet, with "a" coming after "z", and return the result."""
    result = ""
    for char in text:
        result += "a" if char == "z" else chr(ord(char) + 1)
    return result
assert next_letters("abc") == "bcd" and next_letters("") == "" and next_letters("z") == "a"
assert next_letters("xyz") == "yza" and next_letters("hello") == "ifmmp" and next_letters("zebra") == "afcsb"

def swap_neighbors(text):
    """Write `swap_neighbors(text)` that exchanges the first character with the second, the third with the
    fourth, and so on. If the length is odd, the last character stays in its place."""
    result = ""
    for index in range(0, len(text), 2):
        result += text[index : index + 2][::-1]
    return result
assert swap_neighbors("abcd") == "badc" and swap_neighbors("abc") == "bac" and swap_neighbors("") == ""
assert swap_neighbors("a") == "a" and swap_neighbors("hello") == "ehllo"
assert swap_neighbors("112233") == "112233"

def mirror_alphabet(text):
    """Write a function `mirror_alphabet(text)` that replaces each lower-case letter by the one at the same
    place counted from the other end of the alphabet (a becomes z, b becomes y, ...). All other characters
    stay unchanged."""
    result = ""
    for char in text:
        if "a" <= char <= "z":
            result += chr(ord("a") + ord("z") - ord(char))
        else:
            result += char
    return result
assert mirror_alphabet("abc") == "zyx" and mirror_alphabet("") == "" and mirror_alphabet("z") == "a"
assert mirror_alphabet("hello world") == "svool dliow" and mirror_alphabet("ABC") == "ABC"
assert mirror_alphabet("m1n2") == "n1m2"

family, level = "ciphers", 5

def caesar_shift(text, k):
    """Write `caesar_shift(text, k)` that moves every letter of text k places forward in the alphabet, going
    from the end back to the start, and keeps the case. k may be negative, and characters that are not letters
    from a to z stay the same."""
    result = ""
    for char in text:
        if "a" <= char <= "z":
            result += chr((ord(char) - ord("a") + k) % 26 + ord("a"))
        elif "A" <= char <= "Z":
            result += chr((ord(char) - ord("A") + k) % 26 + ord("A"))
        else:
            result += char
    return result
assert caesar_shift("abc", 3) == "def" and caesar_shift("xyz", 3) == "abc"
assert caesar_shift("Hello, World!", 13) == "Uryyb, Jbeyq!" and caesar_shift("", 5) == ""
assert caesar_shift("abc", 0) == "abc" and caesar_shift("abc", -1) == "zab"
assert caesar_shift("ABC", 1) == "BCD" and caesar_shift("Zz", 27) == "Aa"

def add_key(text, key):
    """Write a function `add_key(text, key)` for two strings of lower-case letters, key not empty. Each letter
    of text is moved forward in the alphabet (wrapping after z) by the place of the matching key letter, where
    a counts 0, b counts 1 and so on. The key is repeated as often as needed."""
    result = ""
    for index, char in enumerate(text):
        shift = ord(key[index % len(key)]) - ord("a")
        result += chr((ord(char) - ord("a") + shift) % 26 + ord("a"))
    return result
assert add_key("abc", "a") == "abc" and add_key("abc", "b") == "bcd" and add_key("attack", "ab") == "autbcl"
assert add_key("", "key") == "" and add_key("xyz", "bcd") == "yac" and add_key("aaaaa", "xyz") == "xyzxy"

family, level = "runs of characters", 4

def longest_run_length(text):
    """A run is a group of equal neighboring characters. Write `longest_run_length(text)` that returns the
    length of the longest run in text, or 0 for an empty string."""
    best = 0
    current = 0
    previous = ""
    for char in text:
        current = current + 1 if char == previous else 1
        best = max(best, current)
        previous = char
    return best
assert longest_run_length("aabbba") == 3 and longest_run_length("") == 0 and longest_run_length("a") == 1
assert longest_run_length("abc") == 1 and longest_run_length("aaaa") == 4
assert longest_run_length("abbccc") == 3 and longest_run_length("xxyxx") == 2

def count_runs(text):
    """Write a function `count_runs(text)` that returns into how many groups of equal neighboring characters
    text falls. For example, "aab" has two and the empty string has none."""
    runs = 0
    previous = ""
    for char in text:
        if char != previous:
            runs += 1
        previous = char
    return runs
assert count_runs("aab") == 2 and count_runs("") == 0 and count_runs("a") == 1 and count_runs("abc") == 3
assert count_runs("aaaa") == 1 and count_runs("aabbaa") == 3 and count_runs("  x") == 2

def has_triple(text):
    """Write `has_triple(text)` that returns True if some character stands in text at least three times
    directly in a row, else False."""
    for index in range(len(text) - 2):
        if text[index] == text[index + 1] == text[index + 2]:
            return True
    return False
assert has_triple("aaa") == True and has_triple("") == False and has_triple("aa") == False
assert has_triple("abaca") == False and has_triple("xaaay") == True and has_triple("aabbaabb") == False
assert has_triple("abccccd") == True

family, level = "runs of characters", 5

def pack_runs(text):
    """Write a function `pack_runs(text)` that replaces every group of equal neighboring characters by the
    character followed by the size of the group: "aabbba" becomes "a2b3a1". An empty string stays empty."""
    result = ""
    index = 0
    while index < len(text):
        end = index
        while end < len(text) and text[end] == text[index]:
            end += 1
        result += text[index] + str(end - index)
        index = end
    return result
assert pack_runs("aabbba") == "a2b3a1" and pack_runs("") == "" and pack_runs("a") == "a1"
assert pack_runs("abc") == "a1b1c1" and pack_runs("aaaaaaaaaaaa") == "a12" and pack_runs("xxYY") == "x2Y2"
assert pack_runs("  a") == " 2a1"

def unpack_runs(code):
    """Write `unpack_runs(code)` where code is made of letters, each followed by a count that may have several
    digits. Return the text in which every letter is repeated as often as its count says: "a2b3" gives
    "aabbb"."""
    result = ""
    index = 0
    while index < len(code):
        letter = code[index]
        index += 1
        digits = ""
        while index < len(code) and code[index].isdigit():
            digits += code[index]
            index += 1
        result += letter * int(digits)
    return result
assert unpack_runs("a2b3") == "aabbb" and unpack_runs("") == "" and unpack_runs("x1") == "x"
assert unpack_runs("a12") == "aaaaaaaaaaaa" and unpack_runs("a1b1c1") == "abc" and unpack_runs("z0y2") == "yy"
assert unpack_runs("h1e1l2o1") == "hello"
