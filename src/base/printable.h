/* printable.h: text from outside, as it may stand in a message.
 *
 * Names of files, words of a command line and contents of files go into messages, and a terminal
 * obeys control characters. What every message passes (status_fail, base/log.h, base/output.h)
 * makes them visible:
 *
 *     char line[64];
 *     printable_copy(line, sizeof line, "a\x1b[31mb\n");    // a\x1b[31mb\n, in plain letters
 */
#ifndef CLEAVE_BASE_PRINTABLE_H
#define CLEAVE_BASE_PRINTABLE_H

#include <stdbool.h>
#include <stddef.h>

/* Copies as much of `text` as has room in `size` bytes. Control characters (of ASCII, and those of
 * Unicode from U+0080 to U+009F) and bytes that are not UTF-8 become \n, \t, \r or \xNN; no
 * character is cut in two. A copy of a copy is the same. Needs no memory. */
void printable_copy(char *out, size_t size, const char *text);

/* Whether it would copy the text as it is. */
bool printable_is(const char *text);

#endif
