#include "runtime/schedule.h"

#include "base/text.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *const kind_names[SCHEDULE_KIND_COUNT + 1] = {
    [SCHEDULE_CONSTANT] = "constant", [SCHEDULE_STEP] = "step", [SCHEDULE_COSINE] = "cosine"};

enum { MAX_PARTS = 3, PART_BYTES = 32 };

/* Cuts "step:30:0.1" at the colons; fails on too many or too long parts. */
static enum status split(const char *text, char parts[MAX_PARTS][PART_BYTES], int *n_parts)
{
    int n = 0;
    for (const char *at = text;; at++) {
        size_t length = strcspn(at, ":");
        if (n == MAX_PARTS || length >= PART_BYTES)
            return status_fail(STATUS_USAGE,
                               "schedule '%.80s' is not one of: constant, step:EPOCHS:FACTOR, "
                               "cosine, cosine:FLOOR",
                               text);
        memcpy(parts[n], at, length);
        parts[n++][length] = '\0';
        at += length;
        if (!*at)
            break;
    }
    *n_parts = n;
    return STATUS_OK;
}

static enum status parse_step(const char *text, int n_parts, char parts[MAX_PARTS][PART_BYTES],
                              struct schedule *s)
{
    if (n_parts != 3)
        return status_fail(STATUS_USAGE,
                           "schedule '%.80s' must be step:EPOCHS:FACTOR, e.g. step:30:0.1", text);
    TRY(text_parse_integer("epochs of the step schedule", parts[1], 1, 1000000, &s->drop_epochs));
    TRY(text_parse_real("factor of the step schedule", parts[2], 0, 1, &s->drop_factor));
    return STATUS_OK;
}

enum status schedule_parse(const char *text, struct schedule *out)
{
    char parts[MAX_PARTS][PART_BYTES] = {{0}};
    int n_parts = 0, kind = 0;
    TRY(split(text, parts, &n_parts));
    while (kind < SCHEDULE_KIND_COUNT && strcmp(parts[0], kind_names[kind]) != 0)
        kind++;
    if (kind == SCHEDULE_KIND_COUNT)
        return text_fail_unknown("schedule", parts[0], kind_names);

    struct schedule s = {.kind = (enum schedule_kind)kind};
    if (kind == SCHEDULE_STEP)
        TRY(parse_step(text, n_parts, parts, &s));
    else if (n_parts > (kind == SCHEDULE_COSINE ? 2 : 1))
        return status_fail(STATUS_USAGE, "schedule '%.80s' has too many parts: '%s' is enough",
                           text, kind_names[kind]);
    else if (n_parts == 2)
        TRY(text_parse_real("floor of the cosine schedule", parts[1], 0, 1, &s.floor));
    *out = s;
    return STATUS_OK;
}

const char *schedule_text(char *buffer, size_t size, const struct schedule *s)
{
    const char *name = kind_names[s->kind];
    if (s->kind == SCHEDULE_STEP)
        (void)snprintf(buffer, size, "%s:%lld:%.17g", name, (long long)s->drop_epochs,
                       s->drop_factor);
    else if (s->kind == SCHEDULE_COSINE && s->floor > 0)
        (void)snprintf(buffer, size, "%s:%.17g", name, s->floor);
    else
        (void)snprintf(buffer, size, "%s", name);
    return buffer;
}

/* The share of the way from the end of the warm-up to the end of the run, 0 to 1. */
static double progress(const struct schedule *s, int64_t step, int64_t steps_total)
{
    int64_t length = steps_total - s->warmup_steps;
    if (length <= 0 || step >= steps_total)
        return 1;
    return (double)(step - s->warmup_steps) / (double)length;
}

double schedule_rate(const struct schedule *s, double base_rate, int64_t step,
                     int64_t steps_per_epoch, int64_t steps_total)
{
    if (steps_total > 0 && step >= steps_total)
        step = steps_total - 1;
    if (step < s->warmup_steps)
        return base_rate * (double)(step + 1) / (double)s->warmup_steps;
    switch (s->kind) {
    case SCHEDULE_STEP: {
        int64_t epoch = steps_per_epoch > 0 ? step / steps_per_epoch : 0;
        int64_t n_drops = epoch / s->drop_epochs;
        return base_rate * pow(s->drop_factor, (double)n_drops);
    }
    case SCHEDULE_COSINE: {
        double share = 0.5 * (1 + cos(3.141592653589793 * progress(s, step, steps_total)));
        return base_rate * (s->floor + (1 - s->floor) * share);
    }
    default:
        return base_rate;
    }
}
