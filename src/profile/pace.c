#include "profile/pace.h"

#include "base/numbers.h"

#include <math.h>

/* What is known of one row. */
struct usual {
    double *blocks_s, all_blocks_s;
    bool counts; /* for the drift */
};

struct rows {
    const struct pace_row *of;
    int n;
    struct usual *usual;
    arena *memory;
};

static double block_s(const struct pace_row *r, int round, int block)
{
    return r->seconds[(size_t)round * (size_t)r->n_blocks + (size_t)block];
}

static double round_s(const struct pace_row *r, int round)
{
    double sum = 0;
    for (int b = 0; b < r->n_blocks; b++)
        sum += block_s(r, round, b);
    return sum;
}

static double median(double *numbers, int n)
{
    numbers_sort(numbers, n);
    return n > 0 ? numbers_quantile(numbers, n, 0.5) : 0;
}

/* ---- what is usual ---- */

/* Of this row alone. */
static enum status find_medians(struct rows *rows, int i)
{
    const struct pace_row *r = &rows->of[i];
    struct usual *u = &rows->usual[i];
    double *scratch;
    TRY(arena_alloc_array(rows->memory, (size_t)r->n_rounds + 1, sizeof *scratch, &scratch));
    TRY(arena_alloc_array(rows->memory, (size_t)r->n_blocks + 1, sizeof *u->blocks_s,
                          &u->blocks_s));
    for (int b = 0; b < r->n_blocks; b++) {
        for (int round = 0; round < r->n_rounds; round++)
            scratch[round] = block_s(r, round, b);
        u->blocks_s[b] = median(scratch, r->n_rounds);
        u->all_blocks_s += u->blocks_s[b];
    }
    return STATUS_OK;
}

static double longest_beside(const struct rows *rows, int of)
{
    double longest = 0;
    for (int i = 0; i < rows->n; i++)
        if (rows->of[i].rehearsal == rows->of[of].rehearsal)
            longest = fmax(longest, rows->of[i].usual_s);
    return longest;
}

static enum status find_usual(struct rows *rows)
{
    for (int i = 0; i < rows->n; i++) {
        double usual_s = rows->of[i].usual_s;
        TRY(find_medians(rows, i));
        rows->usual[i].counts = usual_s > 0 && usual_s >= longest_beside(rows, i) / 2;
    }
    return STATUS_OK;
}

/* ---- drift ---- */

/* By how much the last of a round of `first`'s rehearsal was behind the mean, in deviations of as
 * many draws; negative: there were less than two. The last is whom the others wait for, and tells
 * more than the scatter of all: where a neighbour takes half of a core, few are far behind, and the
 * others go side by side. */
static double find_last(const struct rows *rows, int first, int round)
{
    double sum = 0, last = 0;
    int count = 0;
    for (int i = first; i < rows->n; i++) {
        const struct pace_row *r = &rows->of[i];
        if (r->rehearsal != rows->of[first].rehearsal || !rows->usual[i].counts)
            continue;
        double pace = round_s(r, round) / r->usual_s;
        sum += pace;
        last = fmax(last, pace);
        count++;
    }
    if (count < 2 || sum <= 0)
        return -1;
    return fmax(0, last * count / sum - 1) / numbers_normal_place(count - 1, count);
}

static bool is_first(const struct rows *rows, int i)
{
    for (int k = 0; k < i; k++)
        if (rows->of[k].rehearsal == rows->of[i].rehearsal)
            return false;
    return true;
}

static enum status find_drift(const struct rows *rows, double *drift)
{
    double *lasts;
    size_t most = 0;
    int count = 0;
    for (int i = 0; i < rows->n; i++)
        most += (size_t)rows->of[i].n_rounds;
    TRY(arena_alloc_array(rows->memory, most + 1, sizeof *lasts, &lasts));
    for (int i = 0; i < rows->n; i++)
        for (int round = 0; is_first(rows, i) && round < rows->of[i].n_rounds; round++) {
            double last = find_last(rows, i, round);
            if (last >= 0)
                lasts[count++] = last;
        }
    numbers_sort(lasts, count);
    *drift = count > 0 ? numbers_middle(lasts, count) : -1;
    return STATUS_OK;
}

/* ---- jitter ---- */

/* By how much the blocks of a round were off, in all. */
static double sum_off(const struct pace_row *r, const struct usual *u, int round)
{
    double off = 0, taken_s = round_s(r, round);
    for (int b = 0; b < r->n_blocks && taken_s > 0; b++)
        off += fabs(block_s(r, round, b) * u->all_blocks_s / taken_s - u->blocks_s[b]);
    /* the round is the blocks' own, and follows each of them a little */
    return off * sqrt((double)r->n_blocks / (r->n_blocks - 1));
}

/* From the mean distance, which what strikes seldom and hard counts in, too: who waits for others
 * waits for that. */
static double find_jitter(const struct rows *rows)
{
    static const double mean_distance = 0.7979; /* of a normal distribution, in deviations */
    double off = 0, usual_s = 0;
    for (int i = 0; i < rows->n; i++) {
        const struct pace_row *r = &rows->of[i];
        for (int round = 0; r->n_blocks > 1 && round < r->n_rounds; round++) {
            off += sum_off(r, &rows->usual[i], round);
            usual_s += rows->usual[i].all_blocks_s;
        }
    }
    return usual_s > 0 ? off / usual_s / mean_distance : -1;
}

enum status pace_find(const struct pace_row *rows, int n, arena *memory, struct pace *out)
{
    struct rows all = {.of = rows, .n = n, .memory = memory};
    TRY(arena_alloc_array(memory, (size_t)n + 1, sizeof *all.usual, &all.usual));
    TRY(find_usual(&all));
    TRY(find_drift(&all, &out->drift));
    out->jitter = find_jitter(&all);
    return STATUS_OK;
}
