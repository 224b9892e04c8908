/* status.h: how functions report failure.
 *
 * A function that can fail returns an enum status, hands results back through pointers, and must
 * have its status looked at. The message for the person is kept per thread: the first failure
 * writes it (status_fail), every caller on the way up only adds a line to the trace (TRY), so the
 * root cause gets printed.
 *
 *     enum status idx_open(const char *path, struct idx **out)
 *     {
 *         FILE *f = fopen(path, "rb");
 *         if (!f)
 *             return status_fail(STATUS_FAILED, "%s: cannot open: %s", path, strerror(errno));
 *         ...
 *         TRY(idx_read_header(f, &header));          // returns upwards on failure
 *         TRY_GOTO(st, idx_read_body(f, &body), out); // sets st and jumps on failure
 *     }
 *
 * Only src/cli turns a status into a process exit code (they are equal by construction).
 */
#ifndef CLEAVE_BASE_STATUS_H
#define CLEAVE_BASE_STATUS_H

#include <stdbool.h>
#include <stddef.h>

#define MUST_USE __attribute__((warn_unused_result))
#define PRINTF_LIKE(format_index, first_arg) \
    __attribute__((format(printf, format_index, first_arg)))

/* The values are the exit codes of the program. */
enum status {
    STATUS_OK = 0,
    STATUS_FAILED = 1,  /* a file, the system or the data is at fault */
    STATUS_USAGE = 2,   /* the request is at fault: unknown name, impossible value */
    STATUS_NO_FIT = 3,  /* the plan needs more memory than there is */
    STATUS_LOST = 4,    /* a worker was lost */
    STATUS_TIMEOUT = 5, /* a wait passed its deadline */
    STATUS_STOPPED = 6, /* asked to stop; state was saved */
};

/* Records the message as this thread's error unless one is recorded already (the first error
 * wins), and returns `status`. Control characters in it, which came with a name or a file, are made
 * visible (base/printable.h). */
enum status status_fail(enum status status, const char *format, ...) PRINTF_LIKE(2, 3) MUST_USE;

/* STATUS_FAILED because of what a file holds: to read it again would fail again, and where files
 * can be done without, this one can. Failures of the system on the way to the content (a file that
 * cannot be opened or read, memory that ran out) are status_fail's. */
enum status status_fail_content(const char *format, ...) PRINTF_LIKE(1, 2) MUST_USE;

/* The failure of an allocation of n_bytes: records it without allocating. */
enum status status_no_memory(size_t n_bytes) MUST_USE;

/* Adds "in FILE:LINE" to the trace of the recorded error; returns `status`. Used by TRY. */
enum status status_trace(enum status status, const char *file, int line);

/* The recorded message of this thread, "" if none. Valid until the next call on this thread. */
const char *status_message(void);

/* The recorded trace, innermost first, one "FILE:LINE" per line; "" if none. */
const char *status_trace_text(void);

/* Whether the recorded error came from status_fail_content. */
bool status_is_of_content(void);

/* Forgets the recorded error of this thread. */
void status_clear(void);

/* A copy of an error to carry from one thread to another. */
struct status_error {
    enum status status;
    bool of_content; /* what a file holds is at fault */
    char message[1024];
};
/* Takes the recorded error of this thread out into *error. */
void status_take(enum status status, struct status_error *error);
/* Records *error on this thread (first wins) and returns its status. */
enum status status_give(const struct status_error *error) MUST_USE;

#define TRY(expression)                                           \
    do {                                                          \
        enum status try_status_ = (expression);                   \
        if (try_status_ != STATUS_OK)                             \
            return status_trace(try_status_, __FILE__, __LINE__); \
    } while (0)

#define TRY_GOTO(variable, expression, label)                   \
    do {                                                        \
        (variable) = (expression);                              \
        if ((variable) != STATUS_OK) {                          \
            (void)status_trace((variable), __FILE__, __LINE__); \
            goto label;                                         \
        }                                                       \
    } while (0)

#endif
