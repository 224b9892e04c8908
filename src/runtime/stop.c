#include "runtime/stop.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

static volatile sig_atomic_t requested;

static void remember(int signal_number)
{
    requested = signal_number;
}

enum status stop_install(void)
{
    static const int signals[] = {SIGTERM, SIGINT};
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        /* One-shot: whoever sends it twice wants the process gone, saved or not. */
        struct sigaction action = {.sa_handler = remember,
                                   .sa_flags = (int)SA_RESETHAND | SA_RESTART};
        (void)sigemptyset(&action.sa_mask);
        if (sigaction(signals[i], &action, NULL) != 0)
            return status_fail(STATUS_FAILED, "cannot handle %s: %s", stop_signal_name(signals[i]),
                               strerror(errno));
    }
    return STATUS_OK;
}

int stop_requested(void)
{
    return requested;
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
    requested = 0;
}
