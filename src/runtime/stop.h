/* stop.h: asking a run to end in good order.
 *
 * SIGTERM and SIGINT set a flag that the trainer looks at after each step; it then saves and
 * returns STATUS_STOPPED. For two seconds further signals are the same request: timeout(1), for
 * one, signals its child and then the child's group. After that one more ends the process at once,
 * unless a guard counts them (runtime/guard.h). A thread of its own takes the signals; those that
 * compute must not.
 *
 *     stop_install();                 // the program, once, before it trains
 *     ...
 *     if (stop_requested())
 *         save and return STATUS_STOPPED;
 */
#ifndef CLEAVE_RUNTIME_STOP_H
#define CLEAVE_RUNTIME_STOP_H

#include "base/status.h"

#include <stdint.h>

#define STOP_SAME_REQUEST_NS INT64_C(2000000000)

/* Installs the handlers for SIGTERM and SIGINT and starts the thread that they run in. The calling
 * thread, and those that it starts afterwards, block both signals: install before anything
 * computes. A signal sent to one thread (raise) is not heard. After a fork the child must install
 * again. */
enum status stop_install(void) MUST_USE;

/* The same for a process that a guard passes signals on to: it may get each of them twice, from the
 * guard and from the launcher, so only the guard can know a second one. */
enum status stop_install_guarded(void) MUST_USE;

/* The number of the signal that asked for it, 0 if none did. Any thread may ask. */
int stop_requested(void);

/* Asks as that signal would; the first request stays. For SIGPIPE, which the program ignores: a
 * write that fails with EPIPE says that nobody wants the results any more. The signal that comes
 * next is a first one, and lets the run save. */
void stop_request(int signal_number);

/* "SIGTERM", "SIGINT", "SIGPIPE (...)" or "signal 10". */
const char *stop_signal_name(int signal_number);

/* Forgets a request, ends the thread, and restores the default actions of the signals. Called by
 * the thread that installed. */
void stop_remove(void);

#endif
