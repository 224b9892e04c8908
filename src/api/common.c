/* Functions without a handle (version, errors, warnings, names), and those that all handles need.
 */
#include "api/handles.h"
#include "base/log.h"
#include "model/network.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* The public statuses are the inner ones. */
_Static_assert((int)CLEAVE_OK == (int)STATUS_OK, "statuses are the same");
_Static_assert((int)CLEAVE_FAILED == (int)STATUS_FAILED, "statuses are the same");
_Static_assert((int)CLEAVE_USAGE == (int)STATUS_USAGE, "statuses are the same");
_Static_assert((int)CLEAVE_NO_FIT == (int)STATUS_NO_FIT, "statuses are the same");
_Static_assert((int)CLEAVE_LOST == (int)STATUS_LOST, "statuses are the same");
_Static_assert((int)CLEAVE_TIMEOUT == (int)STATUS_TIMEOUT, "statuses are the same");
_Static_assert((int)CLEAVE_STOPPED == (int)STATUS_STOPPED, "statuses are the same");

const char *cleave_version(void)
{
    return CLEAVE_VERSION;
}

/* ---- errors ---- */

const char *cleave_error_message(void)
{
    return status_message();
}

const char *cleave_status_name(enum cleave_status status)
{
    static const char *const names[] = {
        [CLEAVE_OK] = "ok",           [CLEAVE_FAILED] = "failed",
        [CLEAVE_USAGE] = "usage",     [CLEAVE_NO_FIT] = "does not fit",
        [CLEAVE_LOST] = "lost",       [CLEAVE_TIMEOUT] = "timed out",
        [CLEAVE_STOPPED] = "stopped",
    };
    size_t i = (size_t)status;
    return i < sizeof names / sizeof *names ? names[i] : "unknown";
}

enum cleave_status api_end(enum status st)
{
    /* An error that was handled on the way is no error of this call. */
    if (st == STATUS_OK)
        status_clear();
    return (enum cleave_status)st;
}

enum status api_fail_null(const char *function, const char *argument)
{
    return status_fail(STATUS_USAGE, "%s: %s is NULL", function, argument);
}

/* ---- warnings ---- */

static void write_nothing(void *user, const char *line)
{
    (void)user;
    (void)line;
}

void cleave_set_log(void (*write)(void *user, const char *line), void *user)
{
    log_set_sink(write ? write : write_nothing, user);
}

/* ---- names ---- */

const char *const *cleave_network_names(void)
{
    return network_names();
}

enum { MOST_STRATEGIES = 64 };
static const char *strategies[MOST_STRATEGIES + 1];

static void list_strategies(void)
{
    const struct plan_strategy *s = plan_strategies();
    for (int i = 0; i < MOST_STRATEGIES && s[i].name; i++)
        strategies[i] = s[i].name;
}

const char *const *cleave_strategy_names(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, list_strategies);
    return strategies;
}

/* ---- memory and options ---- */

enum status api_alloc(size_t n_bytes, void *out)
{
    void *memory = calloc(1, n_bytes);
    if (!memory)
        return status_no_memory(n_bytes);
    *(void **)out = memory;
    return STATUS_OK;
}

enum status api_take_options(const void *options, size_t n_bytes, const char *defaults, void *to)
{
    size_t given;
    if (!options)
        return STATUS_OK;
    memcpy(&given, options, sizeof given);
    if (given < sizeof given || given > 4096)
        return status_fail(STATUS_USAGE, "the options have no size: begin with %s()", defaults);
    memcpy(to, options, given < n_bytes ? given : n_bytes);
    return STATUS_OK;
}

enum status api_check_range(const char *what, int64_t value, int64_t least, int64_t most)
{
    if (value < least || value > most)
        return status_fail(STATUS_USAGE, "%s is %lld, it must be %lld to %lld", what,
                           (long long)value, (long long)least, (long long)most);
    return STATUS_OK;
}
