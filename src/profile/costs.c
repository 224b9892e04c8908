#include "profile/costs.h"

#include "cost/cost.h"

#include <math.h>

static double roofline(const struct cost_source *source, const struct work_amount *work)
{
    double scale = work->convolves ? source->scales.convolutions : source->scales.others;
    return cost_compute(source->kind, &(struct cost_work){.flops = work->flops,
                                                          .bytes = work->bytes,
                                                          .arithmetic = work->arithmetic,
                                                          .scale = scale});
}

/* False: nothing is known in this setting. */
static bool look_up(const struct cost_source *source, const struct profile_setting *setting,
                    const char *key, const struct instr_work *work, struct profile_cost *cost,
                    enum cost_origin *origin)
{
    *origin = COST_MEASURED;
    if (profile_find(source->profile, setting, key, cost))
        return true;
    *origin = COST_FITTED;
    struct profile_work like = {work->family, work->amount.flops, work->amount.bytes};
    return profile_estimate(source->profile, setting, &like, cost);
}

double costs_estimate(const struct cost_source *source, const struct instr_work *work)
{
    struct profile_work like = {work->family, work->amount.flops, work->amount.bytes};
    struct profile_cost cost;
    if (source->profile && profile_estimate(source->profile, &source->busy, &like, &cost))
        return cost.seconds;
    return roofline(source, &work->amount);
}

static struct instr_cost find_roofline(const struct cost_source *source, const struct program *p,
                                       int i)
{
    struct work_amount amount = program_instr_amount(p, i);
    double seconds = roofline(source, &amount);
    return (struct instr_cost){seconds, seconds, 0, COST_ROOFLINE};
}

static bool is_alike(const struct program *p, const struct instr *a, const struct instr *b)
{
    return a->kind == b->kind && a->group == b->group && a->pass == b->pass &&
           p->runs[a->index].n_output_grads == p->runs[b->index].n_output_grads;
}

/* Where nothing was measured. Micro-batches repeat each other: the roofline of a group's pass is
 * found once. */
static void find_rooflines(const struct cost_source *source, const struct program *p,
                           struct instr_cost *costs)
{
    enum { PLACES = 1024 };
    int last[PLACES] = {0}; /* RUNs, by group and pass as far as there are places */
    for (int i = 0; i < p->n_instrs; i++) {
        const struct instr *instr = &p->instrs[i];
        costs[i] = (struct instr_cost){0};
        if (instr->stream != STREAM_COMPUTE || program_instr_is_free(p, i))
            continue;
        if (instr->kind != INSTR_RUN) {
            costs[i] = find_roofline(source, p, i);
            continue;
        }
        int *place = &last[(instr->group * PASS_COUNT + (int)instr->pass) % PLACES];
        bool known = *place < i && is_alike(p, instr, &p->instrs[*place]);
        costs[i] = known ? costs[*place] : find_roofline(source, p, i);
        *place = i;
    }
}

static struct instr_cost find_cost(const struct cost_source *source, const struct program *p, int i,
                                   struct cost_sums *sums)
{
    char key[WORK_KEY_BYTES];
    struct instr_work work;
    struct profile_cost busy, alone;
    enum cost_origin origin, alone_origin;
    if (program_instr_is_free(p, i))
        return (struct instr_cost){0};
    (void)program_instr_key(p, i, key, sizeof key);
    program_instr_work(p, i, &work);
    if (!look_up(source, &source->busy, key, &work, &busy, &origin))
        return find_roofline(source, p, i);
    struct instr_cost cost = {busy.seconds, busy.seconds, busy.spread, origin};
    /* A fit of one and a measurement of the other would say little about neighbours. */
    if (look_up(source, &source->alone, key, &work, &alone, &alone_origin) &&
        alone_origin == origin) {
        cost.alone_s = alone.seconds;
        sums->alone_s += alone.seconds;
        sums->busy_s += busy.seconds;
    }
    return cost;
}

void costs_find(const struct cost_source *source, const struct program *p, struct instr_cost *costs,
                struct cost_sums *sums)
{
    if (!source->profile) {
        find_rooflines(source, p, costs);
        return;
    }
    for (int i = 0; i < p->n_instrs; i++) {
        bool computes = p->instrs[i].stream == STREAM_COMPUTE;
        costs[i] = computes ? find_cost(source, p, i, sums) : (struct instr_cost){0};
    }
}

void costs_settle_alone(const struct cost_sums *sums, struct instr_cost *costs, int n)
{
    if (sums->alone_s <= sums->busy_s)
        return;
    for (int i = 0; i < n; i++)
        costs[i].alone_s = costs[i].busy_s;
}
