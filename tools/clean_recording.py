"""Makes a recording of script(1) small and free of what is no one's business:

    clean_recording.py TYPESCRIPT TIMING NEW-TYPESCRIPT NEW-TIMING

Lines of apt and dpkg that name servers or say what happens to each of hundreds of packages are left
out; the time they took stays, as a pause. Of progress lines that are rewritten in place one in half a
second is kept, and writes closer together than a twentieth of a second become one.
"""
import re
import sys

LEFT_OUT = re.compile(rb"^(Get:|Hit:|Ign:|Selecting previously|Preparing to unpack|Unpacking |Setting up |"
                      rb"\(Reading database|Processing triggers|debconf: |update-alternatives: |"
                      rb"Created symlink|Creating config)")
LISTS = re.compile(rb"^(The following |Suggested packages:|Recommended packages:)")
TOGETHER_S = 0.05
REWRITTEN_S = 0.5


def read(typescript, timing):
    """Lines (or what a carriage return ends) with the time at which each was complete."""
    with open(typescript, "rb") as file:
        text = file.read()
    at = text.index(b"\n") + 1  # "Script started on ..."
    clock, line = 0.0, b""
    with open(timing, encoding="ascii") as file:
        for entry in file:
            delay, n = entry.split()[-2:]
            clock += float(delay)
            parts = re.split(rb"(?<=[\r\n])(?!\n)", text[at:at + int(n)])
            at += int(n)
            for part in parts:
                line += part
                if line.endswith((b"\n", b"\r")):
                    yield clock, line
                    line = b""
    if line:
        yield clock, line


def write(lines, typescript, timing):
    with open(typescript, "wb") as text, open(timing, "w", encoding="ascii") as times:
        text.write(b"Script started\n")
        shown = due = 0.0
        waiting = b""

        def put():
            times.write(f"{due - shown:.3f} {len(waiting)}\n")
            text.write(waiting)

        for clock, line in lines:
            if waiting and clock - due > TOGETHER_S:
                put()
                shown, waiting = due, b""
            due = clock if not waiting else due
            waiting += line
        if waiting:
            put()


def keep(lines):
    listing = False  # the names of packages, after "The following ..."
    progress = -1.0
    for clock, line in lines:
        listing = LISTS.match(line) or (listing and line.startswith(b"  "))
        if listing or LEFT_OUT.match(line):
            continue
        if line.endswith(b"\r"):
            if clock - progress < REWRITTEN_S:
                continue
            progress = clock
        yield clock, line


def main():
    typescript, timing, new_typescript, new_timing = sys.argv[1:]
    write(keep(read(typescript, timing)), new_typescript, new_timing)


main()
