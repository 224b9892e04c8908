#include "base/status.h"

#include "base/printable.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Per thread, static: recording an error must never need memory. */
static _Thread_local struct status_error recorded;
static _Thread_local char trace[1024];
static _Thread_local size_t trace_length;

static void record(enum status status, bool of_content, const char *format, va_list args)
{
    char message[sizeof recorded.message];
    if (recorded.status != STATUS_OK)
        return;
    (void)vsnprintf(message, sizeof message, format, args);
    printable_copy(recorded.message, sizeof recorded.message, message);
    recorded.status = status;
    recorded.of_content = of_content;
    trace_length = 0;
    trace[0] = '\0';
}

enum status status_fail(enum status status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    record(status, false, format, args);
    va_end(args);
    return status;
}

enum status status_fail_content(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    record(STATUS_FAILED, true, format, args);
    va_end(args);
    return STATUS_FAILED;
}

enum status status_no_memory(size_t n_bytes)
{
    return status_fail(STATUS_FAILED, "out of memory (asked for %zu bytes)", n_bytes);
}

enum status status_trace(enum status status, const char *file, int line)
{
    int n = snprintf(trace + trace_length, sizeof trace - trace_length, "%s:%d\n", file, line);
    if (n > 0 && (size_t)n < sizeof trace - trace_length)
        trace_length += (size_t)n;
    else
        trace[trace_length] = '\0'; /* full: keep the innermost entries */
    return status;
}

const char *status_message(void)
{
    return recorded.status == STATUS_OK ? "" : recorded.message;
}

const char *status_trace_text(void)
{
    return recorded.status == STATUS_OK ? "" : trace;
}

bool status_is_of_content(void)
{
    return recorded.status != STATUS_OK && recorded.of_content;
}

void status_clear(void)
{
    recorded.status = STATUS_OK;
    recorded.of_content = false;
    recorded.message[0] = '\0';
    trace_length = 0;
    trace[0] = '\0';
}

void status_take(enum status status, struct status_error *error)
{
    *error = recorded;
    if (error->status == STATUS_OK)
        error->status = status;
    status_clear();
}

enum status status_give(const struct status_error *error)
{
    if (error->status == STATUS_OK)
        return STATUS_OK;
    bool first = recorded.status == STATUS_OK;
    enum status st = status_fail(error->status, "%s", error->message);
    recorded.of_content = first ? error->of_content : recorded.of_content;
    return st;
}
