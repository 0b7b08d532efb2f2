"""Whole strings: case, joining, repetition, length, prefixes and suffixes, simple tests."""

family, level = "string case", 1

def shout(text):
    """Write a function `shout(text)` that returns text in upper case."""
    return text.upper()
assert shout("hello") == "HELLO" and shout("") == "" and shout("Hello World") == "HELLO WORLD"
assert shout("ABC") == "ABC" and shout("a1b2") == "A1B2" and shout("x") == "X"

def whisper(text):
    """Write a function `whisper(text)` that returns text in lower case."""
    return text.lower()
assert whisper("HELLO") == "hello" and whisper("") == "" and whisper("Hello World") == "hello world"
assert whisper("abc") == "abc" and whisper("A1B2") == "a1b2" and whisper("X") == "x"

def capitalize_text(text):
    """Write `capitalize_text(text)` that returns text with its first character in upper case and all the
    others in lower case. An empty string stays empty."""
    return text.capitalize()
assert capitalize_text("hello") == "Hello" and capitalize_text("") == ""
assert capitalize_text("HELLO") == "Hello" and capitalize_text("hello World") == "Hello world"
assert capitalize_text("x") == "X" and capitalize_text("1abc") == "1abc"

def same_ignoring_case(a, b):
    """Write a function `same_ignoring_case(a, b)` that returns True if the two strings are equal when upper
    and lower case do not matter."""
    return a.lower() == b.lower()
assert same_ignoring_case("abc", "ABC") == True and same_ignoring_case("abc", "abd") == False
assert same_ignoring_case("", "") == True and same_ignoring_case("Hi", "hI") == True
assert same_ignoring_case("a", "") == False and same_ignoring_case("One Two", "one two") == True

def loud_and_quiet(a, b):
    """Write `loud_and_quiet(a, b)`, which returns a in upper case followed directly by b in lower case."""
    return a.upper() + b.lower()
assert loud_and_quiet("abc", "DEF") == "ABCdef" and loud_and_quiet("", "X") == "x"
assert loud_and_quiet("x", "") == "X" and loud_and_quiet("", "") == ""
assert loud_and_quiet("Ab", "Cd") == "ABcd" and loud_and_quiet("go ", "AWAY") == "GO away"

family, level = "joining text", 1

def say_hello(name):
    """Write a function `say_hello(name)` that returns the string "Hello, " followed by the name and an
    exclamation mark."""
    return "Hello, " + name + "!"
assert say_hello("Ann") == "Hello, Ann!" and say_hello("Bob") == "Hello, Bob!" and say_hello("") == "Hello, !"
assert say_hello("World") == "Hello, World!" and say_hello("Mary Jane") == "Hello, Mary Jane!"
assert say_hello("x") == "Hello, x!"

def full_name(first, last):
    """Write `full_name(first, last)` that returns the first name and the last name with one space between
    them."""
    return first + " " + last
assert full_name("Ada", "Lovelace") == "Ada Lovelace" and full_name("Alan", "Turing") == "Alan Turing"
assert full_name("A", "B") == "A B" and full_name("Jean Luc", "Picard") == "Jean Luc Picard"
assert full_name("ann", "lee") == "ann lee" and full_name("X", "Y Z") == "X Y Z"

def join_with_dash(a, b):
    """Write a function `join_with_dash(a, b)` that returns the two strings joined by a single dash."""
    return a + "-" + b
assert join_with_dash("a", "b") == "a-b" and join_with_dash("red", "blue") == "red-blue"
assert join_with_dash("", "x") == "-x" and join_with_dash("x", "") == "x-" and join_with_dash("", "") == "-"
assert join_with_dash("1", "2") == "1-2"

def in_brackets(text):
    """Write `in_brackets(text)`, returning text with a "[" in front of it and a "]" behind it."""
    return "[" + text + "]"
assert in_brackets("a") == "[a]" and in_brackets("") == "[]" and in_brackets("hello") == "[hello]"
assert in_brackets("x y") == "[x y]" and in_brackets("[") == "[[]" and in_brackets("123") == "[123]"

def email_address(user, domain):
    """Write a function `email_address(user, domain)` that puts an @ sign between user and domain and returns
    the result."""
    return user + "@" + domain
assert email_address("ann", "mail.com") == "ann@mail.com"
assert email_address("bob", "site.org") == "bob@site.org" and email_address("x", "y") == "x@y"
assert email_address("a.b", "c.d") == "a.b@c.d" and email_address("me", "home.net") == "me@home.net"
assert email_address("info", "shop.io") == "info@shop.io"

family, level = "repeating strings", 1

def repeat_text(text, n):
    """Write a function `repeat_text(text, n)` that returns text repeated n times in a row. n is zero or
    more."""
    return text * n
assert repeat_text("ab", 3) == "ababab" and repeat_text("x", 1) == "x" and repeat_text("x", 0) == ""
assert repeat_text("", 5) == "" and repeat_text("hi ", 2) == "hi hi " and repeat_text("-", 10) == "----------"

def line_of_stars(n):
    """Write `line_of_stars(n)`, which returns a string made of n asterisks. For n = 0 the string is empty."""
    return "*" * n
assert line_of_stars(0) == "" and line_of_stars(1) == "*" and line_of_stars(2) == "**"
assert line_of_stars(5) == "*****" and line_of_stars(10) == "**********"
assert line_of_stars(30) == "******************************"

def say_twice(word):
    """Write a function `say_twice(word)` that returns the word, a space, and the word again."""
    return word + " " + word
assert say_twice("hey") == "hey hey" and say_twice("no") == "no no" and say_twice("a") == "a a"
assert say_twice("") == " " and say_twice("knock") == "knock knock" and say_twice("so so") == "so so so so"

def laugh(n):
    """Write `laugh(n)` that returns "ha" repeated n times, followed by one exclamation mark."""
    return "ha" * n + "!"
assert laugh(1) == "ha!" and laugh(2) == "haha!" and laugh(3) == "hahaha!" and laugh(0) == "!"
assert laugh(5) == "hahahahaha!" and laugh(8) == "hahahahahahahaha!"

family, level = "repeating strings", 2

def repeat_with_comma(word, n):
    """Write a function `repeat_with_comma(word, n)` that returns the word n times with a comma between the
    copies and none at the end. For n = 0 return an empty string."""
    return ",".join([word] * n)
assert repeat_with_comma("a", 3) == "a,a,a" and repeat_with_comma("hi", 1) == "hi"
assert repeat_with_comma("hi", 0) == "" and repeat_with_comma("no", 2) == "no,no"
assert repeat_with_comma("", 3) == ",," and repeat_with_comma("x y", 2) == "x y,x y"

family, level = "first and last characters", 1

def first_letter_of(word):
    """Write a function `first_letter_of(word)` that returns the first character of word, which is never
    empty."""
    return word[0]
assert first_letter_of("hello") == "h" and first_letter_of("x") == "x" and first_letter_of("Python") == "P"
assert first_letter_of(" abc") == " " and first_letter_of("123") == "1" and first_letter_of("Zoo") == "Z"

def last_letter_of(word):
    """Write `last_letter_of(word)` that returns the last character of the non-empty string word."""
    return word[-1]
assert last_letter_of("hello") == "o" and last_letter_of("x") == "x" and last_letter_of("Python") == "n"
assert last_letter_of("abc ") == " " and last_letter_of("123") == "3" and last_letter_of("wow!") == "!"

def two_initials(first, last):
    """Write a function `two_initials(first, last)` that returns the first character of first followed by the
    first character of last. Neither is empty."""
    return first[0] + last[0]
assert two_initials("Ada", "Lovelace") == "AL" and two_initials("Alan", "Turing") == "AT"
assert two_initials("a", "b") == "ab" and two_initials("x", "Yz") == "xY"
assert two_initials("John", "Smith") == "JS" and two_initials("9a", "8b") == "98"

family, level = "first and last characters", 2

def same_ends(text):
    """Write `same_ends(text)` that returns True if the first and the last character of text are equal. Return
    False if text is empty."""
    if text == "":
        return False
    return text[0] == text[-1]
assert same_ends("abca") == True and same_ends("abc") == False and same_ends("") == False
assert same_ends("x") == True and same_ends("aa") == True and same_ends("Aba") == False
assert same_ends("level") == True

def swap_end_letters(text):
    """Write a function `swap_end_letters(text)` that returns text with its first and last characters
    exchanged. Strings with fewer than two characters are returned unchanged."""
    if len(text) < 2:
        return text
    return text[-1] + text[1:-1] + text[0]
assert swap_end_letters("abcd") == "dbca" and swap_end_letters("ab") == "ba" and swap_end_letters("a") == "a"
assert swap_end_letters("") == "" and swap_end_letters("hello") == "oellh"
assert swap_end_letters("xyx") == "xyx" and swap_end_letters("12 3") == "32 1"

family, level = "string length", 1

def text_length(text):
    """Write a function `text_length(text)` that returns the number of characters in text."""
    return len(text)
assert text_length("") == 0 and text_length("a") == 1 and text_length("hello") == 5
assert text_length("a b c") == 5 and text_length("12345678") == 8 and text_length("\n") == 1

def is_blank_text(text):
    """Write `is_blank_text(text)`, which returns True if the string has no characters but spaces, or none at
    all, and False otherwise."""
    return text.strip(" ") == ""
assert is_blank_text("") == True and is_blank_text("a") == False and is_blank_text(" ") == True
assert is_blank_text("    ") == True and is_blank_text("0") == False and is_blank_text("  b ") == False

def longer_than(text, n):
    """Write a function `longer_than(text, n)` that returns True if text has more than n characters."""
    return len(text) > n
assert longer_than("hello", 4) == True and longer_than("hello", 5) == False and longer_than("", 0) == False
assert longer_than("a", 0) == True and longer_than("abc", 10) == False and longer_than("a b", 2) == True

def combined_length(a, b):
    """Write `combined_length(a, b)` that returns how many characters the strings a and b have together."""
    return len(a) + len(b)
assert combined_length("abc", "de") == 5 and combined_length("", "") == 0 and combined_length("a", "") == 1
assert combined_length("", "xyz") == 3 and combined_length("hello", "world") == 10
assert combined_length(" ", " ") == 2

family, level = "string length", 2

def pick_longer(a, b):
    """Write a function `pick_longer(a, b)` that returns the string with more characters. If both have the
    same length, return a."""
    if len(b) > len(a):
        return b
    return a
assert pick_longer("abc", "de") == "abc" and pick_longer("a", "bcd") == "bcd"
assert pick_longer("ab", "cd") == "ab" and pick_longer("", "") == "" and pick_longer("", "x") == "x"
assert pick_longer("zz", "yyy") == "yyy"

family, level = "prefix and suffix", 1

def has_prefix(text, prefix):
    """Write a function `has_prefix(text, prefix)` that returns True if text starts with prefix, else
    False."""
    return text.startswith(prefix)
assert has_prefix("hello", "he") == True and has_prefix("hello", "lo") == False
assert has_prefix("hello", "") == True and has_prefix("", "a") == False and has_prefix("abc", "abc") == True
assert has_prefix("ab", "abc") == False and has_prefix("Hello", "he") == False

def ends_with_dot(text):
    """Write `ends_with_dot(text)` which checks whether text ends with a full stop: return True if so, else
    False. The empty string gives False."""
    return text.endswith(".")
assert ends_with_dot("Hello.") == True and ends_with_dot("Hello") == False and ends_with_dot("") == False
assert ends_with_dot(".") == True and ends_with_dot("a.b") == False and ends_with_dot("wait...") == True

def is_python_file(name):
    """Write a function `is_python_file(name)` that returns True if the file name ends in ".py" and False
    otherwise."""
    return name.endswith(".py")
assert is_python_file("main.py") == True and is_python_file("main.txt") == False
assert is_python_file("py") == False and is_python_file(".py") == True and is_python_file("a.py.bak") == False
assert is_python_file("notes.PY") == False

family, level = "prefix and suffix", 2

def without_prefix(text, prefix):
    """Write `without_prefix(text, prefix)`: if text starts with prefix, return the rest of text after it,
    otherwise return text unchanged."""
    if text.startswith(prefix):
        return text[len(prefix) :]
    return text
assert without_prefix("unhappy", "un") == "happy" and without_prefix("happy", "un") == "happy"
assert without_prefix("", "un") == "" and without_prefix("abc", "") == "abc"
assert without_prefix("abc", "abc") == "" and without_prefix("ababc", "ab") == "abc"

def ensure_ending(text, ending):
    """Write a function `ensure_ending(text, ending)` that returns text as it is if it already ends with
    ending, and text with ending appended if it does not."""
    if text.endswith(ending):
        return text
    return text + ending
assert ensure_ending("file", ".txt") == "file.txt" and ensure_ending("file.txt", ".txt") == "file.txt"
assert ensure_ending("", "!") == "!" and ensure_ending("hi", "") == "hi"
assert ensure_ending("hi!", "!") == "hi!" and ensure_ending("!hi", "!") == "!hi!"

family, level = "character tests", 1

def contains_text(text, part):
    """Write a function `contains_text(text, part)` that returns True if part occurs somewhere in text, else
    False."""
    return part in text
assert contains_text("hello", "ell") == True and contains_text("hello", "x") == False
assert contains_text("", "") == True and contains_text("abc", "") == True and contains_text("", "a") == False
assert contains_text("Hello", "h") == False and contains_text("abc", "abc") == True

def has_space(text):
    """Write `has_space(text)` that returns True if there is at least one space in text and False if there is
    none."""
    return " " in text
assert has_space("a b") == True and has_space("ab") == False and has_space("") == False
assert has_space(" ") == True and has_space("end ") == True and has_space("a_b") == False

def only_letters(text):
    """Write a function `only_letters(text)` that returns True if text is not empty and all its characters are
    letters."""
    return text.isalpha()
assert only_letters("abc") == True and only_letters("") == False and only_letters("abc1") == False
assert only_letters("a b") == False and only_letters("XYZ") == True and only_letters("q") == True
assert only_letters("!") == False

family, level = "character tests", 2

def has_number_inside(text):
    """Write `has_number_inside(text)`, which returns True if at least one character of text is a digit."""
    return any(char.isdigit() for char in text)
assert has_number_inside("abc1") == True and has_number_inside("abc") == False
assert has_number_inside("") == False and has_number_inside("9") == True
assert has_number_inside("a 2 b") == True and has_number_inside("one") == False

def good_password(password):
    """A password is good if it has at least 8 characters and contains no space. Write
    `good_password(password)` that returns True or False."""
    return len(password) >= 8 and " " not in password
assert good_password("abcdefgh") == True and good_password("abcdefg") == False and good_password("") == False
assert good_password("abcd efgh") == False and good_password("        ") == False
assert good_password("longer-than-that") == True

family, level = "ordering two strings", 1

def comes_before(a, b):
    """Write a function `comes_before(a, b)` that returns True if the lower-case word a comes strictly before
    the lower-case word b in the alphabet, that is, if a < b."""
    return a < b
assert comes_before("apple", "banana") == True and comes_before("banana", "apple") == False
assert comes_before("a", "a") == False and comes_before("", "a") == True
assert comes_before("car", "cart") == True and comes_before("zoo", "ant") == False

def earlier_word(a, b):
    """Write `earlier_word(a, b)`: given two lower-case words, return the one that comes first in the
    alphabet."""
    return min(a, b)
assert earlier_word("apple", "banana") == "apple" and earlier_word("banana", "apple") == "apple"
assert earlier_word("a", "a") == "a" and earlier_word("", "a") == "" and earlier_word("cart", "car") == "car"
assert earlier_word("zoo", "ant") == "ant"

family, level = "ordering two strings", 2

def same_when_trimmed(a, b):
    """Write a function `same_when_trimmed(a, b)` that returns True if a and b are equal once spaces at the
    start and at the end of both are removed."""
    return a.strip() == b.strip()
assert same_when_trimmed(" hi", "hi ") == True and same_when_trimmed("hi", "hi") == True
assert same_when_trimmed("hi", "ho") == False and same_when_trimmed("", "   ") == True
assert same_when_trimmed("a b", "ab") == False and same_when_trimmed("  x", "  y") == False

def is_written_backwards(a, b):
    """Write `is_written_backwards(a, b)` that returns True if the string a is exactly the string b written
    backwards."""
    return a == b[::-1]
assert is_written_backwards("abc", "cba") == True and is_written_backwards("abc", "abc") == False
assert is_written_backwards("", "") == True and is_written_backwards("a", "a") == True
assert is_written_backwards("ab", "b") == False and is_written_backwards("noon", "noon") == True
assert is_written_backwards("Ab", "ba") == False

def join_in_order(a, b):
    """Write a function `join_in_order(a, b)` that returns the two lower-case words joined by a space, the one
    that comes first in the alphabet at the front."""
    if a <= b:
        return a + " " + b
    return b + " " + a
assert join_in_order("pear", "apple") == "apple pear" and join_in_order("apple", "pear") == "apple pear"
assert join_in_order("a", "a") == "a a" and join_in_order("b", "a") == "a b"
assert join_in_order("car", "cart") == "car cart" and join_in_order("cart", "car") == "car cart"
