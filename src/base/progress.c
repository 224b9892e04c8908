#include "base/progress.h"

#include "base/log.h"
#include "base/text.h"
#include "base/timer.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

static const int64_t first_ns = 1000000000, interval_ns = 100000000;

static bool hidden;

void progress_hide(void)
{
    hidden = true;
}

const char *progress_time(char *buffer, size_t size, double seconds)
{
    if (seconds >= 100)
        return text_seconds(buffer, size, seconds);
    (void)snprintf(buffer, size, "%.0f s", ceil(seconds));
    return buffer;
}

/* Time left at the speed so far; 0: not known yet. */
static double find_left(const struct progress *p, int64_t now_ns)
{
    double done = p->share - p->began_share, taken_s = (double)(now_ns - p->began_ns) * 1e-9;
    return done > 0 ? taken_s * (1 - p->share) / done : 0;
}

void progress_show(struct progress *p, double share, const char *format, ...)
{
    if (hidden)
        return;
    int64_t now_ns = timer_now_ns();
    if (!p->began_ns || share < p->share)
        *p = (struct progress){
            .began_ns = now_ns, .next_ns = now_ns + first_ns, .began_share = share};
    p->share = share;
    if (now_ns < p->next_ns)
        return;
    p->next_ns = now_ns + interval_ns;
    char what[256], left[32];
    double left_s = find_left(p, now_ns);
    va_list args;
    va_start(args, format);
    (void)vsnprintf(what, sizeof what, format, args);
    va_end(args);
    if (left_s > 0)
        log_progress("%s: %.0f %%, %s left", what, 100 * share,
                     progress_time(left, sizeof left, left_s));
    else
        log_progress("%s: %.0f %%", what, 100 * share);
}
