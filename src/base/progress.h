/* progress.h: the progress line (base/log.h) of work whose finished share is known: it shows the
 * share and, from the speed so far, the time left.
 *
 *     struct progress p = {0};
 *     for (int i = 0; i < n; i++) {
 *         progress_show(&p, (double)i / n, "measuring %s", names[i]);
 *         ...
 *     }
 *     log_progress_end();
 *
 * prints "measuring conv1: 40 %, 12 s left". Work that ends within a second shows nothing, and
 * nothing is shown more often than ten times a second; a call costs no more than a look at the
 * clock.
 */
#ifndef CLEAVE_BASE_PROGRESS_H
#define CLEAVE_BASE_PROGRESS_H

#include "base/status.h"

#include <stdint.h>

/* All zero at first. A share below the previous one begins other work. */
struct progress {
    int64_t began_ns, next_ns;
    double began_share, share;
};

/* Shows nothing from now on: --quiet. */
void progress_hide(void);

void progress_show(struct progress *p, double share, const char *format, ...) PRINTF_LIKE(3, 4);

/* An estimated time, into the buffer, which is returned: "12 s", "4 min 10 s". */
const char *progress_time(char *buffer, size_t size, double seconds);

#endif
