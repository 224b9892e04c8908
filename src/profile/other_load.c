#include "profile/other_load.h"

#include "base/timer.h"

#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* A line of /proc/stat: "cpu3 user nice system idle iowait irq softirq steal ...", in ticks. */
struct other_load other_load_begin(void)
{
    struct other_load l = {.own_s = (double)timer_read_ns(CLOCK_PROCESS_CPUTIME_ID) * 1e-9,
                           .now_s = (double)timer_now_ns() * 1e-9};
    double tick_s = 1.0 / (double)sysconf(_SC_CLK_TCK);
    cpu_set_t own;
    char line[512];
    FILE *f = fopen("/proc/stat", "r");
    if (sched_getaffinity(0, sizeof own, &own) != 0)
        CPU_ZERO(&own);
    while (f && fgets(line, sizeof line, f)) {
        int cpu;
        double user, nice, system, irq, softirq, steal;
        if (sscanf(line, "cpu%d %lf %lf %lf %*f %*f %lf %lf %lf", &cpu, &user, &nice, &system, &irq,
                   &softirq, &steal) != 7 ||
            cpu < 0 || cpu >= CPU_SETSIZE || !CPU_ISSET((size_t)cpu, &own))
            continue;
        l.busy_s += tick_s * (user + nice + system + irq + softirq + steal);
        l.cores++;
    }
    if (f)
        (void)fclose(f);
    return l;
}

double other_load_share(const struct other_load *begin)
{
    struct other_load now = other_load_begin();
    double spent_s = (now.now_s - begin->now_s) * now.cores;
    double others_s = (now.busy_s - begin->busy_s) - (now.own_s - begin->own_s);
    if (begin->cores != now.cores || !(spent_s > 0))
        return 0;
    return fmin(1, fmax(0, others_s / spent_s));
}

bool other_load_is_calmer_than(double share)
{
    if (share <= OTHER_LOAD_DISTURBS)
        return false;
    struct other_load l = other_load_begin();
    (void)usleep(100000);
    return other_load_share(&l) < share / 2;
}
