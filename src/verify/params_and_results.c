/* Weights, optimizer state and results: their contents before the first instruction, and those that
 * they must have behind the last. */
#include "verify/checking.h"

static enum status fail_param(const struct program *p, int param, const char *what)
{
    return status_fail(STATUS_FAILED, "program check: worker %d, %s: %s", p->worker,
                       p->graph->params[param].name, what);
}

/* The worker holds the parameter if the plan says so, together with the workers that the plan says.
 */
static enum status check_param(const struct world *w, int worker, int param)
{
    const struct program *p = w->programs[worker];
    const struct program_param *here = &p->params[param];
    struct range region[SHAPE_MAX_RANK];
    int server = world_server_of(w, param), n = 0, first = -1;
    bool held = world_get_param(w, param, worker, region);
    if (held != (here->weight != NO_BUFFER) && server != worker)
        return fail_param(p, param, held ? "has no weight" : "has a weight");
    if (here->weight == NO_BUFFER)
        return STATUS_OK;
    for (int u = 0; u < w->n_workers; u++) {
        struct range theirs[SHAPE_MAX_RANK];
        bool holder =
            held ? world_shares_param(w, param, worker, u) : world_get_param(w, param, u, theirs);
        if (!holder)
            continue;
        if (n >= here->n_holders || here->holders[n] != u)
            return fail_param(p, param, "is held by other workers than the program says");
        first = n++ == 0 ? u : first;
    }
    bool has_state = !w->graph->params[param].group.frozen && (server < 0 || server == worker);
    bool saves = server < 0 ? first == worker : server == worker;
    if (n != here->n_holders || here->saves != saves || here->has_state != has_state)
        return fail_param(p, param,
                          "is held, kept or saved by other workers than the program says");
    return STATUS_OK;
}

static enum status put_first(struct world *w, int worker, int buffer, uint64_t symbol)
{
    return buffer == NO_BUFFER
               ? STATUS_OK
               : content_of_symbol(w->scratch, symbol, &w->contents[worker][buffer]);
}

enum status meaning_begin(struct world *w, int worker)
{
    const struct program *p = w->programs[worker];
    for (int i = 0; i < w->graph->n_params; i++) {
        TRY(check_param(w, worker, i));
        TRY(put_first(w, worker, p->params[i].weight, world_weight(w, i, worker, 0)));
        TRY(put_first(w, worker, p->params[i].master, world_weight(w, i, worker, 0)));
        for (int k = 0; k < 2; k++)
            TRY(put_first(w, worker, p->params[i].state[k], world_state(w, i, k, 0)));
    }
    return STATUS_OK;
}

static bool holds_symbol(const struct world *w, int worker, int buffer, uint64_t symbol)
{
    const struct content *c = &w->contents[worker][buffer];
    struct wanted wanted = wanted_symbol();
    wanted_add(&wanted, symbol, wanted.region);
    return c->state == CONTENT_FOREIGN || wanted_is(&wanted, c);
}

/* The number of updates in a worker's copy at the end. An asynchronous server makes one for each
 * holder, and each holder gets the weight as it is behind its own. */
static enum status find_last_version(struct world *w, int param, int worker, int *out)
{
    int before = 0, all = 0;
    bool trained = w->graph->params[param].spec.trained;
    *out = w->training ? w->n_steps : 0;
    if (!trained)
        return world_find_version(w, param, worker, w->n_steps * w->n_micros, out);
    if (w->graph->params[param].group.frozen)
        *out = 0;
    if (!w->training || !w->plan->asynchronous || w->graph->params[param].group.frozen)
        return STATUS_OK;
    for (int u = 0; u < w->n_workers; u++) {
        struct range region[SHAPE_MAX_RANK];
        bool holds = world_get_param(w, param, u, region);
        before += holds && u <= worker;
        all += holds;
    }
    *out = world_server_of(w, param) == worker ? all : before;
    return STATUS_OK;
}

/* Of a worker that updates it. */
static bool needs_master(const struct program *p, int param)
{
    return graph_param_learns(&p->graph->params[param]) &&
           p->buffers[p->params[param].weight].type != precision_get_info(p->precision)->master;
}

static enum status check_last_param(struct world *w, int worker, int param)
{
    const struct program *p = w->programs[worker];
    const struct program_param *here = &p->params[param];
    int version;
    if (here->weight == NO_BUFFER)
        return STATUS_OK;
    TRY(find_last_version(w, param, worker, &version));
    if (!holds_symbol(w, worker, here->weight, world_weight(w, param, worker, version)))
        return fail_param(p, param, "is not what all its updates make of it");
    if (w->graph->params[param].group.frozen && w->updates[worker][param] > 0)
        return fail_param(p, param, "is frozen, and is updated");
    if (!here->has_state || !w->training || !w->graph->params[param].spec.trained)
        return STATUS_OK;
    if (w->updates[worker][param] != version)
        return fail_param(p, param, "is updated too often or too rarely");
    if (needs_master(p, param) != (here->master != NO_BUFFER))
        return fail_param(p, param, "has a master though its weight is as wide, or lacks one");
    if (here->master != NO_BUFFER &&
        !holds_symbol(w, worker, here->master, world_weight(w, param, worker, version)))
        return fail_param(p, param, "has a master that is not what all its updates make of it");
    for (int k = 0; k < p->n_states; k++)
        if (here->state[k] == NO_BUFFER ||
            !holds_symbol(w, worker, here->state[k], world_state(w, param, k, version)))
            return fail_param(p, param, "has a state that not all its updates have seen");
    return STATUS_OK;
}

static enum status check_result_value(struct world *w, int worker, int buffer, int node,
                                      const struct range *region, int rank, int m)
{
    struct wanted value = wanted_region(rank, region);
    const struct program *p = w->programs[worker];
    TRY(world_want_value(w, node, m, &value));
    if (buffer < 0 || buffer >= p->n_buffers)
        return status_fail(STATUS_FAILED, "program check: worker %d, a result without a buffer",
                           worker);
    const struct content *c = &w->contents[worker][buffer];
    if (c->state != CONTENT_FOREIGN && !wanted_is(&value, c))
        return status_fail(STATUS_FAILED,
                           "program check: worker %d, buffer %d (%s) does not hold the result",
                           worker, buffer, p->buffers[buffer].name);
    return STATUS_OK;
}

static enum status check_result(struct world *w, int worker, const struct program_result *r)
{
    int loss = w->graph->n_nodes - 1;
    const struct op_piece *piece = NULL;
    bool good = r->micro >= 0 && r->micro < w->n_micros * w->n_steps;
    if (good)
        TRY(world_get_piece(w, loss, worker, r->micro, &piece));
    int64_t first = good ? world_first_sample(w, r->micro) : 0;
    const struct axes *axes = &w->graph->nodes[loss].op.output_axes;
    const struct range *samples = piece ? &piece->output[axes_find(axes, USE_BATCH)] : NULL;
    if (!samples || r->samples.begin != samples->begin + first ||
        r->samples.end != samples->end + first)
        return status_fail(STATUS_FAILED, "program check: worker %d has results of other samples",
                           worker);
    TRY(check_result_value(w, worker, r->losses, loss, piece->output, axes->rank, r->micro));
    if (w->training)
        return STATUS_OK;
    return check_result_value(w, worker, r->logits, w->graph->nodes[loss].input[0], piece->input[0],
                              piece->op.input[0].rank, r->micro);
}

/* Every micro-batch with samples here has its result, once, if the last node is a loss. */
static enum status check_results(struct world *w, int worker)
{
    const struct program *p = w->programs[worker];
    for (int m = 0; m < w->n_micros * w->n_steps; m++) {
        const struct op_piece *piece;
        int n = 0;
        TRY(world_get_piece(w, w->graph->n_nodes - 1, worker, m, &piece));
        for (int i = 0; i < p->n_results; i++)
            n += p->results[i].micro == m;
        if (n != (world_has_loss(w) && piece))
            return status_fail(STATUS_FAILED,
                               "program check: worker %d has %d results of micro-batch %d", worker,
                               n, m);
    }
    for (int i = 0; i < p->n_results; i++)
        TRY(check_result(w, worker, &p->results[i]));
    return STATUS_OK;
}

enum status meaning_end(struct world *w, int worker)
{
    for (int i = 0; i < w->graph->n_params; i++)
        TRY(check_last_param(w, worker, i));
    return check_results(w, worker);
}
