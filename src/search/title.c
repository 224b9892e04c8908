#include "search/title.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const struct title_word title_words[] = {
    {"best cut per layer", "best cut per layer: found by the search"},
    {"pipeline", "pipeline 13+3: stages of 13 and of 3 workers (4x2: 4 of 2), 1F1B"},
    {"gpipe", "gpipe: a pipeline, all forward, then all backward"},
    {"pipedream", "pipedream: a pipeline with older weights"},
    {"recompute", "recompute: outputs are computed again instead of kept"},
    {"owt", "owt: convolutions along the batch, linear layers along outputs"},
    {"hybrid", "hybrid 8x2: 8 parts of the batch times 2 of the channels"},
    {"layers", "layers: a stage for each worker"},
    {"ps", "ps: parameter servers"},
    {"sums by node", "sums by node: of gradients, within nodes first"},
    {NULL, NULL}};

/* Appends, like printf. */
#define ADD(title, ...) \
    ((void)snprintf((title) + strlen(title), CANDIDATE_TITLE_BYTES - strlen(title), __VA_ARGS__))

/* "4x2" where all are alike, else "13+3"; of many the first. */
static void add_stages(char title[CANDIDATE_TITLE_BYTES], const struct plan *p)
{
    enum { MOST_NAMED = 6 };
    bool even = true;
    for (int i = 1; i < p->n_stages; i++)
        even = even && p->stages[i].n_workers == p->stages[0].n_workers;
    if (even) {
        ADD(title, " %dx%d", p->n_stages, p->stages[0].n_workers);
        return;
    }
    for (int i = 0; i < p->n_stages && i < MOST_NAMED; i++)
        ADD(title, "%c%d", i ? '+' : ' ', p->stages[i].n_workers);
    if (p->n_stages > MOST_NAMED)
        ADD(title, "+.. (%d stages)", p->n_stages);
}

static void add_kind(char title[CANDIDATE_TITLE_BYTES], const struct candidate *c)
{
    static const char *const schedules[PLAN_SCHEDULE_COUNT] = {
        [PLAN_GPIPE] = "gpipe", [PLAN_1F1B] = "pipeline", [PLAN_PIPEDREAM] = "pipedream"};
    static const char *const families[FAMILY_COUNT] = {
        [FAMILY_SERIAL] = "serial", [FAMILY_DATA] = "data",
        [FAMILY_OWT] = "owt",       [FAMILY_HYBRID] = "hybrid",
        [FAMILY_MODEL] = "model",   [FAMILY_SPATIAL] = "spatial",
        [FAMILY_SERVER] = "ps",     [FAMILY_LAYERS] = "layers",
        [FAMILY_PIPELINE] = NULL,   [FAMILY_PER_LAYER] = "best cut per layer"};
    if (c->family == FAMILY_PIPELINE) {
        ADD(title, "%s", schedules[c->plan->schedule]);
        add_stages(title, c->plan);
    } else if (c->family == FAMILY_HYBRID) {
        ADD(title, "%s %dx%d", families[c->family], c->mesh[0], c->mesh[1]);
    } else {
        ADD(title, "%s", families[c->family]);
    }
}

/* Data parallelism in proportion to the speed of the devices. */
static bool is_uneven(const struct candidate *c)
{
    const struct plan_layer *last = &c->plan->layers[c->plan->n_layers - 1];
    return c->family == FAMILY_DATA && last->n_cuts > 0 && last->cut[0].sizes;
}

const char *candidate_title(const struct candidate *c, int n_workers,
                            char title[CANDIDATE_TITLE_BYTES])
{
    const struct plan *p = c->plan;
    title[0] = '\0';
    if (strncmp(c->name, "edit ", 5) == 0) {
        ADD(title, "%s", c->name);
        return title;
    }
    add_kind(title, c);
    if (p->n_workers < n_workers && c->family != FAMILY_SERIAL)
        ADD(title, " on %d", p->n_workers);
    if (is_uneven(c))
        ADD(title, ", uneven parts");
    if (p->asynchronous)
        ADD(title, ", asynchronous");
    if (p->sync == PLAN_TREE)
        ADD(title, ", sums along a tree");
    if (p->sync == PLAN_HIERARCHICAL)
        ADD(title, ", sums by node");
    if (p->micro_batches > 1)
        ADD(title, ", %d micro-batches", p->micro_batches);
    if (plan_recomputes(p))
        ADD(title, ", recompute");
    return title;
}

/* A plan that needs much less memory is another one, however alike it is. */
static const double NEAR_MEMORY = 1.5;

bool candidates_are_kin(const struct candidate *a, const struct candidate *b)
{
    const struct plan *p = a->plan, *q = b->plan;
    bool alike = a->family == b->family && a->stale == b->stale && p->n_workers == q->n_workers &&
                 p->n_stages == q->n_stages && (p->n_stages == 1 || p->schedule == q->schedule);
    double slower_s = fmax(a->step_s, b->step_s), faster_s = fmin(a->step_s, b->step_s);
    double more = fmax((double)a->memory_bytes, (double)b->memory_bytes);
    double less = fmin((double)a->memory_bytes, (double)b->memory_bytes); /* 0: not known */
    bool as_large = less <= 0 || more <= NEAR_MEMORY * less;
    return alike && (a->family == FAMILY_PER_LAYER ||
                     (as_large && slower_s <= (1 + CANDIDATES_GUESSED) * faster_s));
}
