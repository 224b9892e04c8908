#include "search/pipelines.h"

#include "search/compose.h"
#include "search/stage_costs.h"
#include "search/stage_split.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    MOST_SLOTS = 16,
    MOST_CUT_WORKERS = 8,
    MOST_CHOICES = 24,
    MOST_SETTINGS = 1024,
    MOST_STAGES = 8
};

/* One number of micro-batches under one schedule. */
struct pipeline_search {
    const struct pipelines_request *request;
    arena *memory;
    struct topology topology; /* of all workers */
    struct stage_blocks blocks;
    int unit, n_slots; /* workers of a slot */
    /* By slot and number of slots: of the device that has least memory; INFINITY: not known. */
    double limit_bytes[MOST_SLOTS][MOST_SLOTS + 1];
    enum plan_schedule schedule;
    int micro_batches;
    int64_t samples; /* of a micro-batch, of the largest */
    double full;     /* micro-batches of so many that a batch would be: not all need be full */
    int n_settings;
    struct stage_setting settings[MOST_SETTINGS];
    /* By slot and number of slots: cut along the batch, and as the optimum has it; -1: none. */
    int setting_of[MOST_SLOTS][MOST_SLOTS + 1][2];
};

/* ---- settings ---- */

/* Whether n workers from a on are arranged, made and linked like those from b on. */
static bool arranged_alike(const struct pipeline_search *p, int a, int b, int n)
{
    const struct topology *t = &p->topology;
    bool crosses = t->node_of[a] != t->node_of[a + n - 1]; /* then cards count */
    for (int i = 0; i < n; i++) {
        bool breaks_a = i > 0 && t->node_of[a + i] != t->node_of[a + i - 1];
        bool breaks_b = i > 0 && t->node_of[b + i] != t->node_of[b + i - 1];
        if (breaks_a != breaks_b || !topology_workers_alike(t, a + i, b + i) ||
            (crosses && !topology_cards_alike(t, a + i, b + i)))
            return false;
    }
    return true;
}

static int find_setting(const struct pipeline_search *p, int first, int n, bool only_batch)
{
    for (int i = 0; i < p->n_settings; i++) {
        const struct stage_setting *s = &p->settings[i];
        if (s->n_workers == n && s->only_batch == only_batch &&
            arranged_alike(p, s->first_worker, first, n))
            return i;
    }
    return -1;
}

static enum status add_setting(struct pipeline_search *p, int first, int n, bool only_batch,
                               int *out)
{
    struct pricing_request r = p->request->pricing;
    *out = find_setting(p, first, n, only_batch);
    if (*out >= 0 || p->n_settings == MOST_SETTINGS)
        return STATUS_OK;
    r.first_device = first;
    r.n_workers = n;
    r.samples = p->samples;
    r.only_batch = only_batch;
    r.max_choices = only_batch ? r.max_choices : MOST_CHOICES;
    *out = p->n_settings++;
    return stage_setting_create(&r, &p->request->options, &p->blocks, p->memory,
                                &p->settings[*out]);
}

static enum status make_settings(struct pipeline_search *p)
{
    const struct topology *t = &p->topology;
    for (int slot = 0; slot < p->n_slots; slot++)
        for (int n = 1; slot + n <= p->n_slots; n++) {
            int first = slot * p->unit, workers = n * p->unit, *of = p->setting_of[slot][n];
            bool cuts = workers > 1 && workers <= MOST_CUT_WORKERS && !p->request->only_batch &&
                        t->node_of[first] == t->node_of[first + workers - 1];
            of[0] = of[1] = -1;
            if (n == p->n_slots)
                continue; /* one stage is no pipeline */
            TRY(add_setting(p, first, workers, true, &of[0]));
            if (cuts)
                TRY(add_setting(p, first, workers, false, &of[1]));
        }
    return STATUS_OK;
}

static void destroy_settings(struct pipeline_search *p)
{
    for (int i = 0; i < p->n_settings; i++)
        pricing_destroy(p->settings[i].pricing);
    p->n_settings = 0;
}

/* ---- one stage ---- */

/* A stage in one setting, and whether it has to recompute. */
struct stage_plan {
    int setting;
    bool recompute;
    double memory_bytes;
    struct split_cost cost;
};

/* Micro-batches whose activations a stage holds at the same time. */
static int count_in_flight(const struct pipeline_search *p, int behind)
{
    if (p->schedule == PLAN_PIPEDREAM)
        return behind + 1;
    int most = p->schedule == PLAN_GPIPE ? p->micro_batches : behind + 1;
    return most < p->micro_batches ? most : p->micro_batches;
}

/* Beside activations there are gradients on their way, copies for transfers, data that kernels
 * save, and gaps; against the memory of lowered programs this was enough. */
static const double KEPT_MARGIN = 1.5;

/* Pipedream keeps the weights that each step under way began with. */
static double find_memory(const struct pipeline_search *p, const struct stage_cost *c, int behind,
                          bool recompute)
{
    int in_flight = count_in_flight(p, behind);
    int versions = p->schedule == PLAN_PIPEDREAM ? behind : 0;
    double weights = pricing_weights_bytes(&p->request->pricing, c->weight_bytes, versions);
    double kept = recompute ? c->kept_bytes + in_flight * c->input_bytes
                            : in_flight * (c->kept_bytes + c->input_bytes);
    return weights + KEPT_MARGIN * kept;
}

static struct split_cost weigh_stage(const struct pipeline_search *p, const struct stage_cost *c,
                                     bool recompute)
{
    double time_s = c->time_s + (recompute ? c->forward_s : 0);
    if (p->schedule == PLAN_PIPEDREAM)
        return (struct split_cost){time_s + c->step_s, time_s + c->step_s};
    return (struct split_cost){time_s, (p->full - 1) * time_s + c->step_s};
}

/* The best setting that fits; false: none does. */
static bool plan_stage(const struct pipeline_search *p, int first, int end, int slot, int n,
                       int behind, struct stage_plan *out)
{
    double limit = p->limit_bytes[slot][n];
    bool found = false;
    for (int k = 0; k < 2; k++) {
        int number = p->setting_of[slot][n][k];
        if (number < 0)
            continue;
        struct stage_cost c = stage_cost_of(&p->settings[number], &p->blocks, first, end);
        bool again = find_memory(p, &c, behind, false) > limit;
        double memory = find_memory(p, &c, behind, again);
        if (memory > limit || (again && p->request->no_recompute))
            continue;
        struct split_cost cost = weigh_stage(p, &c, again);
        if (found && cost.sum + cost.longest >= out->cost.sum + out->cost.longest)
            continue;
        *out = (struct stage_plan){number, again, memory, cost};
        found = true;
    }
    return found;
}

/* ---- the programme ---- */

static bool split_stage_cost(void *user, int first, int end, int slot, int n, int behind,
                             struct split_cost *cost)
{
    struct stage_plan plan;
    if (!plan_stage(user, first, end, slot, n, behind, &plan))
        return false;
    *cost = plan.cost;
    return true;
}

static struct split_cost split_cross_cost(void *user, int at, int slot, int n, int next_n)
{
    const struct pipeline_search *p = user;
    double n_bytes = p->blocks.sample_bytes[at] * (double)p->samples;
    double s = stage_cross_s(&p->topology, slot * p->unit, n * p->unit, (slot + n) * p->unit,
                             next_n * p->unit, n_bytes);
    /* Links go both ways, but gpipe does not use them at once, and the others rarely do. */
    double times = p->schedule == PLAN_PIPEDREAM ? 1 : p->full - 1;
    return (struct split_cost){2 * s, 2 * times * s};
}

static int find_window(int n_stages)
{
    return 4 * n_stages;
}

static double split_total(void *user, int n_stages, const struct split_cost *cost)
{
    const struct pipeline_search *p = user;
    int w = find_window(n_stages);
    if (p->schedule == PLAN_PIPEDREAM)
        return (cost->sum + (w - 1) * cost->longest) / w;
    return cost->sum + cost->longest;
}

/* ---- the plans ---- */

static enum status compose_found(struct pipeline_search *p, const struct split_found *f,
                                 struct pipelines_found *out)
{
    struct composed_stage stages[SPLIT_MAX_STAGES];
    char name[64];
    *out = (struct pipelines_found){
        .step_s = f->total, .n_stages = f->n_stages, .micro_batches = p->micro_batches};
    for (int s = 0; s < f->n_stages; s++) {
        const struct split_stage *at = &f->stages[s];
        struct stage_plan plan = {0};
        if (!plan_stage(p, at->first, at->end, at->slot, at->n_slots, f->n_stages - 1 - s, &plan))
            return status_fail(STATUS_FAILED, "a stage of a pipeline that fitted does not fit");
        const struct stage_setting *setting = &p->settings[plan.setting];
        stages[s] =
            (struct composed_stage){setting->pricing, p->blocks.first[at->first],
                                    p->blocks.first[at->end], setting->choice, plan.recompute};
        out->recompute |= plan.recompute;
        out->memory_bytes = fmax(out->memory_bytes, plan.memory_bytes);
    }
    static const char *const words[PLAN_SCHEDULE_COUNT] = {"gpipe", "1f1b", "pipedream"};
    (void)snprintf(name, sizeof name, "%s of %d stages", words[p->schedule], f->n_stages);
    int window = p->schedule == PLAN_PIPEDREAM ? find_window(f->n_stages) : 1;
    return compose_plan(name, stages, f->n_stages, p->micro_batches, p->schedule, window,
                        &out->plan);
}

/* The best so far by schedule and number of stages. */
typedef struct pipelines_found best_table[PLAN_SCHEDULE_COUNT][SPLIT_MAX_STAGES + 1];

static enum status run_programme(struct pipeline_search *p, best_table best)
{
    struct split_found found[SPLIT_MAX_STAGES + 1];
    int most = p->request->max_stages ? p->request->max_stages : MOST_STAGES;
    most = most < SPLIT_MAX_STAGES ? most : SPLIT_MAX_STAGES;
    most = p->n_slots < most ? p->n_slots : most;
    most = p->blocks.n < most ? p->blocks.n : most;
    if (most < 2)
        return STATUS_OK;
    struct split_problem problem = {.n_blocks = p->blocks.n,
                                    .n_slots = p->n_slots,
                                    .max_stages = most,
                                    .user = p,
                                    .stage = split_stage_cost,
                                    .cross = split_cross_cost,
                                    .total = split_total,
                                    .options = p->request->options};
    if (p->schedule == PLAN_1F1B)
        problem.rounds = p->full - 1;
    else if (p->schedule == PLAN_PIPEDREAM)
        problem.rounds = 1;
    TRY(split_solve(&problem, found));
    for (int s = 2; s <= most; s++) {
        struct pipelines_found *slot = &best[p->schedule][s];
        if (found[s].n_stages == 0 || (slot->plan && slot->step_s <= found[s].total))
            continue;
        plan_destroy(slot->plan);
        slot->plan = NULL;
        TRY(compose_found(p, &found[s], slot));
    }
    return STATUS_OK;
}

static bool is_stopped(const struct pipelines_request *r)
{
    return r->options.stop && r->options.stop(r->options.user, INFINITY, 0);
}

/* Schedules of so many micro-batches: their settings are the same. */
static enum status try_schedules(struct pipeline_search *p, const enum plan_schedule *schedules,
                                 int n, best_table best)
{
    TRY(make_settings(p));
    for (int i = 0; i < n; i++) {
        p->schedule = schedules[i];
        if (!p->request->without[p->schedule])
            TRY(run_programme(p, best));
    }
    return STATUS_OK;
}

static enum status try_micro_batches(struct pipeline_search *p, int micro_batches, bool synchronous,
                                     best_table best)
{
    static const enum plan_schedule all[] = {PLAN_1F1B, PLAN_GPIPE, PLAN_PIPEDREAM};
    int64_t batch = p->request->pricing.graph->batch;
    if (micro_batches > batch || is_stopped(p->request))
        return STATUS_OK;
    p->micro_batches = micro_batches;
    p->samples = (batch + micro_batches - 1) / micro_batches;
    p->full = (double)batch / (double)p->samples;
    enum status st = try_schedules(p, synchronous ? all : all + 2, synchronous ? 2 : 1, best);
    destroy_settings(p);
    if (st != STATUS_STOPPED)
        return st;
    status_clear(); /* the plans found so far stay */
    return STATUS_OK;
}

/* The likely numbers of micro-batches first, in case it is stopped. */
static enum status try_all(struct pipeline_search *p, best_table best)
{
    static const int likely[] = {8, 16, 4, 32, 2, 64, 0};
    const struct pipelines_request *r = p->request;
    bool synchronous = !r->without[PLAN_1F1B] || !r->without[PLAN_GPIPE];
    int most = 4 * p->n_slots > 8 ? 4 * p->n_slots : 8;
    if (synchronous && r->micro_batches)
        TRY(try_micro_batches(p, r->micro_batches, true, best));
    for (int i = 0; synchronous && !r->micro_batches && likely[i]; i++)
        if (likely[i] <= most)
            TRY(try_micro_batches(p, likely[i], true, best));
    if (!r->without[PLAN_PIPEDREAM] && !r->synchronous)
        TRY(try_micro_batches(p, 1, false, best));
    return STATUS_OK;
}

/* Slots of one worker up to 16 workers; beyond, as near to a sixteenth as divides them. */
static int find_unit(int n_workers)
{
    int unit = (n_workers + MOST_SLOTS - 1) / MOST_SLOTS;
    while (n_workers % unit != 0)
        unit++;
    return unit;
}

/* Every stage that is tried asks for it. */
static void find_limits(struct pipeline_search *p)
{
    for (int slot = 0; slot < p->n_slots; slot++) {
        double least = INFINITY;
        for (int i = slot * p->unit; i < p->n_slots * p->unit; i++) {
            double bytes =
                (double)machine_device_memory(p->topology.machine, p->topology.device[i]);
            least = bytes > 0 ? fmin(least, bytes) : least;
            if ((i + 1) % p->unit == 0)
                p->limit_bytes[slot][(i + 1) / p->unit - slot] = least;
        }
    }
}

static enum status start(struct pipeline_search *p)
{
    struct pricing_request r = p->request->pricing;
    struct pricing *whole;
    TRY(topology_create(r.machine, r.transport, 0, r.n_workers, p->memory, &p->topology));
    p->unit = find_unit(r.n_workers);
    p->n_slots = r.n_workers / p->unit;
    find_limits(p);
    r.n_workers = 1; /* for the layers and edges alone */
    r.first_device = 0;
    r.samples = 0;
    TRY(pricing_create(&r, &p->request->options, &whole));
    enum status st = stage_find_blocks(whole, p->memory, &p->blocks);
    pricing_destroy(whole);
    return st;
}

/* Best first; those that there is no room for are destroyed. */
static int hand_over(best_table best, struct pipelines_found *found, int room)
{
    int n = 0;
    for (int s = 0; s < PLAN_SCHEDULE_COUNT; s++)
        for (int k = 0; k <= SPLIT_MAX_STAGES; k++) {
            struct pipelines_found *f = &best[s][k];
            int at = n;
            if (!f->plan)
                continue;
            while (at > 0 && found[at - 1].step_s > f->step_s)
                at--;
            if (at == room) {
                plan_destroy(f->plan);
                continue;
            }
            if (n == room)
                plan_destroy(found[--n].plan);
            memmove(found + at + 1, found + at, (size_t)(n - at) * sizeof *found);
            found[at] = *f;
            n++;
        }
    return n;
}

enum status search_pipelines(const struct pipelines_request *request, struct pipelines_found *found,
                             int room, int *n_found)
{
    best_table best;
    struct pipeline_search *p;
    arena *memory;
    *n_found = 0;
    memset(best, 0, sizeof best);
    if (request->pricing.n_workers < 2 || room < 1)
        return STATUS_OK;
    TRY(arena_create(&memory));
    enum status st;
    TRY_GOTO(st, arena_alloc(memory, sizeof *p, &p), out);
    p->request = request;
    p->memory = memory;
    TRY_GOTO(st, start(p), out);
    TRY_GOTO(st, try_all(p, best), out);
out:
    *n_found = hand_over(best, found, st == STATUS_OK ? room : 0);
    arena_destroy(memory);
    if (st == STATUS_STOPPED) {
        status_clear();
        st = STATUS_OK;
    }
    return st;
}
