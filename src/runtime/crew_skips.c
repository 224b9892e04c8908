/* Samples that cannot be read: counted over all workers, so that a run goes on, warns and ends
 * alike whatever its plan.
 *
 * Which sample stands in the place of another is a function of the files (dataset_read_or_next),
 * but several workers may meet the same one, and a worker another one in every epoch. After each
 * run of a program the workers' lists are put together, in the workers' order, and a bit for each
 * sample says whether it was counted. Only a run in which a worker met one pays for an exchange. */
#include "base/array.h"
#include "base/log.h"
#include "runtime/crew_parts.h"

#include <stdlib.h>
#include <string.h>

static dataset *set_of(const crew *c, enum crew_program which)
{
    return crew_trains(which) ? c->options.train_set : c->options.test_set;
}

enum status crew_alloc_skips(crew *c)
{
    dataset *sets[2] = {c->options.train_set, c->options.test_set};
    for (int i = 0; i < 2 && c->options.skip_corrupt > 0; i++) {
        if (!sets[i])
            continue;
        size_t n_bytes = (size_t)dataset_get_info(sets[i])->n_samples / 8 + 1;
        c->seen[i] = calloc(n_bytes, 1);
        if (!c->seen[i])
            return status_no_memory(n_bytes);
    }
    return STATUS_OK;
}

enum status crew_explain_corrupt(const crew *c, enum status st)
{
    struct status_error cause;
    long long most = c->options.skip_corrupt;
    if (st == STATUS_OK || !status_is_of_content())
        return st;
    status_take(st, &cause);
    if (most > 0)
        return status_fail(st,
                           "%.700s; the next %lld cannot be read either, and --skip-corrupt %lld "
                           "allows no more",
                           cause.message, most, most);
    return status_fail(st,
                       "%.700s ('cleave data check' lists all that cannot be read; "
                       "--skip-corrupt N trains without up to N)",
                       cause.message);
}

enum status crew_note_skips(struct crew_feed *f, const struct batch *b)
{
    int n = f->n_replaced + b->n_replaced;
    if (b->n_replaced == 0)
        return STATUS_OK;
    TRY(array_reserve(NULL, &f->replaced, n, &f->replaced_room, sizeof *f->replaced));
    memcpy(f->replaced + f->n_replaced, b->replaced, (size_t)b->n_replaced * sizeof *b->replaced);
    f->n_replaced = n;
    return STATUS_OK;
}

int64_t crew_most_skips(const crew *c, enum crew_program which)
{
    int64_t most = 0;
    for (int i = 0; i < c->info.n_local; i++) {
        const struct crew_feed *f = crew_feed_of(&c->workers[i], which);
        most = f->n_replaced > most ? f->n_replaced : most;
    }
    return most;
}

/* Fails where it is one too many. */
static enum status count_one(crew *c, enum crew_program which, uint32_t step,
                             const struct dataset_replaced *r)
{
    uint8_t *byte = &c->seen[!crew_trains(which)][r->sample / 8];
    uint8_t bit = (uint8_t)(1 << r->sample % 8);
    long long most = c->options.skip_corrupt;
    char by[512];
    if (*byte & bit)
        return STATUS_OK;
    *byte |= bit;
    if (c->info.n_skipped == c->options.skip_corrupt) {
        crew_note_common_failure(c);
        return status_fail(STATUS_FAILED,
                           "step %u: %s; %lld such image%s %s replaced before, and --skip-corrupt "
                           "%lld allows no more ('cleave data check' lists all)",
                           step, r->why, most, most == 1 ? "" : "s", most == 1 ? "was" : "were",
                           most);
    }
    c->info.n_skipped++;
    if (c->info.root && !c->options.skips_silently)
        log_warn("%s; in its place stands %s (%lld of at most %lld)", r->why,
                 dataset_sample_name(set_of(c, which), r->by, by, sizeof by),
                 (long long)c->info.n_skipped, most);
    return STATUS_OK;
}

static enum status count_local(crew *c, enum crew_program which, uint32_t step)
{
    for (int i = 0; i < c->info.n_local; i++) {
        const struct crew_feed *f = crew_feed_of(&c->workers[i], which);
        for (int k = 0; k < f->n_replaced; k++)
            TRY(count_one(c, which, step, &f->replaced[k]));
    }
    return STATUS_OK;
}

/* Every process has room for `most`, and fills the rest with -1. */
static enum status count_all(crew *c, enum crew_program which, uint32_t step, comm *end,
                             size_t most)
{
    const struct crew_feed *f = crew_feed_of(&c->workers[0], which);
    size_t n = most * (size_t)end->size;
    struct dataset_replaced *mine = calloc(most, sizeof *mine), *all = calloc(n, sizeof *all);
    enum status st = mine && all ? STATUS_OK : status_no_memory(n * sizeof *all);
    for (size_t i = 0; st == STATUS_OK && i < most; i++)
        mine[i] =
            i < (size_t)f->n_replaced ? f->replaced[i] : (struct dataset_replaced){.sample = -1};
    if (st == STATUS_OK)
        st = end->table->exchange(end, mine, (int64_t)(most * sizeof *mine), all);
    for (size_t i = 0; st == STATUS_OK && i < n; i++)
        if (all[i].sample >= 0)
            st = count_one(c, which, step, &all[i]);
    free(mine);
    free(all);
    return st;
}

enum status crew_count_skips(crew *c, enum crew_program which, uint32_t step, int64_t most)
{
    comm *end = crew_process(c);
    return end ? count_all(c, which, step, end, (size_t)most) : count_local(c, which, step);
}
