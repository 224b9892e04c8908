#include "runtime/plan_choice.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

static const struct plan_strategy *find_strategy(const char *text)
{
    for (const struct plan_strategy *s = plan_strategies(); s->name; s++)
        if (strcasecmp(s->name, text) == 0)
            return s;
    return NULL;
}

bool plan_is_file(const char *text)
{
    return strpbrk(text, "/.") || (!find_strategy(text) && access(text, F_OK) == 0);
}

/* The parts of a request besides the number of workers, as people write them. */
enum { N_OPTIONS = 11 };
struct option {
    const char *name;
    bool given;
    unsigned takes; /* enum plan_takes: which strategies have a use for it; 0: all */
};

static void list_options(const struct plan_request *r, struct option list[N_OPTIONS])
{
    const struct option options[N_OPTIONS] = {
        {"--micro-batches", r->micro_batches != 0, 0},
        {"--sync", r->sync != PLAN_RING, PLAN_TAKES_SYNC},
        {"--bucket-bytes", r->bucket_bytes != 0, 0},
        {"--workers-per-node", r->workers_per_node != 0, PLAN_TAKES_SYNC},
        {"--servers", r->n_servers != 0, PLAN_TAKES_SERVERS},
        {"--asynchronous", r->asynchronous, PLAN_TAKES_SERVERS},
        {"--window", r->window != 0, PLAN_TAKES_WINDOW},
        {"--model-workers", r->model_workers != 0, PLAN_TAKES_MODEL_WORKERS},
        {"--batch-norm", r->batch_norm != PLAN_NORM_BATCH, 0},
        {"--recompute", r->segments != 0, 0},
        {"--replicas", r->n_stages != 0, PLAN_TAKES_REPLICAS},
    };
    memcpy(list, options, sizeof options);
}

enum status plan_check_bare(const struct plan_request *request, const char *plan)
{
    struct option options[N_OPTIONS];
    list_options(request, options);
    for (int i = 0; i < N_OPTIONS; i++)
        if (options[i].given)
            return status_fail(STATUS_USAGE, "%s is for plans by name: %s says it itself",
                               options[i].name, plan);
    return STATUS_OK;
}

static enum status fail_no_use(const struct plan_strategy *s, const struct option *option)
{
    char users[128] = "";
    size_t n = 0;
    for (const struct plan_strategy *u = plan_strategies(); u->name; u++)
        if (u->takes & option->takes && n < sizeof users)
            n += (size_t)snprintf(users + n, sizeof users - n, "%s%s", n ? ", " : "", u->name);
    bool may = option->takes & PLAN_TAKES_SERVERS && s->takes & PLAN_TAKES_SYNC;
    return status_fail(STATUS_USAGE, "the strategy %s has no use for %s%s (these have: %s)",
                       s->name, option->name, may ? " without --sync server" : "", users);
}

enum status plan_check_used(const struct plan_request *request, const char *strategy)
{
    struct option options[N_OPTIONS];
    const struct plan_strategy *s = find_strategy(strategy);
    unsigned served = request->sync == PLAN_SERVER ? PLAN_TAKES_SERVERS : 0;
    list_options(request, options);
    for (int i = 0; s && i < N_OPTIONS; i++)
        if (options[i].given && options[i].takes && !(options[i].takes & (s->takes | served)))
            return fail_no_use(s, &options[i]);
    if (s && request->workers_per_node && request->sync != PLAN_HIERARCHICAL)
        return status_fail(STATUS_USAGE, "--workers-per-node is for --sync hierarchical");
    return STATUS_OK;
}

enum status plan_choose(const char *text, const struct graph *graph,
                        const struct plan_request *request, struct plan **out)
{
    if (!plan_is_file(text)) {
        struct plan_request asked = *request;
        TRY(plan_check_used(request, text));
        asked.n_workers = asked.n_workers ? asked.n_workers : 1;
        return plan_build(text, graph, &asked, out);
    }
    struct plan *plan;
    TRY(plan_check_bare(request, text));
    TRY(plan_read(text, graph, &plan));
    int workers = plan->n_workers;
    if (request->n_workers && request->n_workers != workers) {
        plan_destroy(plan);
        return status_fail(STATUS_USAGE,
                           "%s is for %d worker%s, %d %s asked for: leave --workers out, or make "
                           "another plan ('cleave plan %s --workers %d -o FILE')",
                           text, workers, workers == 1 ? "" : "s", request->n_workers,
                           request->n_workers == 1 ? "was" : "were", graph->name,
                           request->n_workers);
    }
    *out = plan;
    return STATUS_OK;
}
