#include "base/printable.h"

#include <stdio.h>
#include <string.h>

/* The bytes of the UTF-8 character at `at`; 0: it is none, or cut off. */
static size_t character_bytes(const unsigned char *at)
{
    unsigned char first = at[0];
    size_t n = first < 0x80                    ? 1
               : first >= 0xC2 && first < 0xE0 ? 2
               : (first & 0xF0) == 0xE0        ? 3
               : first >= 0xF0 && first < 0xF5 ? 4
                                               : 0;
    for (size_t i = 1; i < n; i++)
        if ((at[i] & 0xC0) != 0x80)
            return 0;
    bool overlong = (first == 0xE0 && at[1] < 0xA0) || (first == 0xF0 && at[1] < 0x90);
    bool beyond = (first == 0xED && at[1] >= 0xA0) || (first == 0xF4 && at[1] >= 0x90);
    return n > 1 && (overlong || beyond) ? 0 : n;
}

/* The same, but 0 for a control character, too. */
static size_t printable_bytes(const unsigned char *at)
{
    bool control = at[0] < 0x20 || at[0] == 0x7F || (at[0] == 0xC2 && at[1] < 0xA0);
    return control ? 0 : character_bytes(at);
}

bool printable_is(const char *text)
{
    const unsigned char *at = (const unsigned char *)text;
    while (*at && printable_bytes(at) > 0)
        at += printable_bytes(at);
    return !*at;
}

/* One byte that must not be printed. */
static size_t escape(unsigned char byte, char out[8])
{
    const char *letter = byte ? strchr("\nn\tt\rr", byte) : NULL;
    bool known = letter && byte < 0x20;
    return (size_t)(known ? snprintf(out, 8, "\\%c", letter[1])
                          : snprintf(out, 8, "\\x%02x", byte));
}

void printable_copy(char *out, size_t size, const char *text)
{
    const unsigned char *at = (const unsigned char *)text;
    size_t used = 0;
    while (*at) {
        char escaped[8];
        size_t n = printable_bytes(at), n_out = n > 0 ? n : escape(*at, escaped);
        if (used + n_out >= size)
            break;
        memcpy(out + used, n > 0 ? (const char *)at : escaped, n_out);
        used += n_out;
        at += n > 0 ? n : 1;
    }
    if (size > 0)
        out[used] = '\0';
}
