#include "runtime/guard.h"

#include "base/log.h"
#include "base/timer.h"
#include "comm/comm.h"
#include "runtime/stop.h"

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

/* Workers that wait for a stopped one say so when their time is up; the guard leaves them this. */
static const double others_say_s = 2;

static const int passed_on[] = {SIGTERM, SIGINT, SIGUSR1, SIGUSR2};
/* These end the guard, and with it its worker, but with a word and an exit code. */
static const int ending[] = {SIGHUP, SIGQUIT, SIGILL,  SIGABRT, SIGBUS,
                             SIGFPE, SIGSEGV, SIGPIPE, SIGALRM};

struct guard {
    int worker;
    pid_t child;
    pid_t launcher;
    double timeout_s;
    int64_t asked_ns;   /* when it was first asked to stop; 0: it was not */
    bool child_stopped; /* by SIGSTOP */
    double stopped_s;   /* how long so far, by the guard's own seconds: it may be stopped, too */
};

static pid_t own_guard; /* of a worker */

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

static void wake_guard(void)
{
    if (own_guard && getppid() == own_guard)
        (void)kill(own_guard, SIGCONT);
}

/* A worker without its guard would be left over when the launcher ends the job: the kernel kills it
 * with the guard. The guard may have died before it was asked to. */
static void become_worker(pid_t guard, const sigset_t *mask)
{
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    if (getppid() != guard)
        _exit(STATUS_LOST);
    own_guard = guard;
    (void)atexit(wake_guard);
    (void)sigprocmask(SIG_SETMASK, mask, NULL);
}

static const char *name_signal(int number)
{
    const char *name = sigabbrev_np(number);
    return name ? name : "?";
}

_Noreturn static void end_worker(const struct guard *g, int code)
{
    (void)kill(g->child, SIGKILL);
    (void)waitpid(g->child, NULL, 0);
    _exit(code);
}

/* Ends with the worker, or notes that it was stopped, or goes on. */
static void look_after_worker(struct guard *g)
{
    int how;
    while (waitpid(g->child, &how, WNOHANG | WUNTRACED | WCONTINUED) == g->child) {
        if (WIFEXITED(how))
            _exit(WEXITSTATUS(how));
        if (WIFSIGNALED(how)) {
            (void)fprintf(stderr, "cleave: worker %d was lost: killed by SIG%s%s\n", g->worker,
                          name_signal(WTERMSIG(how)),
                          WTERMSIG(how) == SIGKILL ? " (out of memory?)" : "");
            _exit(STATUS_LOST);
        }
        g->child_stopped = WIFSTOPPED(how);
        g->stopped_s = 0;
    }
}

/* A worker may be stopped at any time, also while it saves, when the others wait for minutes
 * without a word. */
static void count_second(struct guard *g)
{
    if (!g->child_stopped)
        return;
    g->stopped_s += 1;
    if (g->stopped_s <= g->timeout_s + others_say_s)
        return;
    (void)fprintf(stderr,
                  "cleave: error: worker %d (process %lld) has been stopped for %.0f s: its guard "
                  "ends it (--timeout)\n",
                  g->worker, (long long)g->child, g->stopped_s);
    end_worker(g, STATUS_TIMEOUT);
}

/* The first SIGTERM or SIGINT asks the worker to stop in good order, one that comes later than the
 * same request would ends it at once (runtime/stop.h). The launcher may send signals to the worker,
 * too, which does not mind. */
static void pass_on(struct guard *g, int number)
{
    int64_t now_ns = timer_now_ns();
    if (number != SIGTERM && number != SIGINT) {
        (void)kill(g->child, number);
    } else if (g->asked_ns == 0) {
        g->asked_ns = now_ns;
        (void)kill(g->child, number);
    } else if (now_ns - g->asked_ns > STOP_SAME_REQUEST_NS) {
        (void)fprintf(stderr, "cleave: worker %d: a second signal: it ends at once\n", g->worker);
        end_worker(g, SIGNAL_EXIT + number);
    }
}

static void take_signal(struct guard *g, int number)
{
    for (size_t i = 0; i < sizeof passed_on / sizeof *passed_on; i++)
        if (number == passed_on[i])
            pass_on(g, number);
    for (size_t i = 0; i < sizeof ending / sizeof *ending; i++) {
        if (number != ending[i])
            continue;
        (void)fprintf(stderr, "cleave: the guard of worker %d got SIG%s: its worker ends\n",
                      g->worker, name_signal(number));
        end_worker(g, STATUS_LOST);
    }
}

/* A launcher that was killed cannot end its job. Its death is looked for every second: the signal
 * that PR_SET_PDEATHSIG sends comes also when only the launcher's thread that started us ends. */
_Noreturn static void watch(struct guard *g, const sigset_t *signals)
{
    const struct timespec a_second = {.tv_sec = 1};
    for (;;) {
        int number = sigtimedwait(signals, NULL, &a_second);
        look_after_worker(g);
        if (number > 0)
            take_signal(g, number);
        else
            count_second(g);
        if (getppid() != g->launcher) {
            (void)fprintf(stderr, "cleave: worker %d: the process that started it is gone\n",
                          g->worker);
            end_worker(g, STATUS_LOST);
        }
    }
}

void guard_end_worker(int code)
{
    wake_guard();
    _exit(code);
}

bool guard_start(double timeout_s)
{
    struct guard g = {.launcher = getppid(), .timeout_s = timeout_s};
    int size;
    if (!comm_mpi_launched(&g.worker, &size))
        return false;
    sigset_t signals, before;
    (void)sigemptyset(&signals);
    (void)sigaddset(&signals, SIGCHLD);
    for (size_t i = 0; i < sizeof passed_on / sizeof *passed_on; i++)
        (void)sigaddset(&signals, passed_on[i]);
    for (size_t i = 0; i < sizeof ending / sizeof *ending; i++)
        (void)sigaddset(&signals, ending[i]);
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
