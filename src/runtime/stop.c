#include "runtime/stop.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

/* Lock-free, so a signal's handler may write it while other threads read. */
static atomic_int requested;
static_assert(ATOMIC_INT_LOCK_FREE == 2, "needed in a signal handler");

static void remember(int signal_number)
{
    atomic_store(&requested, signal_number);
}

static enum status install(int flags)
{
    static const int signals[] = {SIGTERM, SIGINT};
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        struct sigaction action = {.sa_handler = remember, .sa_flags = flags | SA_RESTART};
        (void)sigemptyset(&action.sa_mask);
        if (sigaction(signals[i], &action, NULL) != 0)
            return status_fail(STATUS_FAILED, "cannot handle %s: %s", stop_signal_name(signals[i]),
                               strerror(errno));
    }
    return STATUS_OK;
}

/* One-shot: whoever sends it twice wants the process gone, saved or not. */
enum status stop_install(void)
{
    return install((int)SA_RESETHAND);
}

enum status stop_install_guarded(void)
{
    return install(0);
}

int stop_requested(void)
{
    return atomic_load(&requested);
}

const char *stop_signal_name(int signal_number)
{
    static _Thread_local char text[24];
    switch (signal_number) {
    case SIGTERM:
        return "SIGTERM";
    case SIGINT:
        return "SIGINT";
    default:
        (void)snprintf(text, sizeof text, "signal %d", signal_number);
        return text;
    }
}

void stop_clear(void)
{
    atomic_store(&requested, 0);
}
