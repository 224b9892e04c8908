#include "runtime/stop.h"

#include "base/timer.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const int signals[] = {SIGTERM, SIGINT};
enum { N_SIGNALS = sizeof signals / sizeof *signals };

/* Lock-free, so a signal's handler may write it while other threads read. */
static atomic_int requested;
static_assert(ATOMIC_INT_LOCK_FREE == 2, "needed in a signal handler");

static int64_t signalled_ns; /* when the first signal came, 0: none did; of the handler */
static bool guarded;

/* The thread that takes the signals. No thread that computes may: matrix products of oneDNN up to
 * 3.11.1 let the stack pointer point into the heap, and the kernel would put the handler's frame
 * there, over whatever lies below (github.com/uxlfoundation/oneDNN/issues/4845). */
static struct {
    pid_t process; /* that started it: a fork has none of its parent's threads; 0: none did */
    pthread_t thread;
    sem_t end;
} listener;

/* With the default action the signal ends the process as soon as its handler has returned. */
static void end_at_once(int signal_number)
{
    static const char line[] = "cleave: a second signal: it ends at once, and saves nothing more\n";
    ssize_t written = write(STDERR_FILENO, line, sizeof line - 1);
    (void)written; /* there is nobody to tell */
    (void)signal(signal_number, SIG_DFL);
    (void)raise(signal_number);
}

static void remember(int signal_number)
{
    int64_t now_ns = timer_now_ns();
    if (signalled_ns == 0) { /* though a closed pipe may have asked before: that was no signal */
        signalled_ns = now_ns;
        stop_request(signal_number);
    } else if (!guarded && now_ns - signalled_ns > STOP_SAME_REQUEST_NS) {
        end_at_once(signal_number);
    }
}

static sigset_t signal_set(void)
{
    sigset_t set;
    (void)sigemptyset(&set);
    for (int i = 0; i < N_SIGNALS; i++)
        (void)sigaddset(&set, signals[i]);
    return set;
}

/* Handlers run inside the wait, which goes on afterwards. */
static void *listen_for_signals(void *unused)
{
    sigset_t set = signal_set();
    (void)unused;
    (void)pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    while (sem_wait(&listener.end) != 0)
        continue;
    return NULL;
}

/* Threads that this one starts from now on leave the signals to the listener as well. */
static enum status start_listener(void)
{
    sigset_t all, before, set = signal_set();
    if (listener.process == getpid())
        return STATUS_OK;
    (void)sigfillset(&all);
    (void)sem_init(&listener.end, 0, 0);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&listener.thread, NULL, listen_for_signals, NULL);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error)
        return status_fail(STATUS_FAILED, "cannot start a thread for signals: %s", strerror(error));
    (void)pthread_sigmask(SIG_BLOCK, &set, NULL);
    listener.process = getpid();
    return STATUS_OK;
}

static enum status install(bool by_guard)
{
    guarded = by_guard;
    for (int i = 0; i < N_SIGNALS; i++) {
        struct sigaction action = {
            .sa_handler = remember, .sa_mask = signal_set(), .sa_flags = SA_RESTART};
        if (sigaction(signals[i], &action, NULL) != 0)
            return status_fail(STATUS_FAILED, "cannot handle %s: %s", stop_signal_name(signals[i]),
                               strerror(errno));
    }
    return start_listener();
}

enum status stop_install(void)
{
    return install(false);
}

enum status stop_install_guarded(void)
{
    return install(true);
}

int stop_requested(void)
{
    return atomic_load(&requested);
}

void stop_request(int signal_number)
{
    int none = 0;
    (void)atomic_compare_exchange_strong(&requested, &none, signal_number);
}

const char *stop_signal_name(int signal_number)
{
    static _Thread_local char text[24];
    switch (signal_number) {
    case SIGTERM:
        return "SIGTERM";
    case SIGINT:
        return "SIGINT";
    case SIGPIPE:
        return "SIGPIPE (nobody reads standard output)";
    default:
        (void)snprintf(text, sizeof text, "signal %d", signal_number);
        return text;
    }
}

void stop_remove(void)
{
    sigset_t set = signal_set();
    for (int i = 0; i < N_SIGNALS; i++)
        (void)signal(signals[i], SIG_DFL);
    if (listener.process == getpid()) {
        (void)sem_post(&listener.end);
        (void)pthread_join(listener.thread, NULL);
        (void)sem_destroy(&listener.end);
        listener.process = 0;
    }
    (void)pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    signalled_ns = 0;
    atomic_store(&requested, 0);
}
