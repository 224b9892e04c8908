#include "base/log.h"

#include "base/printable.h"
#include "base/style.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

static enum log_level level = LOG_WARN;
static atomic_bool
    progress_shown;         /* several threads of a library's caller may end a line at once */
static bool shows_progress; /* the program's; a library has no terminal of its own */
static void (*sink)(void *user, const char *line);
static void *sink_user;

void log_set_level(enum log_level new_level)
{
    level = new_level;
}

void log_allow_progress(void)
{
    shows_progress = true;
}

void log_set_sink(void (*write)(void *user, const char *line), void *user)
{
    sink = write;
    sink_user = user;
}

void log_progress_end(void)
{
    if (atomic_exchange(&progress_shown, false))
        (void)fputs("\r\033[K", stderr);
}

static void print_line(enum log_level least, const char *prefix, enum style style,
                       const char *format, va_list args)
{
    char raw[2048], line[sizeof raw];
    if (level < least)
        return;
    (void)vsnprintf(raw, sizeof raw, format, args);
    printable_copy(line, sizeof line, raw);
    if (sink) {
        sink(sink_user, line);
        return;
    }
    log_progress_end();
    (void)fprintf(stderr, "cleave: %s%s%s%s\n", *prefix ? style_begin(stderr, style) : "", prefix,
                  *prefix ? style_end(stderr) : "", line);
}

void log_warn(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    print_line(LOG_WARN, "warning: ", STYLE_WARNING, format, args);
    va_end(args);
}

void log_note(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    print_line(LOG_WARN, "", STYLE_PLAIN, format, args);
    va_end(args);
}

void log_info(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    print_line(LOG_INFO, "", STYLE_PLAIN, format, args);
    va_end(args);
}

void log_debug(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    print_line(LOG_DEBUG, "debug: ", STYLE_PLAIN, format, args);
    va_end(args);
}

/* A line that the terminal breaks could not be rewritten. Not within a character of several bytes.
 */
static void cut_to_columns(char *line, int columns)
{
    size_t n = 0, most = columns > 0 ? (size_t)columns : 0, length = strlen(line);
    if (length <= most)
        return;
    for (n = most; n > 0 && ((unsigned char)line[n] & 0xC0) == 0x80;)
        n--;
    line[n] = '\0';
}

void log_progress(const char *format, ...)
{
    if (!shows_progress || level == LOG_QUIET || sink || !style_can_rewrite(stderr))
        return;
    char raw[512], line[sizeof raw];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(raw, sizeof raw, format, args);
    va_end(args);
    printable_copy(line, sizeof line, raw);
    cut_to_columns(line, style_columns(stderr) - 1);
    (void)fprintf(stderr, "\r\033[K%s", line);
    (void)fflush(stderr);
    atomic_store(&progress_shown, true);
}
