/* Decides which form of text describes a machine. */
#include "machine/builder.h"

#include "base/text.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

static const char synthetic_prefix[] = "synthetic:";

/* JSON, or hwloc's XML. */
static enum status parse_file(const char *path, struct machine **out)
{
    char *text;
    size_t n_bytes;
    TRY(text_read_file(path, "machine", &text, &n_bytes));
    enum status st = text[strspn(text, " \t\r\n\v\f")] == '<'
                         ? machine_parse_xml(text, n_bytes, path, out)
                         : machine_parse_json(text, n_bytes, path, out);
    free(text);
    return st;
}

/* ---- names ---- */

static enum status parse_known(const struct machine_file *file, struct machine **out)
{
    char where[120];
    (void)snprintf(where, sizeof where, "machines/%s.json", file->name);
    return machine_parse_json(file->text, file->n_bytes, where, out);
}

/* "p100", "4xp100", "4p100", "4:p100": names devices, but not their nodes. */
static enum status check_kind(const char *text, arena *memory)
{
    const char *const *kinds;
    size_t digits = strspn(text, "0123456789");
    const char *kind = text + digits + (digits > 0 && strchr("xX:*", text[digits]) ? 1 : 0);
    int n = digits > 0 && digits < 5 ? atoi(text) : 1;
    TRY(machine_kind_names(memory, &kinds));
    while (*kinds && strcasecmp(*kinds, kind) != 0)
        kinds++;
    if (!*kinds)
        return STATUS_OK;
    if (n > 1)
        return status_fail(STATUS_USAGE,
                           "machine '%.80s': is that 1x%d:%s, one node with %d of them, or "
                           "%dx1:%s, %d nodes with one each?",
                           text, n, *kinds, n, n, *kinds, n);
    return status_fail(STATUS_USAGE,
                       "machine '%.80s': how many? 1x1:%s is one of them, 4x8:%s is 4 nodes with "
                       "8 each",
                       text, *kinds, *kinds);
}

/* An unknown word: the message says what it might mean. */
static enum status fail_word(const char *text)
{
    arena *memory;
    const char *const *names;
    char list[400];
    TRY(arena_create(&memory));
    enum status st;
    TRY_GOTO(st, machine_names(memory, &names), out);
    (void)text_list(list, sizeof list, names);
    TRY_GOTO(st, check_kind(text, memory), out);
    const char *near = text_nearest(text, names);
    st =
        status_fail(STATUS_USAGE,
                    "unknown machine '%.80s'%s%s%s (a machine is local, a file, a string like "
                    "4x4:p100, or one of: %s)",
                    text, near ? ": did you mean '" : "", near ? near : "", near ? "'?" : "", list);
out:
    arena_destroy(memory);
    return st;
}

static bool looks_like_path(const char *text)
{
    size_t n = strlen(text);
    return strchr(text, '/') || (n > 5 && !strcmp(text + n - 5, ".json")) ||
           (n > 4 && !strcmp(text + n - 4, ".xml"));
}

/* Whether it looks like a machine string: "4x4:p100", "4x4", "intra=15GB/s"; but "4x4.json" is a
 * file. */
static bool looks_like_string(const char *text)
{
    const char *mark = strpbrk(text, ":=/");
    if (mark && *mark == '=')
        return true;
    if (!isdigit((unsigned char)text[0]))
        return false;
    return (mark && *mark == ':') || strspn(text, "0123456789xX") == strlen(text);
}

bool machine_is_file(const char *text)
{
    bool other = !strcmp(text, "local") || text[0] == '{' || machine_find_file(text) ||
                 !strncmp(text, synthetic_prefix, strlen(synthetic_prefix)) ||
                 looks_like_string(text);
    return !other && (looks_like_path(text) || (*text && access(text, R_OK) == 0));
}

enum status machine_parse(const char *text, struct machine **out)
{
    if (!strcmp(text, "local"))
        return machine_discover(1, out);
    if (text[0] == '{')
        return machine_parse_json(text, strlen(text), NULL, out);
    if (!strncmp(text, synthetic_prefix, strlen(synthetic_prefix)))
        return machine_parse_synthetic(text, out);
    const struct machine_file *known = machine_find_file(text);
    if (known)
        return parse_known(known, out);
    if (looks_like_string(text))
        return machine_parse_string(text, out);
    if (machine_is_file(text))
        return parse_file(text, out);
    return fail_word(text);
}
