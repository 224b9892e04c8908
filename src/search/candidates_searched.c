#include "search/candidates_searched.h"

#include "search/layers.h"
#include "search/pipelines.h"

#include <stdio.h>
#include <string.h>

enum { MOST_PIPELINES = 12 };
/* No further share is tried once the searches before compared so many sums. */
static const double MOST_SUMS = 3e8;

/* How much of the sums of gradients is taken to hide behind backward. The additive model cannot
 * know how much does, and the best share differs from case to case (of AlexNet, VGG-16, ResNet-50
 * and Inception-v3 on 4 to 16 P100 or V100, each of these was best for one): so it is searched for
 * several, and the clock decides. Of GPUs that all hides is never taken: plans that differ in their
 * sums alone would be alike. Workers that are cores do the sums themselves, and each further plan
 * has to be measured: of them only all and nothing are tried. */
static const int gpu_shares[] = {90, 0, 70, 50, 95, 85}; /* percent; the likely ones first */
static const int cpu_shares[] = {100, 0};

void known_costs_take(struct known_costs *to, const struct predict_request *request,
                      const struct prediction *p)
{
    *to = (struct known_costs){.known = true,
                               .profile = request->local ? request->profile : NULL,
                               .kinds_here = request->kinds_here,
                               .busy = p->measured.setting,
                               .alone = p->measured.alone,
                               .scales = request->scales,
                               .transport = request->transport,
                               .n_states = request->n_states};
    memcpy(to->device, p->measured.device, sizeof to->device);
    to->busy.device = to->alone.device = to->device;
}

enum status known_costs_find_sources(const struct known_costs *costs, const struct machine *machine,
                                     arena *memory, const struct cost_source **out)
{
    struct cost_source *sources;
    TRY(arena_alloc_array(memory, (size_t)machine->n_kinds, sizeof *sources, &sources));
    for (int k = 0; k < machine->n_kinds; k++) {
        bool here = !costs->kinds_here || costs->kinds_here[k];
        sources[k] = (struct cost_source){.profile = here ? costs->profile : NULL,
                                          .busy = costs->busy,
                                          .alone = costs->alone,
                                          .kind = &machine->kinds[k],
                                          .scales = costs->scales};
    }
    *out = sources;
    return STATUS_OK;
}

/* ---- per layer ---- */

/* The same parts of so many iterations. Sizes are proportions, which many numbers express. */
static bool same_parts(const struct plan_cut *a, const struct plan_cut *b, int64_t extent)
{
    if (a->loop != b->loop || a->n_parts != b->n_parts)
        return false;
    for (int i = 0; (a->sizes || b->sizes) && i < a->n_parts; i++)
        if (plan_part(a, i, extent).end != plan_part(b, i, extent).end)
            return false;
    return true;
}

static bool is_same(const struct graph *graph, const struct plan *a, const struct plan *b)
{
    if (a->n_workers != b->n_workers || a->n_stages != b->n_stages || a->sync != b->sync)
        return false;
    for (int i = 1; i < a->n_layers; i++) {
        const struct plan_layer *x = &a->layers[i], *y = &b->layers[i];
        struct loop_nest nest;
        if (x->n_cuts != y->n_cuts || x->n_pieces != y->n_pieces)
            return false;
        op_get_loops(&graph->nodes[i].op, &nest);
        for (int k = 0; k < x->n_cuts; k++)
            if (!same_parts(&x->cut[k], &y->cut[k], nest.loop[x->cut[k].loop].extent))
                return false;
        if (memcmp(x->workers, y->workers, (size_t)x->n_pieces * sizeof *x->workers) != 0)
            return false;
    }
    return true;
}

static bool is_known(const struct graph *graph, const struct candidate_list *to,
                     const struct plan *plan)
{
    for (int i = 0; i < to->n; i++)
        if (to->list[i].plan->micro_batches == 1 && !to->list[i].plan->layers[1].recompute &&
            is_same(graph, to->list[i].plan, plan))
            return true;
    return false;
}

/* A search that was stopped, or finds nothing, adds nothing. */
static enum status forgive(enum status st)
{
    if (st != STATUS_STOPPED && st != STATUS_USAGE && st != STATUS_NO_FIT)
        return st;
    status_clear();
    return STATUS_OK;
}

static enum status append_new(const struct graph *graph, struct candidate_list *to,
                              const char *name, struct plan *plan)
{
    if (!is_known(graph, to, plan))
        return candidate_append(to, name, FAMILY_PER_LAYER, plan);
    plan_destroy(plan);
    return STATUS_OK;
}

/* The same with gradients summed within nodes first. */
static enum status add_hierarchical(const struct pricing_request *pricing, const char *name,
                                    const struct plan *plan, struct candidate_list *to)
{
    int per_node = pricing->machine->nodes[0].n_devices;
    char full[CANDIDATE_NAME_BYTES];
    struct plan *copy;
    if (pricing->machine->n_nodes < 2 || per_node < 2 || per_node >= pricing->n_workers)
        return STATUS_OK;
    TRY(plan_copy(plan, &copy));
    copy->sync = PLAN_HIERARCHICAL;
    copy->workers_per_node = per_node;
    (void)snprintf(full, sizeof full, "%s by node", name);
    return append_new(pricing->graph, to, full, copy);
}

static enum status add_searched(const struct pricing *p, const char *name,
                                const struct search_options *options, struct candidate_list *to,
                                double *n_sums)
{
    struct layers_request r = {.name = name, .options = *options};
    struct layers_answer *a = NULL;
    enum status st = search_layers_priced(&r, p, &a);
    if (st != STATUS_OK)
        return forgive(st);
    struct plan *plan = a->plan;
    a->plan = NULL;
    *n_sums = a->n_sums;
    layers_answer_destroy(a);
    st = add_hierarchical(&p->request, name, plan, to);
    if (st == STATUS_OK)
        return append_new(p->request.graph, to, name, plan);
    plan_destroy(plan);
    return st;
}

static enum status add_shares(struct pricing *p, const int *shares, int n,
                              const struct search_options *options, struct candidate_list *to)
{
    double all = 0;
    for (int i = 0; i < n && all < MOST_SUMS; i++) {
        char name[CANDIDATE_NAME_BYTES] = "per layer";
        double n_sums = 0;
        if (shares[i] > 0)
            (void)snprintf(name, sizeof name, "per layer %d%%", shares[i]);
        pricing_hide_sync(p, shares[i] / 100.0);
        TRY(add_searched(p, name, options, to, &n_sums));
        all += n_sums;
    }
    return STATUS_OK;
}

static bool has_cores(const struct machine *m)
{
    for (int i = 0; i < m->n_kinds; i++)
        if (m->kinds[i].class == MACHINE_CPU)
            return true;
    return false;
}

static enum status add_per_layer(const struct pricing_request *pricing,
                                 const struct search_options *options, struct candidate_list *to)
{
    enum { N_GPU = sizeof gpu_shares / sizeof *gpu_shares };
    enum { N_CPU = sizeof cpu_shares / sizeof *cpu_shares };
    struct pricing *p;
    enum status st = pricing_create(pricing, options, &p);
    if (st != STATUS_OK)
        return forgive(st);
    st = has_cores(pricing->machine) ? add_shares(p, cpu_shares, N_CPU, options, to)
                                     : add_shares(p, gpu_shares, N_GPU, options, to);
    pricing_destroy(p);
    return st;
}

/* ---- pipelines ---- */

static void name_pipeline(const struct plan *plan, bool recompute, char name[CANDIDATE_NAME_BYTES])
{
    static const char *const schedules[PLAN_SCHEDULE_COUNT] = {
        [PLAN_GPIPE] = "gpipe", [PLAN_1F1B] = "1f1b", [PLAN_PIPEDREAM] = "pipedream"};
    size_t room = CANDIDATE_NAME_BYTES - 16;
    size_t used = (size_t)snprintf(name, room, "%s", schedules[plan->schedule]);
    for (int s = 0; s < plan->n_stages && used < room; s++)
        used += (size_t)snprintf(name + used, room - used, "%c%d", s == 0 ? ' ' : '-',
                                 plan->stages[s].n_workers);
    used = used < room ? used : room - 1;
    if (plan->micro_batches > 1)
        used += (size_t)snprintf(name + used, 12, " m%d", plan->micro_batches);
    if (recompute)
        (void)snprintf(name + used, 4, " r");
}

static enum status add_pipelines(const struct candidate_request *request,
                                 const struct pricing_request *pricing,
                                 const struct search_options *options, struct candidate_list *to)
{
    struct pipelines_request r = {
        .pricing = *pricing, .micro_batches = (int)request->micro_batches, .options = *options};
    struct pipelines_found found[MOST_PIPELINES];
    int n = 0;
    enum status st = search_pipelines(&r, found, MOST_PIPELINES, &n);
    if (st != STATUS_OK)
        return forgive(st);
    for (int i = 0; i < n; i++) {
        char name[CANDIDATE_NAME_BYTES];
        name_pipeline(found[i].plan, found[i].recompute, name);
        if (st == STATUS_OK)
            st = candidate_append(to, name, FAMILY_PIPELINE, found[i].plan);
        else
            plan_destroy(found[i].plan);
    }
    return st;
}

static enum status list_with(const struct candidate_request *request,
                             const struct known_costs *costs, const struct search_options *layers,
                             const struct search_options *pipelines, arena *memory,
                             struct candidate_list *to)
{
    struct pricing_request pricing = {.graph = request->graph,
                                      .machine = request->machine,
                                      .transport = costs->transport,
                                      .precision = request->precision,
                                      .n_workers = request->n_workers,
                                      .n_states = costs->n_states,
                                      .norms_by_worker = request->batch_norm == PLAN_NORM_WORKER};
    TRY(known_costs_find_sources(costs, request->machine, memory, &pricing.sources));
    TRY(add_per_layer(&pricing, layers, to));
    return add_pipelines(request, &pricing, pipelines, to);
}

enum status candidates_list_searched(const struct candidate_request *request,
                                     const struct known_costs *costs,
                                     const struct search_options *layers,
                                     const struct search_options *pipelines,
                                     struct candidate_list *to)
{
    arena *memory;
    TRY(arena_create(&memory));
    enum status st = list_with(request, costs, layers, pipelines, memory, to);
    arena_destroy(memory);
    return st;
}
