#include "runtime/guard.h"

#include "base/log.h"
#include "comm/comm.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { SIGNAL_EXIT = 128 }; /* a shell's way to say which signal ended a program */

static const int passed_on[] = {SIGTERM, SIGINT, SIGUSR1, SIGUSR2};

struct guard {
    int worker;
    pid_t child;
    pid_t launcher;
    bool asked_to_stop[NSIG];
};

/* ps shows the arguments' memory, which lies in one piece behind the program's name: it is
 * overwritten, as this process needs no argument any more. */
static void set_title(int worker)
{
    char title[64];
    (void)snprintf(title, sizeof title, "cleave: guard of worker %d", worker);
    (void)prctl(PR_SET_NAME, "cleave: guard", 0, 0, 0);
    FILE *f = fopen("/proc/self/cmdline", "r");
    if (!f)
        return;
    size_t room = 0;
    while (getc(f) != EOF)
        room++;
    (void)fclose(f);
    if (room == 0)
        return;
    memset(program_invocation_name, 0, room);
    (void)snprintf(program_invocation_name, room, "%s", title);
}

/* A worker without its guard would be left over when the launcher ends the job: the kernel kills it
 * with the guard. The guard may have died before it was asked to. */
static void become_worker(pid_t guard, const sigset_t *mask)
{
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    if (getppid() != guard)
        _exit(STATUS_LOST);
    (void)sigprocmask(SIG_SETMASK, mask, NULL);
}

_Noreturn static void report_and_exit(const struct guard *g, int how)
{
    if (WIFEXITED(how))
        _exit(WEXITSTATUS(how));
    int number = WTERMSIG(how);
    const char *name = sigabbrev_np(number);
    (void)fprintf(stderr, "cleave: worker %d was lost: killed by SIG%s%s\n", g->worker,
                  name ? name : "?", number == SIGKILL ? " (out of memory?)" : "");
    _exit(STATUS_LOST);
}

_Noreturn static void end_worker(const struct guard *g, int code)
{
    (void)kill(g->child, SIGKILL);
    (void)waitpid(g->child, NULL, 0);
    _exit(code);
}

/* The first SIGTERM or SIGINT asks the worker to stop in good order, a second one ends it at once
 * (runtime/stop.h). The launcher may send signals to the worker, too, which does not mind.
 */
static void pass_on(struct guard *g, int number)
{
    bool stops = number == SIGTERM || number == SIGINT;
    if (stops && g->asked_to_stop[number])
        end_worker(g, SIGNAL_EXIT + number);
    g->asked_to_stop[number] = stops;
    (void)kill(g->child, number);
}

/* A launcher that was killed cannot end its job. Its death is looked for every second: the signal
 * that PR_SET_PDEATHSIG sends comes also when only the launcher's thread that started us ends. */
_Noreturn static void watch(struct guard *g, const sigset_t *signals)
{
    const struct timespec a_second = {.tv_sec = 1};
    for (;;) {
        int number = sigtimedwait(signals, NULL, &a_second), how;
        if (waitpid(g->child, &how, WNOHANG) == g->child)
            report_and_exit(g, how);
        if (number > 0 && number != SIGCHLD)
            pass_on(g, number);
        if (getppid() != g->launcher) {
            (void)fprintf(stderr, "cleave: worker %d: the process that started it is gone\n",
                          g->worker);
            end_worker(g, STATUS_LOST);
        }
    }
}

bool guard_start(void)
{
    struct guard g = {.launcher = getppid()};
    int size;
    if (!comm_mpi_launched(&g.worker, &size))
        return false;
    sigset_t signals, before;
    (void)sigemptyset(&signals);
    (void)sigaddset(&signals, SIGCHLD);
    for (size_t i = 0; i < sizeof passed_on / sizeof *passed_on; i++)
        (void)sigaddset(&signals, passed_on[i]);
    (void)sigprocmask(SIG_BLOCK, &signals, &before); /* until somebody waits for them */
    (void)signal(SIGCHLD, SIG_DFL); /* a launcher that ignores its own leaves that to us */
    pid_t guard = getpid();
    g.child = fork();
    if (g.child > 0) {
        set_title(g.worker);
        watch(&g, &signals);
    }
    if (g.child == 0) {
        become_worker(guard, &before);
        return true;
    }
    log_warn("cannot start a guard for worker %d: %s; its loss may go unreported", g.worker,
             strerror(errno));
    (void)sigprocmask(SIG_SETMASK, &before, NULL);
    return false;
}
