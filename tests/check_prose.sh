#!/usr/bin/env bash
# Holds comments, messages and documents to plain English, and names to the words of the field:
#   - no clause has "who", "whoever" or "what" as its subject ("A waiting worker helps", not the
#     pronoun); questions, also the indirect ones behind "say" ("says what is allowed"), relative
#     clauses behind a person ("users who") and "what" as an object ("what it does") are right
#   - no identifier, file or option has one of the names that were replaced
#
#   tests/check_prose.sh             this project, after a test of the check itself
#
# Prints FILE:LINE and the words for every find; exit 1 if there is one.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

exec python3 - <<'PYTHON'
import os, re, sys

# Texts that may stand as they are: (file, words of the find).
ALLOWED = [
    ("tests/check_prose.sh", ""),  # the rules themselves
]

ROOTS = ["src", "include", "tests", "docs", "bench", "examples", "tools", "README.md", "ARCHITECTURE.md",
         "CHANGELOG.md"]
C_FILES = (".c", ".h", ".inc", ".js", ".css")
HASH_FILES = (".sh", ".py", ".cmake", ".awk", "CMakeLists.txt")

# ---- clauses --------------------------------------------------------------------------------------

PERSON = (r"(?:users?|readers?|engineers?|people|persons?|someone|anyone|somebody|anybody|newcomers?|"
          r"authors?|developers?|maintainers?|administrators?|humans?|colleagues?|programmers?)")
NO_SUBJECT = r"(?:it|they|he|she|we|you|I|the|a|an|this|that|these|those|each|every|its|their|to)\b"
ADVERB = r"(?:(?:already|always|still|also|only|really|never|now|then|else|once|often|just|again)\s+)*"
VERB = (r"(?:is|isn't|was|wasn't|are|were|has|had|can|cannot|could|may|might|must|shall|should|will|"
        r"would|does\s+not|did\s+not|needs|became|becomes|began|begins|belongs|brings|brought|came|"
        r"causes|changed|changes|comes|communicates|computes|costs|counts|decides|depends|differs|"
        r"divides|ends|exists|failed|fails|favours|fits|follows|gets|goes|grew|grows|happened|"
        r"happens|holds|identifies|joins|keeps|lasts|leads|leaks|leaves|lets|lies|limits|lives|"
        r"makes|matters|means|moves|passes|reaches|reads|remained|remains|runs|says|shares|stands|"
        r"stays|stood|stops|strikes|takes|took|turns|uses|waits|went|wins|works|wrote)\b")
SAYS = r"\bsay(?:s|ing)?\s+"  # and a list of such questions behind it
INDIRECT = re.compile(SAYS + r"(?:what\s[^.;:]*?(?:,|\band)\s+)*$", re.I)
CLAUSES = [
    (re.compile(r"(?<![\w`'\"-])[Ww]hoever\b"), None),
    (re.compile(r"(?<![\w`'\"-])[Ww]ho(?:'s)?\s+(?!%s)(?=\w)" % NO_SUBJECT),
     re.compile(r"(?i)\b%s,?\s+$" % PERSON)),
    (re.compile(r"(?<![\w`'\"-])[Ww]hat\s+%s%s" % (ADVERB, VERB)), INDIRECT),
]


def clause_finds(text):
    """Offsets and words of the banned clauses of a text."""
    for pattern, right_behind in CLAUSES:
        for found in pattern.finditer(text):
            end = re.search(r"[.?!:](?=\s|$)|$", text[found.end():])
            if end and end.group() == "?":
                continue
            if right_behind and right_behind.search(text[:found.start()]):
                continue
            yield found.start(), " ".join(text[found.start():found.start() + 60].split())


# ---- texts of a file: (text, the line of each of its characters) ------------------------------------

def as_text(pieces):
    """(line, text) of the pieces of one running text, without what stands before each line."""
    text, lines = "", []
    for line, piece in pieces:
        piece = re.sub(r"^\s*(?:/?\*+/?|//+|#+!?)?\s?", "", piece) + " "
        text += piece
        lines += [line] * len(piece)
    return text, lines


TOKEN = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)


def c_texts(source):
    """Comments and strings; and the code that is left, line by line."""
    texts, line, at = [], 1, 0
    strings = []  # adjoining ones are one text
    code = ""
    for found in TOKEN.finditer(source):
        between = source[at:found.start()]
        if between.strip() and strings:
            texts.append(as_text(strings))
            strings = []
        line += between.count("\n")
        code += between
        token = found.group()
        if token[0] == "/":
            texts.append(as_text([(line + i, t) for i, t in enumerate(token.rstrip("*/").split("\n"))]))
        elif token[0] == '"':
            strings.append((line, token[1:-1].replace("\\n", " ")))
        code += re.sub(r"[^\n]", " ", token)
        line += token.count("\n")
        at = found.end()
    if strings:
        texts.append(as_text(strings))
    return texts, code + source[at:]


def hash_texts(source):
    """Runs of comment lines, and quoted texts."""
    texts, run = [], []
    for number, line in enumerate(source.split("\n"), 1):
        found = re.search(r"(?:^|\s)#\s?(?!\{)(.*)$", line)
        if found and line.lstrip().startswith("#"):
            run.append((number, found.group(1)))
            continue
        if run:
            texts.append(as_text(run))
            run = []
        if found:
            texts.append(as_text([(number, found.group(1))]))
        texts += [as_text([(number, q)]) for q in re.findall(r'"([^"]*\s[^"]*)"', line)]
    if run:
        texts.append(as_text(run))
    return texts


def markdown_texts(source):
    """Paragraphs without code; a table's row and a list's item are texts of their own."""
    texts, run, fenced = [], [], False
    for number, line in enumerate(source.split("\n") + [""], 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        plain = re.sub(r"`[^`]*`", "`code`", line)
        starts = not plain.strip() or re.match(r"\s*(?:[-*|#]|\d+\.)", plain) or fenced
        if starts and run:
            texts.append(as_text(run))
            run = []
        if plain.strip() and not fenced and not plain.startswith("    "):
            run.append((number, plain))
    return texts


# ---- names ----------------------------------------------------------------------------------------

OLD = ("board seat gang bell ear wander weather pace paces turns hands roads patterns workshop basket "
       "trail groundwork").split()
OLD_PART = re.compile(r"\b(?:[A-Za-z0-9]+_)*(?:%s)(?:_[A-Za-z0-9]+)*\b" % "|".join(OLD))
OLD_OPTION = re.compile(r"(?<![\w-])--(?:[a-z]+-)*(?:%s)(?:-[a-z]+)*\b" % "|".join(OLD))
OLD_FILE = re.compile(r"(?:^|/|_|-)(?:%s)(?:[_./-]|$)|^src/search/draw\." % "|".join(OLD))


def name_finds(name, code, source):
    if OLD_FILE.search(name):
        yield 1, "the file's name"
    for number, line in enumerate(code.split("\n"), 1):
        line = re.sub(r'^\s*#\s*include.*', "", line)
        for found in OLD_PART.finditer(line):
            yield number, found.group()
    for number, line in enumerate(source.split("\n"), 1):
        for found in OLD_OPTION.finditer(line):
            yield number, found.group()


# ---- the project ----------------------------------------------------------------------------------

def finds_of(name, source):
    texts, code = [], ""
    if name.endswith(C_FILES):
        texts, code = c_texts(source)
    elif name.endswith(HASH_FILES):
        texts = hash_texts(source)
    elif name.endswith(".md"):
        texts = markdown_texts(source)
    finds = list(name_finds(name, code, source))
    for text, lines in texts:
        finds += [(lines[at], words) for at, words in clause_finds(text)]
    return sorted({f for f in finds if not any(name == file and words in f[1]
                                               for file, words in ALLOWED)})


def project_files():
    for root in ROOTS:
        if os.path.isfile(root):
            yield root
        for folder, _, names in sorted(os.walk(root)):
            for name in sorted(names):
                if name.endswith(C_FILES + HASH_FILES + (".md",)):
                    yield os.path.join(folder, name)


def self_test():
    cases = [
        ("Who waits helps.", True), ("On one core, who computes looks in.", True),
        ("Freed by whoever takes it.", True), ("It is clear that what is missing is measured.", True),
        ("It prints what\nis wrong.", True), ("Those who wait are told.", True),
        ("What only runs once is left out.", True),
        ("A guide for users who write plans.", False), ("Who waits for it?", False),
        ("It says what it does.", False), ("What the clock does is exact.", False),
        ("A message says what is wrong, and what is allowed.", False), ("It says little of what is left.", True),
        ("What is a plan?", False), ("what to do next", False), ("the worker whose turn it is", False),
    ]
    for text, banned in cases:
        for source, name in (("/* %s */\n" % text.replace("\n", "\n * "), "a.c"), (text, "a.md"),
                             ("# " + text.replace("\n", "\n# "), "a.sh")):
            if bool(finds_of("src/x/" + name, source)) != banned:
                sys.exit("check_prose: self-test: %r in %s: expected %s" %
                         (text, name, "a find" if banned else "none"))
    for name, source, banned in (("src/a/gang.h", "", True), ("src/search/draw.c", "", True),
                                 ("tests/draw.c", "", False), ("src/a/near.c", "int year;", False),
                                 ("src/a/b.c", "bell_ring(&b);", True), ("src/a/b.c", "n_turns = 1;", True),
                                 ("src/a/b.c", "/* it turns */ x = \"ear\";", False),
                                 ("docs/a.md", "    cleave x --wander 3", True)):
        if bool(finds_of(name, source)) != banned:
            sys.exit("check_prose: self-test: %s, %r: expected %s" %
                     (name, source, "a find" if banned else "none"))


self_test()
n_finds = 0
for name in project_files():
    finds = finds_of(name, open(name, encoding="utf-8").read())
    n_finds += len(finds)
    for line, words in finds:
        print("%s:%d: %s" % (name, line, words))
sys.exit(1 if n_finds else 0)
PYTHON
