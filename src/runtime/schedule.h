/* schedule.h: the learning rate as a function of the step. Pure functions.
 *
 *     constant            the base rate throughout
 *     step:EPOCHS:FACTOR  times FACTOR after every EPOCHS epochs
 *     cosine[:FLOOR]      half a cosine from the base rate to FLOOR times it (default 0) at the end
 *
 * Each can begin with a linear warm-up: step s < warmup_steps (from 0) has (s + 1) / warmup_steps
 * of the base rate. The cosine begins where the warm-up ends; the epochs of `step` count from the
 * start of the run.
 *
 *     struct schedule s;
 *     TRY(schedule_parse("step:30:0.1", &s));
 *     s.warmup_steps = 500;
 *     double rate = schedule_rate(&s, 0.1, step, steps_per_epoch, steps_total);
 */
#ifndef CLEAVE_RUNTIME_SCHEDULE_H
#define CLEAVE_RUNTIME_SCHEDULE_H

#include "base/status.h"

#include <stdint.h>

enum schedule_kind { SCHEDULE_CONSTANT, SCHEDULE_STEP, SCHEDULE_COSINE, SCHEDULE_KIND_COUNT };

/* All zero is `constant` without warm-up. */
struct schedule {
    enum schedule_kind kind;
    int64_t drop_epochs; /* SCHEDULE_STEP */
    double drop_factor;  /* SCHEDULE_STEP */
    double floor;        /* SCHEDULE_COSINE: a share of the base rate, 0 to 1 */
    int64_t warmup_steps;
};

/* Reads the forms above; warmup_steps becomes 0. STATUS_USAGE says what is allowed. */
enum status schedule_parse(const char *text, struct schedule *out) MUST_USE;

/* The text that schedule_parse reads back, without the warm-up, into buffer, which is returned. */
const char *schedule_text(char *buffer, size_t size, const struct schedule *s);

/* The rate of step `step`, counted from 0, of a run of steps_total steps. Steps past the end have
 * the rate of the last one. */
double schedule_rate(const struct schedule *s, double base_rate, int64_t step,
                     int64_t steps_per_epoch, int64_t steps_total);

#endif
