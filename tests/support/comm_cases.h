/* comm_cases.h: what every transport must do, as one worker sees it.
 *
 * Each case is run by all workers at once, as threads (test_comm.c) or as ranks (mpi_comm.c).
 * cmocka's assertions only work on the main thread, so a case answers with false and a text.
 * The serial sums here are written out anew from comm.h, not taken from src/comm.
 */
#ifndef CLEAVE_TESTS_COMM_CASES_H
#define CLEAVE_TESTS_COMM_CASES_H

#include "base/timer.h"
#include "comm/comm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CASES_MAX_WORKERS = 16 };

struct cases_report {
    char text[600]; /* "" while all is well */
};

#define CASES_CHECK(report, condition, ...)                                    \
    do {                                                                       \
        if (!(condition)) {                                                    \
            (void)snprintf((report)->text, sizeof(report)->text, __VA_ARGS__); \
            return false;                                                      \
        }                                                                      \
    } while (0)
#define CASES_OK(report, expression)                                                              \
    do {                                                                                          \
        enum status status_ = (expression);                                                       \
        CASES_CHECK(report, status_ == STATUS_OK, "%s: status %d: %s", #expression, (int)status_, \
                    status_message());                                                            \
    } while (0)

/* Waits for all operations; a minute is for ever. */
bool cases_wait(comm *c, comm_op *ops, int n, struct cases_report *report);

/* ---- reductions ---- */

/* Subset number i of the workers, ascending; returns how many, 0 when there are no more. */
int cases_subset(int size, int i, int *members);

bool cases_run_reductions(comm *c, int64_t large, struct cases_report *report);

/* Many reductions under way at once, started in the same order but of all methods and sizes; then
 * again with the same tags, as in the next step. */
bool cases_run_many_at_once(comm *c, struct cases_report *report);

/* ---- transfers ---- */

/* Every worker sends to every other one, with two tags that are received in the other order than
 * sent, in several steps without a pause in between. */
bool cases_run_transfers(comm *c, struct cases_report *report);

/* One worker runs ahead with sends of the same tag; they arrive in order. */
bool cases_run_tag_reuse(comm *c, struct cases_report *report);

/* ---- control ---- */

bool cases_run_control(comm *c, struct cases_report *report);

#endif
