/* The named strategies with the variants of each that make sense on so many workers. */
#include "base/array.h"
#include "search/candidates.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- the list ---- */

enum status candidate_append(struct candidate_list *to, const char *name,
                             enum candidate_family family, struct plan *plan)
{
    enum status st;
    struct candidate *c;
    TRY_GOTO(st, array_reserve(to->memory, &to->list, to->n + 1, &to->capacity, sizeof *c), fail);
    c = &to->list[to->n];
    *c = (struct candidate){.family = family, .plan = plan};
    (void)snprintf(c->name, sizeof c->name, "%s%s", name, to->suffix);
    c->stale = plan_is_stale(plan);
    plan->batch_norm = to->batch_norm;
    TRY_GOTO(st, arena_copy_text(plan->memory, c->name, &plan->name), fail);
    to->n++;
    return STATUS_OK;
fail:
    plan_destroy(plan);
    return st;
}

/* ---- one variant ---- */

struct lister {
    const struct candidate_request *request;
    struct candidate_list *to;
    int n_workers;
};

/* A strategy that cannot use so many workers for this network is no candidate. */
static enum status make(const struct lister *l, const char *strategy, struct plan_request how,
                        struct plan **out)
{
    how.n_workers = l->n_workers;
    *out = NULL;
    enum status st = plan_build(strategy, l->request->graph, &how, out);
    if (st != STATUS_USAGE)
        return st;
    status_clear();
    return STATUS_OK;
}

static enum status add(const struct lister *l, const char *strategy, enum candidate_family family,
                       struct plan_request how, const char *name)
{
    struct plan *plan;
    TRY(make(l, strategy, how, &plan));
    return plan ? candidate_append(l->to, name, family, plan) : STATUS_OK;
}

/* "hybrid 8x2" */
static enum status add_grid(const struct lister *l, const char *strategy,
                            enum candidate_family family, struct plan_request how, int one,
                            int other)
{
    char name[CANDIDATE_NAME_BYTES];
    (void)snprintf(name, sizeof name, "%s %dx%d", strategy, one, other);
    return add(l, strategy, family, how, name);
}

/* ---- one stage ---- */

static int workers_per_node(const struct machine *m, int n_workers)
{
    int n = m->nodes[0].n_devices;
    return m->n_nodes > 1 && n > 1 && n < n_workers ? n : 0;
}

static const struct machine_kind *kind_of(const struct machine *m, int worker)
{
    return &m->kinds[m->devices[worker % m->n_devices].kind];
}

static bool is_mixed(const struct lister *l)
{
    const struct machine *m = l->request->machine;
    for (int i = 1; i < l->n_workers; i++)
        if (kind_of(m, i) != kind_of(m, 0))
            return true;
    return false;
}

/* Samples in proportion to the speed of the devices, in thousandths of the fastest. */
static enum status list_uneven(const struct lister *l)
{
    const struct machine *m = l->request->machine;
    struct plan *plan;
    enum arithmetic products = precision_get_info(l->request->precision)->products;
    int64_t *sizes;
    double most = 0;
    if (!is_mixed(l))
        return STATUS_OK;
    TRY(make(l, "data", (struct plan_request){0}, &plan));
    if (!plan)
        return STATUS_OK;
    enum status st = arena_alloc_array(plan->memory, (size_t)l->n_workers, sizeof *sizes, &sizes);
    if (st != STATUS_OK) {
        plan_destroy(plan);
        return st;
    }
    for (int i = 0; i < l->n_workers; i++)
        most = fmax(most, machine_kind_rate(kind_of(m, i), products).reached);
    for (int i = 0; i < l->n_workers; i++)
        sizes[i] = 1 + (int64_t)(999 * machine_kind_rate(kind_of(m, i), products).reached / most);
    for (int i = 1; i < plan->n_layers; i++)
        plan->layers[i].cut[0].sizes = sizes;
    return candidate_append(l->to, "data uneven", FAMILY_DATA, plan);
}

/* A strategy, and on several nodes the same with gradients summed within nodes first. */
static enum status add_both(const struct lister *l, const char *strategy,
                            enum candidate_family family, struct plan_request how, const char *name)
{
    char full[CANDIDATE_NAME_BYTES];
    TRY(add(l, strategy, family, how, name));
    how.workers_per_node = workers_per_node(l->request->machine, l->n_workers);
    how.sync = PLAN_HIERARCHICAL;
    (void)snprintf(full, sizeof full, "%s by node", name);
    return how.workers_per_node ? add(l, strategy, family, how, full) : STATUS_OK;
}

static enum status list_meshes(const struct lister *l)
{
    for (int model = 2; model <= l->n_workers / 2; model++) {
        char name[CANDIDATE_NAME_BYTES];
        struct plan_request how = {.model_workers = model};
        int first = l->to->n, batch = l->n_workers / model;
        if (l->n_workers % model != 0)
            continue;
        (void)snprintf(name, sizeof name, "hybrid %dx%d", batch, model);
        TRY(add_both(l, "hybrid", FAMILY_HYBRID, how, name));
        for (int i = first; i < l->to->n; i++)
            memcpy(l->to->list[i].mesh, (const int[]){batch, model}, sizeof l->to->list[i].mesh);
    }
    return STATUS_OK;
}

static enum status list_flat(const struct lister *l)
{
    const struct plan_request plain = {0}, asynchronous = {.asynchronous = true};
    TRY(add(l, "data", FAMILY_DATA, (struct plan_request){.sync = PLAN_TREE}, "data tree"));
    TRY(list_uneven(l));
    int per_node = workers_per_node(l->request->machine, l->n_workers);
    struct plan_request by_node = {.sync = PLAN_HIERARCHICAL, .workers_per_node = per_node};
    if (per_node)
        TRY(add(l, "data", FAMILY_DATA, by_node, "data by node"));
    TRY(add_both(l, "owt", FAMILY_OWT, plain, "owt"));
    TRY(list_meshes(l));
    TRY(add(l, "model", FAMILY_MODEL, plain, "model"));
    TRY(add_both(l, "spatial", FAMILY_SPATIAL, plain, "spatial"));
    TRY(add(l, "ps", FAMILY_SERVER, plain, "ps"));
    return add(l, "ps", FAMILY_SERVER, asynchronous, "ps asynchronous");
}

/* ---- pipelines ---- */

enum { MAX_STAGES = 256 };

/* As the advice of a single plan does (predict/advise.h). */
static enum status recompute(const struct lister *l, struct plan *plan)
{
    enum status st = plan_recompute_segments(plan, l->request->graph, PLAN_SEGMENTS_AUTO);
    if (st != STATUS_OK)
        plan_destroy(plan);
    return st;
}

static enum status add_again(const struct lister *l, const char *strategy,
                             enum candidate_family family, struct plan_request how,
                             const char *name)
{
    char full[CANDIDATE_NAME_BYTES];
    struct plan *plan;
    TRY(make(l, strategy, how, &plan));
    if (!plan)
        return STATUS_OK;
    TRY(recompute(l, plan));
    (void)snprintf(full, sizeof full, "%s r", name);
    return candidate_append(l->to, full, family, plan);
}

/* Stages that are wider than a node sum their gradients within nodes first, too. */
static enum status add_pipeline(const struct lister *l, const char *strategy,
                                struct plan_request how)
{
    char name[CANDIDATE_NAME_BYTES], full[CANDIDATE_NAME_BYTES];
    (void)snprintf(name, sizeof name, "%s %dx%d m%d", strategy, how.n_stages, how.replicas[0],
                   how.micro_batches);
    TRY(add(l, strategy, FAMILY_PIPELINE, how, name));
    TRY(add_again(l, strategy, FAMILY_PIPELINE, how, name));
    how.workers_per_node = workers_per_node(l->request->machine, l->n_workers);
    if (how.workers_per_node == 0 || how.replicas[0] <= how.workers_per_node)
        return STATUS_OK;
    how.sync = PLAN_HIERARCHICAL;
    (void)snprintf(full, sizeof full, "%.40s by node", name);
    TRY(add(l, strategy, FAMILY_PIPELINE, how, full));
    return add_again(l, strategy, FAMILY_PIPELINE, how, full);
}

static enum status list_micro_batches(const struct lister *l, const char *strategy,
                                      struct plan_request how)
{
    int64_t asked = l->request->micro_batches, batch = l->request->graph->batch / how.replicas[0];
    int64_t m = asked ? asked : plan_more_micro_batches(1, batch);
    for (; m > 0 && m <= batch; m = asked ? 0 : plan_more_micro_batches(m, batch)) {
        how.micro_batches = (int)m;
        TRY(add_pipeline(l, strategy, how));
    }
    return STATUS_OK;
}

static enum status list_stages(const struct lister *l, int n_stages)
{
    int replicas[MAX_STAGES] = {1};
    struct plan_request how = {.replicas = replicas, .n_stages = n_stages};
    for (int i = 0; i < n_stages; i++)
        replicas[i] = l->n_workers / n_stages;
    TRY(list_micro_batches(l, "gpipe", how));
    TRY(list_micro_batches(l, "1f1b", how));
    return add_grid(l, "pipedream", FAMILY_PIPELINE, how, n_stages, replicas[0]);
}

/* Even ones; the search has the others. */
static enum status list_pipelines(const struct lister *l)
{
    TRY(add(l, "layers", FAMILY_LAYERS, (struct plan_request){0}, "layers"));
    for (int n = 2; n <= l->n_workers && n <= MAX_STAGES; n++)
        if (l->n_workers % n == 0)
            TRY(list_stages(l, n));
    return STATUS_OK;
}

/* ---- variants that need less memory ---- */

static enum status list_thrifty(const struct lister *l, const char *strategy,
                                enum candidate_family family)
{
    int64_t batch = l->request->graph->batch;
    struct plan_request how = {0};
    TRY(add_again(l, strategy, family, how, strategy));
    for (int64_t m = plan_more_micro_batches(1, batch); m; m = plan_more_micro_batches(m, batch))
        for (int again = 0; again < 2; again++) {
            char name[CANDIDATE_NAME_BYTES];
            struct plan *plan;
            how.micro_batches = (int)m;
            (void)snprintf(name, sizeof name, "%s m%d%s", strategy, (int)m, again ? " r" : "");
            TRY(make(l, strategy, how, &plan));
            if (!plan)
                continue;
            plan->schedule = PLAN_1F1B; /* a micro-batch goes backward before the next one starts */
            if (again)
                TRY(recompute(l, plan));
            TRY(candidate_append(l->to, name, family, plan));
        }
    return STATUS_OK;
}

enum status candidates_list_thrifty(const struct candidate_request *request, int n_workers,
                                    struct candidate_list *to)
{
    struct lister l = {.request = request, .to = to, .n_workers = n_workers};
    return n_workers == 1 ? list_thrifty(&l, "serial", FAMILY_SERIAL)
                          : list_thrifty(&l, "data", FAMILY_DATA);
}

enum status candidates_list_simple(const struct candidate_request *request, int n_workers,
                                   struct candidate_list *to)
{
    struct lister l = {.request = request, .to = to, .n_workers = n_workers};
    int n = to->n;
    if (n_workers == 1)
        TRY(add(&l, "serial", FAMILY_SERIAL, (struct plan_request){0}, "serial"));
    else
        TRY(add(&l, "data", FAMILY_DATA, (struct plan_request){0}, "data"));
    for (; n < to->n; n++)
        to->list[n].plain = true;
    return STATUS_OK;
}

enum status candidates_list_others(const struct candidate_request *request, int n_workers,
                                   struct candidate_list *to)
{
    struct lister l = {.request = request, .to = to, .n_workers = n_workers};
    if (n_workers == 1)
        return STATUS_OK;
    TRY(list_flat(&l));
    return list_pipelines(&l);
}
