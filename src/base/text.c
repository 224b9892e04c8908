#include "base/text.h"

#include "base/numbers.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { WORD_MAX = 63, BEGINNING = 3, FILE_BYTES_MAX = 64 << 20 };
enum { LINE_BYTES = 1 << 10, LINE_BYTES_MAX = 16 << 20 };

/* Optimal string alignment distance: three rows of the dynamic programme suffice. */
static int edit_distance(const char *a, const char *b)
{
    int la = (int)strnlen(a, WORD_MAX), lb = (int)strnlen(b, WORD_MAX);
    int rows[3][WORD_MAX + 1];
    for (int j = 0; j <= lb; j++)
        rows[0][j] = j;
    for (int i = 1; i <= la; i++) {
        int *now = rows[i % 3];
        const int *above = rows[(i + 2) % 3], *above2 = rows[(i + 1) % 3];
        now[0] = i;
        for (int j = 1; j <= lb; j++) {
            int ca = tolower((unsigned char)a[i - 1]), cb = tolower((unsigned char)b[j - 1]);
            int best = int_min(above[j] + 1, now[j - 1] + 1);
            best = int_min(best, above[j - 1] + (ca != cb));
            if (i > 1 && j > 1 && ca == tolower((unsigned char)b[j - 2]) &&
                cb == tolower((unsigned char)a[i - 2]))
                best = int_min(best, above2[j - 2] + 1);
            now[j] = best;
        }
    }
    return rows[la % 3][lb];
}

/* How long the shorter one is, if the other begins with it; dashes before do not count. */
static int common_beginning(const char *a, const char *b)
{
    a += strspn(a, "-");
    b += strspn(b, "-");
    size_t la = strlen(a), lb = strlen(b), n = la < lb ? la : lb;
    return strncasecmp(a, b, n) == 0 ? (int)n : 0;
}

static const char *begins_alike(const char *word, const char *const *names)
{
    const char *best = NULL;
    int most = BEGINNING - 1;
    for (; *names; names++) {
        int n = common_beginning(word, *names);
        if (n > most) {
            most = n;
            best = *names;
        }
    }
    return best;
}

/* A name to which a word was added: --batch-size. */
static const char *is_extended(const char *word, const char *const *names)
{
    for (; *names; names++) {
        size_t length = strlen(*names);
        if (length > 0 && strncasecmp(word, *names, length) == 0 && word[length] &&
            strchr("-_ ", word[length]))
            return *names;
    }
    return NULL;
}

/* Whether the name is the word and more behind a dash: a100-40. */
static bool extends(const char *name, const char *word)
{
    size_t length = strlen(word);
    return length > 0 && strncasecmp(name, word, length) == 0 && name[length] == '-';
}

const char *text_nearest(const char *word, const char *const *names)
{
    const char *const *first = names;
    const char *extended = is_extended(word, names);
    if (extended)
        return extended;
    for (const char *const *name = names; *name; name++)
        if (extends(*name, word))
            return *name;
    const char *best = NULL;
    int limit = (int)strnlen(word, WORD_MAX) / 3;
    int best_distance = (limit < 1 ? 1 : limit) + 1;
    for (; *names; names++) {
        int d = edit_distance(word, *names);
        if (d < best_distance) {
            best_distance = d;
            best = *names;
        }
    }
    return best ? best : begins_alike(word, first);
}

int text_find(const char *word, const char *const *names)
{
    for (int i = 0; names[i]; i++)
        if (strcmp(names[i], word) == 0)
            return i;
    return -1;
}

const char *text_list(char *buffer, size_t size, const char *const *names)
{
    size_t used = 0;
    buffer[0] = '\0';
    for (const char *const *name = names; *name; name++) {
        const char *comma = name == names ? "" : ", ";
        if (used + strlen(comma) + strlen(*name) + sizeof ", ..." > size) {
            (void)snprintf(buffer + used, size - used, "%s...", comma);
            break;
        }
        used += (size_t)snprintf(buffer + used, size - used, "%s%s", comma, *name);
    }
    return buffer;
}

const char *text_unknown(char *buffer, size_t size, const char *what, const char *word,
                         const char *const *names)
{
    const char *near = text_nearest(word, names);
    char others[120] = "";
    for (const char *const *name = names; *name; name++)
        if (near && *name != near && extends(near, word) && extends(*name, word)) {
            size_t used = strlen(others);
            (void)snprintf(others + used, sizeof others - used, " or '%.40s'", *name);
        }
    int n = snprintf(buffer, size, "unknown %s '%.80s'%s%s%s%s%s (allowed: ", what, word,
                     near ? ": did you mean '" : "", near ? near : "", near ? "'" : "", others,
                     near ? "?" : "");
    size_t used = n > 0 ? (size_t)n : 0;
    if (used + sizeof ", ...)" >= size)
        return buffer;
    (void)text_list(buffer + used, size - used - 1, names);
    size_t end = strlen(buffer);
    buffer[end] = ')';
    buffer[end + 1] = '\0';
    return buffer;
}

enum status text_fail_unknown(const char *what, const char *word, const char *const *names)
{
    char text[800];
    return status_fail(STATUS_USAGE, "%s", text_unknown(text, sizeof text, what, word, names));
}

enum status text_parse_integer(const char *what, const char *text, int64_t least, int64_t most,
                               int64_t *out)
{
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (end == text || *end || errno || value < least || value > most)
        return status_fail(STATUS_USAGE, "%s '%.80s' must be a whole number from %lld to %lld",
                           what, text, (long long)least, (long long)most);
    *out = value;
    return STATUS_OK;
}

bool text_next_word(const char **list, char *word, size_t size)
{
    if (!*list)
        return false;
    size_t length = strcspn(*list, ",");
    (void)snprintf(word, size, "%.*s", (int)length, *list);
    *list = (*list)[length] ? *list + length + 1 : NULL;
    return true;
}

enum status text_parse_integers(const char *what, const char *list, int64_t least, int64_t most,
                                int room, int64_t *numbers, int *n)
{
    char word[32];
    for (*n = 0; text_next_word(&list, word, sizeof word); ++*n) {
        if (*n == room)
            return status_fail(STATUS_USAGE, "%s takes at most %d numbers", what, room);
        TRY(text_parse_integer(what, word, least, most, &numbers[*n]));
    }
    return STATUS_OK;
}

enum status text_parse_real(const char *what, const char *text, double least, double most,
                            double *out)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end || !isfinite(value) || value < least || value > most)
        return status_fail(STATUS_USAGE, "%s '%.80s' must be a number from %g to %g%s", what, text,
                           least, most, strchr(text, ',') ? ", with a point for a comma" : "");
    *out = value;
    return STATUS_OK;
}

/* Block by block, because a pipe has no size. */
enum status text_read_file(const char *path, const char *what, char **out, size_t *n_bytes)
{
    char *text = NULL, block[4096];
    size_t size = 0;
    FILE *f = fopen(path, "rb");
    if (!f)
        return status_fail(STATUS_FAILED, "%s: cannot open: %s", path, strerror(errno));
    FILE *copy = open_memstream(&text, &size);
    bool fine = copy;
    size_t total = 0;
    for (size_t n; fine && (n = fread(block, 1, sizeof block, f)) > 0;) {
        total += n;
        fine = fwrite(block, 1, n, copy) == n && total <= FILE_BYTES_MAX;
    }
    fine = fine && !ferror(f);
    if (copy && fclose(copy) != 0)
        fine = false;
    (void)fclose(f);
    if (!fine) {
        free(text);
        if (total > FILE_BYTES_MAX)
            return status_fail_content("%s: cannot read it as a %s: more than %d MiB", path, what,
                                       FILE_BYTES_MAX >> 20);
        return status_fail(STATUS_FAILED, "%s: cannot read it as a %s", path, what);
    }
    *out = text;
    *n_bytes = size;
    return STATUS_OK;
}

enum status text_next_line(FILE *f, struct text_line *line)
{
    line->length = 0;
    line->number++;
    for (int c; (c = getc_unlocked(f)) != EOF;) {
        if (line->length + 2 > line->capacity) {
            size_t capacity = line->capacity ? 2 * line->capacity : LINE_BYTES;
            char *text = capacity <= LINE_BYTES_MAX ? realloc(line->text, capacity) : NULL;
            if (!text && capacity > LINE_BYTES_MAX)
                return status_fail_content("%s:%lld: a line of more than %d MiB: this is "
                                           "no text that Cleave wrote",
                                           line->file, line->number, LINE_BYTES_MAX >> 20);
            if (!text)
                return status_no_memory(capacity);
            line->text = text;
            line->capacity = capacity;
        }
        line->text[line->length++] = (char)c;
        if (c == '\n')
            break;
    }
    if (line->length > 0)
        line->text[line->length] = '\0';
    if (ferror(f))
        return status_fail(STATUS_FAILED, "%s: cannot read: %s", line->file, strerror(errno));
    return STATUS_OK;
}

static const char *scaled(char *buffer, size_t size, double value, const char *const *units,
                          int n_units)
{
    int u = 0;
    while (u + 1 < n_units && fabs(value) >= 999.5) {
        value /= 1000;
        u++;
    }
    int digits = u == 0 || fabs(value) >= 99.95 ? 0 : fabs(value) >= 9.995 ? 1 : 2;
    (void)snprintf(buffer, size, "%.*f%s", digits, value, units[u]);
    return buffer;
}

const char *text_bytes(char *buffer, size_t size, double n_bytes)
{
    static const char *const units[] = {" B", " KB", " MB", " GB", " TB", " PB"};
    return scaled(buffer, size, n_bytes, units, 6);
}

const char *text_count(char *buffer, size_t size, double count)
{
    static const char *const units[] = {"", " k", " M", " G", " T", " P"};
    return scaled(buffer, size, count, units, 6);
}

const char *text_seconds(char *buffer, size_t size, double seconds)
{
    if (seconds >= 3600)
        (void)snprintf(buffer, size, "%d h %02d min", (int)(seconds / 3600),
                       (int)(seconds / 60) % 60);
    else if (seconds >= 100)
        (void)snprintf(buffer, size, "%d min %02d s", (int)(seconds / 60), (int)seconds % 60);
    else if (seconds >= 1)
        (void)snprintf(buffer, size, "%.2f s", seconds);
    else if (seconds >= 1e-3)
        (void)snprintf(buffer, size, "%.2f ms", seconds * 1e3);
    else
        (void)snprintf(buffer, size, "%.2f us", seconds * 1e6);
    return buffer;
}

const char *text_duration(char *buffer, size_t size, double seconds)
{
    static const struct {
        double least_s, unit_s;
        const char *name;
    } units[] = {{2 * 86400, 86400, "days"}, {5400, 3600, "h"}, {100, 60, "min"}};
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (seconds >= units[i].least_s) {
            (void)snprintf(buffer, size, "%.1f %s", seconds / units[i].unit_s, units[i].name);
            return buffer;
        }
    return text_seconds(buffer, size, seconds);
}
