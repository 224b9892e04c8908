#include "cli/strategy_options.h"

#include "base/text.h"
#include "machine/machine.h"
#include "runtime/plan_choice.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { MAX_STRATEGIES = 32 };

#define STRATEGIES                                                                   \
    "  serial     one worker\n"                                                      \
    "  data       every layer along the batch\n"                                     \
    "  model      every layer along its channels\n"                                  \
    "  spatial    along height and width\n"                                          \
    "  owt        convolutions along the batch, linear layers along their outputs\n" \
    "  hybrid     along batch and channels\n"                                        \
    "  layers     a stage for each worker, one after the other\n"                    \
    "  gpipe      stages with micro-batches: all forward, then all backward\n"       \
    "  1f1b       stages with micro-batches: forward and backward in turn\n"         \
    "  pipedream  stages that do not wait for each other's updates\n"                \
    "  ps         along the batch, with parameter servers\n"

const char plan_notes[] = "A plan is a file ('cleave plan make' writes one) or one of\n" STRATEGIES;

const char strategy_notes[] = "Strategies:\n" STRATEGIES;

const char *strategy_names_help(void)
{
    static char text[256];
    size_t used = 0;
    for (const struct plan_strategy *s = plan_strategies(); s->name && used < sizeof text; s++) {
        const char *between = s == plan_strategies() ? "" : s[1].name ? ", " : " or ";
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s", between, s->name);
    }
    return text;
}

enum status strategy_check_plan(const char *plan, const char *model, bool automatic)
{
    const char *names[MAX_STRATEGIES + 2];
    int n = 0;
    for (const struct plan_strategy *s = plan_strategies(); s->name && n < MAX_STRATEGIES; s++)
        names[n++] = s->name;
    if (automatic)
        names[n++] = "auto";
    names[n] = NULL;
    for (int i = 0; plan && names[i]; i++)
        if (strcasecmp(names[i], plan) == 0)
            return STATUS_OK;
    if (!plan || plan[0] == '{' || plan_is_file(plan))
        return STATUS_OK;
    if (strcasecmp(plan, "auto") == 0)
        return status_fail(STATUS_USAGE,
                           "--plan auto is for training: 'cleave plan %s' compares all plans, and "
                           "with -o FILE writes the best one, for --plan FILE",
                           model);
    return text_fail_unknown("plan", plan, names);
}

static enum status read_segments(const char *text, int *n_segments)
{
    int64_t n = PLAN_SEGMENTS_AUTO;
    if (strcmp(text, "auto") != 0)
        TRY(text_parse_integer("--recompute, where it is not auto,", text, 1, PLAN_MAX_SEGMENTS,
                               &n));
    *n_segments = (int)n;
    return STATUS_OK;
}

/* All nodes must be alike. */
static enum status find_workers_per_node(const char *text, int *out)
{
    struct machine *m;
    TRY(machine_parse(text, &m));
    bool alike = true;
    for (int i = 1; i < m->n_nodes; i++)
        alike = alike && m->nodes[i].n_devices == m->nodes[0].n_devices;
    *out = m->nodes[0].n_devices;
    machine_destroy(m);
    if (alike)
        return STATUS_OK;
    return status_fail(STATUS_USAGE,
                       "--sync hierarchical: the nodes of %.80s are of several sizes: say how many "
                       "workers are summed first, --workers-per-node N",
                       text);
}

enum status strategy_request(struct strategy_options *o, const char *machine,
                             struct plan_request *request)
{
    *request = (struct plan_request){.n_workers = (int)o->workers,
                                     .micro_batches = (int)o->micro_batches,
                                     .sync = (enum plan_sync)o->sync,
                                     .bucket_bytes = o->bucket_bytes,
                                     .workers_per_node = (int)o->workers_per_node,
                                     .n_servers = (int)o->servers,
                                     .asynchronous = o->asynchronous,
                                     .window = (int)o->window,
                                     .batch_norm = (enum plan_batch_norm)o->batch_norm,
                                     .model_workers = (int)o->model_workers};
    bool told = machine && strcmp(machine, "local") != 0;
    if (request->sync == PLAN_HIERARCHICAL && !o->workers_per_node && !told)
        return status_fail(STATUS_USAGE,
                           "--sync hierarchical sums inside every node first: say how "
                           "many workers a node has, --workers-per-node N");
    if (o->recompute)
        TRY(read_segments(o->recompute, &request->segments));
    if (request->sync == PLAN_HIERARCHICAL && !o->workers_per_node)
        TRY(find_workers_per_node(machine, &request->workers_per_node));
    if (!o->replicas)
        return STATUS_OK;
    int64_t replicas[STRATEGY_MAX_STAGES];
    TRY(text_parse_integers("--replicas", o->replicas, 1, PLAN_MAX_WORKERS, STRATEGY_MAX_STAGES,
                            replicas, &request->n_stages));
    for (int i = 0; i < request->n_stages; i++)
        o->stages[i] = (int)replicas[i];
    request->replicas = o->stages;
    return STATUS_OK;
}
