#include "profile/wander.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Speeds of one second resemble those of the next: over a minute they scatter more than over the
 * few seconds of a rehearsal. On two virtual cores the 1-s medians of two trainings scattered
 * by 9.4 and 5.1 % over 20 s, by 6.1 and 3.9 % within 4 s of them. */
static const double LONGER = 1.6;
/* What is taken for granted until more is known, as much as PRIOR deviations that were seen. On two
 * kinds of virtual machines, 2 and 16 cores, steps of the same plan differed by 6 to 9 % from one
 * minute to another, hardly to be seen within the seconds of a rehearsal. */
static const double VIRTUAL_WANDER = 0.06, USUAL_WANDER = 0.02;
/* So many of the last deviations count. */
enum { PRIOR = 4, MOST_KEPT = 16, NAME_BYTES = 384, TEXT_BYTES = 64, LINE_BYTES = 8192 };

/* ---- rounds ---- */

struct slices {
    int n;
    double sum, squares; /* of the means of rounds in each */
};

/* A last slice that is not full is left out. */
static struct slices cut(const double *round_s, int n)
{
    struct slices s = {0};
    double taken_s = 0;
    int first = 0;
    for (int i = 0; i < n; i++) {
        taken_s += round_s[i];
        if (taken_s < WANDER_SLICE_S)
            continue;
        double mean = taken_s / (i + 1 - first);
        s.n++;
        s.sum += mean;
        s.squares += mean * mean;
        first = i + 1;
        taken_s = 0;
    }
    return s;
}

/* Relative. */
static double deviation_of(const struct slices *s)
{
    double mean = s->sum / s->n, variance = (s->squares - s->n * mean * mean) / (s->n - 1);
    return mean > 0 ? sqrt(fmax(0, variance)) / mean : 0;
}

double wander_of_rounds(const double *round_s, int n)
{
    struct slices s = cut(round_s, n);
    return s.n < WANDER_LEAST_SLICES ? -1 : LONGER * deviation_of(&s);
}

bool wander_is_steady(const double *round_s, int n)
{
    struct slices s = cut(round_s, n);
    return s.n >= WANDER_LEAST_SLICES && deviation_of(&s) <= WANDER_STEADY * sqrt(s.n);
}

double wander_between(double now_s, double then_s)
{
    return fabs(log(now_s / then_s)) / sqrt(2);
}

/* ---- what is known ---- */

/* In the profile it is a text: how many, and the mean of their squares. */
struct known {
    int count;
    double square;
};

/* Whether a hypervisor has this host among others. */
static bool is_virtual(void)
{
    char line[LINE_BYTES];
    bool found = false;
    FILE *f = fopen("/proc/cpuinfo", "r");
    while (f && !found && fgets(line, sizeof line, f))
        found = strncmp(line, "flags", 5) == 0 && strstr(line, " hypervisor");
    if (f)
        (void)fclose(f);
    return found;
}

static const char *name_of(const struct profile_setting *s, char *name, size_t size)
{
    (void)snprintf(name, size, "wander of %d workers with %d threads on %s", s->load, s->threads,
                   s->device);
    return name;
}

/* What cannot be read counts as nothing. */
static enum status read_known(profile *p, const char *name, struct known *out)
{
    char *text;
    *out = (struct known){0};
    TRY(profile_get_text(p, name, &text));
    if (!text)
        return STATUS_OK;
    char *end = text;
    long count = strtol(text, &end, 10);
    double square = strtod(end, NULL);
    if (count > 0 && count <= MOST_KEPT && square >= 0 && isfinite(square))
        *out = (struct known){(int)count, square};
    free(text);
    return STATUS_OK;
}

enum status wander_note(profile *p, const struct profile_setting *s, double deviation)
{
    char name[NAME_BYTES], text[TEXT_BYTES];
    struct known known;
    if (!(deviation >= 0) || !isfinite(deviation))
        return STATUS_OK;
    TRY(read_known(p, name_of(s, name, sizeof name), &known));
    int before = known.count < MOST_KEPT ? known.count : MOST_KEPT - 1;
    double square = (before * known.square + deviation * deviation) / (before + 1);
    (void)snprintf(text, sizeof text, "%d %.9g", before + 1, square);
    return profile_put_text(p, name, text);
}

enum status wander_find(profile *p, const struct profile_setting *s, double *deviation)
{
    char name[NAME_BYTES];
    struct known known;
    TRY(read_known(p, name_of(s, name, sizeof name), &known));
    double usual = is_virtual() ? VIRTUAL_WANDER : USUAL_WANDER;
    *deviation = sqrt((PRIOR * usual * usual + known.count * known.square) / (PRIOR + known.count));
    return STATUS_OK;
}
