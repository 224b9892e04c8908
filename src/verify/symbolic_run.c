/* A run of the programs on symbols instead of numbers.
 *
 * Every buffer has a content (contents.h). An instruction must be given the region of the value,
 * the sum of all gradients, or the version of the weight that expected.c derives from graph and
 * plan, or the check fails there. Its output then holds its symbol:
 *
 *     conv1 forward   reads images: value(images)     writes value(conv1)
 *     bn1 forward     reads buffer 7: value(conv1)?   fails if conv1 was left out, or its rows
 * moved
 *
 * So a step that is left out, done twice or done on the wrong thing shows at the first instruction
 * that reads the result, or at the end: every weight must have come through all its updates, each
 * by the gradients of all samples and all holders.
 *
 * This proves which result is computed from which, not that kernels and transports do what they are
 * asked, nor that memory is used in order (memory_order.c). A program that is run alone receives
 * contents of which nothing is known, and nothing is proved of results that depend on them;
 * verify_programs proves it all. */
#include "verify/checking.h"

#include <string.h>

/* An instruction that is being applied. */
struct act {
    struct world *w;
    int worker, number;
    const struct program *p;
    const struct instr *instr;
    int m;
};

static struct content *at(const struct act *a, int buffer)
{
    return &a->w->contents[a->worker][buffer];
}

/* ---- flatten without an instruction: the same bytes, seen in another shape ---- */

static enum status rename_value(const struct act *a, int node, const struct op_piece *piece,
                                struct content *c, bool *done)
{
    struct wanted value = wanted_region(piece->op.input[0].rank, piece->input[0]);
    TRY(world_want_value(a->w, a->w->graph->nodes[node].input[0], a->m, &value));
    *done = wanted_is(&value, c);
    return *done ? content_of_region(a->w->scratch, world_value(a->w, node, a->m),
                                     piece->op.output.rank, piece->output, c)
                 : STATUS_OK;
}

/* The content of a buffer as a tensor of this shape. A value is flattened where it is all there;
 * gradients are unflattened in any state, because what the flat tensor's consumers write is not
 * summed up there, but where the tensor before it has its sum. */
static enum status see(const struct act *a, int buffer, const struct shape *shape,
                       struct content *out)
{
    const struct world *w = a->w;
    *out = *at(a, buffer);
    if (out->state != CONTENT_KNOWN || out->shape.rank == shape->rank || a->m < 0)
        return STATUS_OK;
    for (int node = 1; node < w->graph->n_nodes; node++) {
        const struct op_piece *piece;
        bool done = false;
        if (!world_is_flattened(w, node, a->worker))
            continue;
        TRY(world_get_piece(a->w, node, a->worker, a->m, &piece));
        if (piece && shape_equal(&piece->op.output, shape))
            TRY(rename_value(a, node, piece, out, &done));
        if (done)
            return STATUS_OK;
        if (!piece || !shape_equal(&piece->op.input[0], shape))
            continue;
        struct content deep = *out;
        TRY(content_unflatten(w->scratch, piece->output, piece->input[0], &deep));
        if (deep.state == CONTENT_KNOWN) {
            *out = deep;
            return STATUS_OK;
        }
    }
    *out = (struct content){.state = CONTENT_NONE};
    return STATUS_OK;
}

static enum status demand(const struct act *a, int buffer, const struct wanted *wanted,
                          const char *what)
{
    struct content c;
    if (buffer == NO_BUFFER)
        return check_fail(a->p, a->number, "has no buffer for its %s", what);
    struct shape shape = wanted_shape(wanted);
    TRY(see(a, buffer, &shape, &c));
    if (c.state != CONTENT_FOREIGN && !wanted_is(wanted, &c))
        return check_fail(a->p, a->number, "reads buffer %d (%s), which does not hold its %s",
                          buffer, a->p->buffers[buffer].name, what);
    return STATUS_OK;
}

static enum status demand_symbol(const struct act *a, int buffer, uint64_t symbol, const char *what)
{
    struct wanted wanted = wanted_symbol();
    wanted_add(&wanted, symbol, wanted.region);
    return demand(a, buffer, &wanted, what);
}

static enum status put_symbol(const struct act *a, int buffer, uint64_t symbol)
{
    return buffer == NO_BUFFER ? STATUS_OK
                               : content_of_symbol(a->w->scratch, symbol, at(a, buffer));
}

static enum status put_region(const struct act *a, int buffer, uint64_t symbol, int rank,
                              const struct range *region)
{
    return content_of_region(a->w->scratch, symbol, rank, region, at(a, buffer));
}

/* ---- runs ---- */

/* A run, and what it is a piece of. */
struct pass_act {
    struct act a;
    const struct program_group *g;
    const struct program_run *run;
    const struct graph_node *node;
    const struct op_piece *piece;
    int rank; /* of the output */
};

/* Elements per channel over which a batch norm takes its statistics: in the whole micro-batch, or
 * in this worker's samples of it. */
static int64_t count_statistics(const struct pass_act *x)
{
    const struct op_case *op = &x->node->op;
    int64_t count = plan_norms_by_worker(x->a.w->plan) ? op_extent(&x->piece->op, USE_BATCH)
                                                       : world_count_samples(x->a.w, x->a.m);
    for (int i = 0; i < op->axes.rank; i++)
        if (op->axes.use[i] != USE_BATCH && op->axes.use[i] != USE_CHANNEL)
            count *= op->input[0].dim[i];
    return count;
}

/* The kernel was made for this piece, in all but its shapes. */
static enum status check_spec(const struct pass_act *x)
{
    const struct act *a = &x->a;
    const struct group_spec *spec = &x->g->spec;
    const struct graph_node *last = &a->p->graph->nodes[x->g->last_node];
    struct loop_nest nest;
    op_get_loops(&x->node->op, &nest);
    bool shares = a->w->training && plan_summed_statistics(plan_norms_by_worker(a->w->plan), &nest,
                                                           x->piece->shared_statistics);
    bool good = spec->training == a->w->training && spec->shared_statistics == shares &&
                (!shares || spec->statistics_count == count_statistics(x)) &&
                (spec->activation == ACTIVATION_NONE ||
                 spec->activation == op_get_info(last->op.op)->activation);
    for (int i = 0; i < x->rank; i++)
        good &= spec->whole.rank ? spec->origin[i] == x->piece->output[i].begin
                                 : x->piece->output[i].begin == 0;
    if (!good)
        return check_fail(a->p, a->number, "has a kernel for something else");
    return STATUS_OK;
}

/* The kernel is the one for this worker's piece and this micro-batch's size. */
static enum status find_pass(const struct act *a, struct pass_act *x)
{
    const struct program *p = a->p;
    *x = (struct pass_act){
        .a = *a, .g = &p->groups[a->instr->group], .run = &p->runs[a->instr->index]};
    x->node = &p->graph->nodes[x->g->first_node];
    x->rank = x->node->op.output.rank;
    if (a->m < 0)
        return check_fail(p, a->number, "belongs to no micro-batch");
    TRY(world_get_piece(a->w, x->g->first_node, a->worker, a->m, &x->piece));
    if (!x->piece || !op_equal(&x->piece->op, &x->g->spec.op))
        return check_fail(p, a->number, "runs another piece than the plan gives this worker");
    if (x->run->first_sample != world_first_sample(a->w, a->m))
        return check_fail(p, a->number, "begins at another sample than its micro-batch");
    return check_spec(x);
}

static enum status demand_inputs(const struct pass_act *x)
{
    for (int i = 0; i < x->piece->op.n_inputs; i++) {
        struct wanted value = wanted_region(x->piece->op.input[i].rank, x->piece->input[i]);
        TRY(world_want_value(x->a.w, x->node->input[x->piece->slot[i]], x->a.m, &value));
        TRY(demand(&x->a, x->run->input[i], &value, "input"));
    }
    return STATUS_OK;
}

/* The residual is the other input of the sum behind the group's op. */
static enum status demand_residual(const struct pass_act *x)
{
    const struct graph *graph = x->a.p->graph;
    int residual = -1;
    if (!x->g->spec.residual)
        return STATUS_OK;
    for (int c = x->g->first_node + 1; residual < 0 && c <= x->g->last_node; c++)
        for (int k = 0; k < graph->nodes[c].op.n_inputs; k++)
            if (graph->nodes[c].input[k] == x->g->first_node)
                residual = graph->nodes[c].input[k == 0];
    struct wanted value = wanted_region(x->rank, x->piece->output);
    TRY(world_want_value(x->a.w, residual, x->a.m, &value));
    return demand(&x->a, x->run->residual, &value, "residual");
}

static enum status demand_labels(const struct pass_act *x)
{
    if (!(op_get_info(x->node->op.op)->flags & OP_IS_LOSS))
        return STATUS_OK;
    struct wanted labels = wanted_region(x->rank, x->piece->output);
    wanted_add(&labels, world_symbol(SYMBOL_LABELS, 0, x->a.m, 0), labels.region);
    return demand(&x->a, x->run->labels, &labels, "labels");
}

/* Forward reads running statistics as the micro-batches before left them; backward reads none. */
static enum status demand_params(const struct pass_act *x, bool forward)
{
    const struct act *a = &x->a;
    for (int k = 0; k < x->node->n_params; k++) {
        int param = x->node->first_param + k;
        bool trained = a->w->graph->params[param].spec.trained;
        if (k >= x->piece->n_params && x->run->param[k] != NO_BUFFER)
            return check_fail(a->p, a->number, "has a parameter that its piece does not have");
        if (k >= x->piece->n_params)
            continue;
        if (!trained && x->run->param[k] != a->p->params[param].weight)
            return check_fail(a->p, a->number, "has another layer's running statistics");
        if (!trained && (!forward || x->run->again))
            continue;
        int version;
        TRY(world_find_version(a->w, param, a->worker, a->m, &version));
        TRY(demand_symbol(a, x->run->param[k], world_weight(a->w, param, a->worker, version),
                          "parameter"));
    }
    return STATUS_OK;
}

static enum status demand_statistics(const struct pass_act *x, bool backward)
{
    struct wanted sum = wanted_symbol();
    TRY(world_want_statistics(x->a.w, x->g->first_node, x->a.m, x->a.worker, backward, &sum));
    return demand(&x->a, x->run->statistics, &sum, "statistics");
}

static enum status put_output(const struct pass_act *x)
{
    const struct act *a = &x->a;
    int last = x->g->last_node, to = x->run->output;
    if (to == NO_BUFFER)
        return check_fail(a->p, a->number, "has no output");
    if (x->piece->partial)
        TRY(put_region(a, to, world_partial_value(a->w, last, a->m, a->worker), x->rank,
                       x->piece->output));
    else
        TRY(world_put_value(a->w, last, a->m, x->rank, x->piece->output, at(a, to)));
    for (int k = 0; a->w->training && !x->run->again && k < x->piece->n_params; k++) {
        int param = x->node->first_param + k, version;
        if (a->w->graph->params[param].spec.trained)
            continue;
        TRY(world_find_version(a->w, param, a->worker, a->m, &version));
        TRY(put_symbol(a, x->run->param[k], world_weight(a->w, param, a->worker, version + 1)));
    }
    return put_symbol(a, x->run->saved,
                      world_symbol(SYMBOL_SAVED, x->g->first_node, a->m, a->worker));
}

static enum status apply_forward(const struct pass_act *x)
{
    const struct act *a = &x->a;
    TRY(demand_inputs(x));
    if (a->instr->pass == PASS_FORWARD_STATISTICS)
        return put_symbol(
            a, x->run->statistics,
            world_symbol(SYMBOL_FORWARD_STATISTICS, x->g->first_node, a->m, a->worker));
    if (x->g->spec.shared_statistics)
        TRY(demand_statistics(x, false));
    TRY(demand_residual(x));
    TRY(demand_labels(x));
    TRY(demand_params(x, true));
    return put_output(x);
}

/* ---- backward ---- */

/* The gradient of the group's output, behind the derivative of its activation if it is folded. */
static enum status want_output_gradient(const struct pass_act *x, bool folded, struct wanted *out)
{
    const struct act *a = &x->a;
    *out = wanted_region(x->rank, x->piece->output);
    if (!folded || x->g->spec.activation == ACTIVATION_NONE)
        return world_want_gradient(a->w, x->g->last_node, a->m, out);
    wanted_add(out, world_symbol(SYMBOL_FOLDED, x->g->last_node, a->m, a->worker), out->region);
    return STATUS_OK;
}

/* The sum of the gradients that have come, before it is folded. */
static enum status demand_sum(const struct act *a, int n, const int *addends,
                              const struct shape *shape, const struct wanted *wanted,
                              struct content *sum)
{
    *sum = (struct content){.state = CONTENT_NONE};
    for (int k = 0; k < n; k++) {
        struct content c;
        TRY(see(a, addends[k], shape, &c));
        if (k == 0)
            *sum = c;
        else
            TRY(content_add(a->w->scratch, &c, sum));
    }
    if (wanted && sum->state != CONTENT_FOREIGN && !wanted_is(wanted, sum))
        return check_fail(a->p, a->number, "gets other gradients than its output's, each once");
    return STATUS_OK;
}

static enum status demand_output_gradient(const struct pass_act *x)
{
    const struct act *a = &x->a;
    const struct program_run *run = x->run;
    unsigned flags = op_get_info(x->node->op.op)->flags;
    struct wanted wanted;
    struct content sum;
    if (flags & OP_IS_LOSS)
        return STATUS_OK;
    bool folds_now = flags & OP_FOLDS_GRADIENTS &&
                     (!x->g->spec.shared_statistics || a->instr->pass == PASS_BACKWARD_STATISTICS);
    TRY(want_output_gradient(x, !folds_now, &wanted));
    if (!folds_now)
        return demand(a, run->folded_grad, &wanted, "output's gradient");
    TRY(demand_sum(a, run->n_output_grads, run->output_grad, &x->piece->op.output, &wanted, &sum));
    bool activates = x->g->spec.activation != ACTIVATION_NONE;
    if (run->n_output_grads < 2 && !activates)
        return STATUS_OK;
    if (run->folded_grad == NO_BUFFER)
        return check_fail(a->p, a->number, "has no place for the folded gradient");
    *at(a, run->folded_grad) = sum;
    if (!activates)
        return STATUS_OK;
    return put_region(a, run->folded_grad,
                      world_symbol(SYMBOL_FOLDED, x->g->last_node, a->m, a->worker), x->rank,
                      x->piece->output);
}

static enum status demand_forward_tensors(const struct pass_act *x)
{
    const struct act *a = &x->a;
    if (x->g->needs.reads_input)
        TRY(demand_inputs(x));
    if (x->g->needs.reads_output) {
        struct wanted value = wanted_region(x->rank, x->piece->output);
        TRY(world_want_value(a->w, x->g->last_node, a->m, &value));
        TRY(demand(a, x->run->output, &value, "output"));
    }
    if (x->g->needs.saved_bytes)
        TRY(demand_symbol(a, x->run->saved,
                          world_symbol(SYMBOL_SAVED, x->g->first_node, a->m, a->worker),
                          "saved data"));
    TRY(demand_labels(x));
    return a->instr->pass == PASS_BACKWARD_WEIGHTS ? STATUS_OK : demand_params(x, false);
}

static enum status put_gradients(const struct pass_act *x, bool data, bool weights)
{
    const struct act *a = &x->a;
    for (int i = 0; data && i < x->piece->op.n_inputs; i++) {
        uint64_t symbol =
            world_input_gradient(x->g->first_node, x->piece->slot[i], a->m, a->worker);
        if (x->run->input_grad[i] != NO_BUFFER)
            TRY(put_region(a, x->run->input_grad[i], symbol, x->piece->op.input[i].rank,
                           x->piece->input[i]));
    }
    for (int k = 0; weights && k < x->piece->n_params; k++)
        TRY(put_symbol(
            a, x->run->param_grad[k],
            world_symbol(SYMBOL_PARAM_GRADIENT, x->node->first_param + k, a->m, a->worker)));
    return STATUS_OK;
}

static enum status apply_backward(const struct pass_act *x)
{
    const struct act *a = &x->a;
    enum pass pass = a->instr->pass;
    bool shared = x->g->spec.shared_statistics, first = pass == PASS_BACKWARD_STATISTICS;
    TRY(demand_output_gradient(x));
    TRY(demand_forward_tensors(x));
    if (first)
        TRY(put_symbol(
            a, x->run->statistics,
            world_symbol(SYMBOL_BACKWARD_STATISTICS, x->g->first_node, a->m, a->worker)));
    else if (shared)
        TRY(demand_statistics(x, true));
    return put_gradients(x, pass == PASS_BACKWARD || pass == PASS_BACKWARD_DATA,
                         first || pass == PASS_BACKWARD_WEIGHTS ||
                             (pass == PASS_BACKWARD && !shared));
}

static enum status apply_run(const struct act *a)
{
    struct pass_act x;
    TRY(find_pass(a, &x));
    if (!x.piece)
        return STATUS_FAILED; /* find_pass has said so */
    if (a->instr->pass == PASS_FORWARD || a->instr->pass == PASS_FORWARD_STATISTICS)
        return apply_forward(&x);
    return apply_backward(&x);
}

/* A sum may be made in place of a flat gradient or of one that is not; then it is the sum of the
 * tensor before it was flattened. */
static struct shape deepest_shape(const struct act *a, const struct program_fold *fold)
{
    struct shape deepest = at(a, fold->addend[0])->shape;
    for (int k = 1; k < fold->n_addends; k++)
        if (at(a, fold->addend[k])->shape.rank > deepest.rank)
            deepest = at(a, fold->addend[k])->shape;
    return deepest;
}

static enum status apply_fold(const struct act *a)
{
    const struct program_fold *fold = &a->p->folds[a->instr->index];
    const layout *l = a->p->buffers[fold->to].layout;
    struct content sum;
    if (!l)
        return check_fail(a->p, a->number, "folds into memory without a shape");
    if (fold->activation == ACTIVATION_NONE) {
        struct shape shape = deepest_shape(a, fold);
        TRY(demand_sum(a, fold->n_addends, fold->addend, &shape, NULL, &sum));
        *at(a, fold->to) = sum;
        return STATUS_OK;
    }
    if (a->instr->group < 0 || a->instr->group >= a->p->n_groups || a->m < 0)
        return check_fail(a->p, a->number, "folds an activation of no group");
    struct pass_act x = {.a = *a, .g = &a->p->groups[a->instr->group]};
    struct wanted gradient, value;
    x.node = &a->p->graph->nodes[x.g->first_node];
    x.rank = x.node->op.output.rank;
    TRY(world_get_piece(a->w, x.g->first_node, a->worker, a->m, &x.piece));
    if (!x.piece || fold->activation != x.g->spec.activation)
        return check_fail(a->p, a->number, "folds another activation than its group's");
    TRY(want_output_gradient(&x, false, &gradient));
    TRY(demand_sum(a, fold->n_addends, fold->addend, &x.piece->op.output, &gradient, &sum));
    value = wanted_region(x.rank, x.piece->output);
    TRY(world_want_value(a->w, x.g->last_node, a->m, &value));
    TRY(demand(a, fold->output, &value, "output"));
    return put_region(a, fold->to, world_symbol(SYMBOL_FOLDED, x.g->last_node, a->m, a->worker),
                      x.rank, x.piece->output);
}

/* ---- moving ---- */

/* The content of memory before the program: a symbol that no instruction wants. */
static enum status put_garbage(const struct act *a, const struct shape *shape, struct content *to)
{
    struct range all[SHAPE_MAX_RANK] = {0};
    for (int i = 0; i < shape->rank; i++)
        all[i].end = shape->dim[i];
    return content_of_region(a->w->scratch, symbol_mix(99, (uint64_t)a->number), shape->rank, all,
                             to);
}

static enum status apply_copy(const struct act *a)
{
    const struct program_copy *c = &a->p->copies[a->instr->index];
    const struct region_copy *r = &c->region;
    const struct shape *from_shape = a->p->backend->layout_shape(r->from_layout);
    const struct shape *to_shape = a->p->backend->layout_shape(r->to_layout);
    struct content from, to;
    TRY(see(a, c->from, from_shape, &from));
    TRY(see(a, c->to, to_shape, &to));
    bool all = !r->add;
    for (int i = 0; i < to_shape->rank; i++)
        all &= r->extent[i] == to_shape->dim[i];
    if (!r->add && (all || to.state == CONTENT_NONE))
        TRY(put_garbage(a, to_shape, &to));
    if (from.state == CONTENT_FOREIGN || to.state == CONTENT_FOREIGN) {
        *at(a, c->to) = (struct content){.state = CONTENT_FOREIGN};
        return STATUS_OK;
    }
    if (from.state == CONTENT_NONE || !shape_equal(&from.shape, from_shape))
        return check_fail(a->p, a->number, "copies from buffer %d (%s), which holds something else",
                          c->from, a->p->buffers[c->from].name);
    if (to.state == CONTENT_NONE || !shape_equal(&to.shape, to_shape))
        return check_fail(a->p, a->number, "copies to buffer %d (%s), which holds something else",
                          c->to, a->p->buffers[c->to].name);
    TRY(content_copy(a->w->scratch, &from, r->from_begin, r->to_begin, r->extent, r->add, &to));
    *at(a, c->to) = to;
    return STATUS_OK;
}

static bool is_parameter_like(enum buffer_class class)
{
    return class == BUFFER_WEIGHTS || class == BUFFER_WEIGHT_VERSIONS ||
           class == BUFFER_OPTIMIZER || class == BUFFER_GRADIENTS;
}

/* Parameters and their gradients are one symbol each, whatever their shape. */
static enum status apply_clear(const struct act *a)
{
    const struct program_copy *c = &a->p->copies[a->instr->index];
    const struct buffer *b = &a->p->buffers[c->to];
    struct shape one = SHAPE1(1);
    bool shaped = b->layout && !is_parameter_like(b->class);
    *at(a, c->to) = content_zero(shaped ? a->p->backend->layout_shape(b->layout) : &one);
    return STATUS_OK;
}

static enum status apply_accumulate(const struct act *a)
{
    const struct program_copy *c = &a->p->copies[a->instr->index];
    return content_add(a->w->scratch, at(a, c->from), at(a, c->to));
}

static enum status apply_stash(const struct act *a)
{
    const struct program_copy *c = &a->p->copies[a->instr->index];
    *at(a, c->to) = *at(a, c->from);
    return STATUS_OK;
}

/* Whole samples of a tensor like a node's output. */
static enum status load(const struct act *a, int buffer, struct range samples, uint64_t symbol,
                        const struct op_case *like)
{
    const struct world *w = a->w;
    int64_t first = world_first_sample(w, a->m), end = first + world_count_samples(w, a->m);
    struct range region[SHAPE_MAX_RANK];
    if (buffer == NO_BUFFER)
        return STATUS_OK;
    if (samples.begin < first || samples.end > end || samples.begin < a->p->samples.begin ||
        samples.end > a->p->samples.end)
        return check_fail(a->p, a->number, "loads samples of another micro-batch");
    for (int i = 0; i < like->output.rank; i++)
        region[i] = like->output_axes.use[i] == USE_BATCH
                        ? (struct range){samples.begin - first, samples.end - first}
                        : (struct range){0, like->output.dim[i]};
    return put_region(a, buffer, symbol, like->output.rank, region);
}

static enum status apply_load(const struct act *a)
{
    const struct program_load *l = &a->p->loads[a->instr->index];
    if (a->m < 0)
        return check_fail(a->p, a->number, "belongs to no micro-batch");
    const struct graph *g = a->w->graph;
    TRY(load(a, l->images, l->image_samples, world_value(a->w, 0, a->m), &g->nodes[0].op));
    return load(a, l->labels, l->label_samples, world_symbol(SYMBOL_LABELS, 0, a->m, 0),
                &g->nodes[g->n_nodes - 1].op); /* a label for each loss */
}

/* ---- updates ---- */

/* The holder whose gradient an asynchronous server applies in its update number i. */
static int holder_number(const struct world *w, int param, int i)
{
    for (int u = 0; u < w->n_workers; u++) {
        struct range region[SHAPE_MAX_RANK];
        if (world_get_param(w, param, u, region) && i-- == 0)
            return u;
    }
    return w->n_workers; /* no such holder: no gradient fits */
}

static enum status apply_update(const struct act *a)
{
    struct world *w = a->w;
    int param = a->instr->param, done = w->updates[a->worker][param]++;
    const struct program_param *at_param = &a->p->params[param];
    bool alone = w->plan->asynchronous;
    struct wanted gradient = wanted_symbol();
    TRY(world_want_param_gradient(w, param, a->worker, alone ? 0 : done,
                                  alone ? holder_number(w, param, done) : -1, &gradient));
    TRY(demand(a, at_param->gradient, &gradient, "gradient"));
    TRY(demand_symbol(a, at_param->weight, world_weight(w, param, a->worker, done), "weight"));
    TRY(put_symbol(a, at_param->weight, world_weight(w, param, a->worker, done + 1)));
    if (at_param->master != NO_BUFFER) { /* the same weight in a wider type */
        TRY(demand_symbol(a, at_param->master, world_weight(w, param, a->worker, done), "master"));
        TRY(put_symbol(a, at_param->master, world_weight(w, param, a->worker, done + 1)));
    }
    for (int k = 0; k < a->p->n_states; k++) {
        TRY(demand_symbol(a, at_param->state[k], world_state(w, param, k, done), "state"));
        TRY(put_symbol(a, at_param->state[k], world_state(w, param, k, done + 1)));
    }
    return STATUS_OK;
}

/* ---- communication ---- */

/* Nothing is known of contents that come from other workers, into a buffer or all parts of it. */
static enum status apply_foreign(const struct act *a)
{
    for (int k = 0; k < a->instr->n_writes; k++) {
        int whole = a->instr->writes[k];
        for (int i = 0; i < a->p->n_buffers; i++)
            if (i == whole || a->p->buffers[i].parent == whole)
                *at(a, i) = (struct content){.state = CONTENT_FOREIGN};
    }
    return STATUS_OK;
}

static struct act make_act(struct world *w, int worker, int number)
{
    const struct program *p = w->programs[worker];
    return (struct act){w, worker, number, p, &p->instrs[number], p->instrs[number].micro};
}

enum status meaning_apply(struct world *w, int worker, int number)
{
    static enum status (*const rules[])(const struct act *) = {
        [INSTR_LOAD] = apply_load,     [INSTR_RUN] = apply_run,
        [INSTR_FOLD] = apply_fold,     [INSTR_COPY] = apply_copy,
        [INSTR_CLEAR] = apply_clear,   [INSTR_ACCUMULATE] = apply_accumulate,
        [INSTR_STASH] = apply_stash,   [INSTR_UPDATE] = apply_update,
        [INSTR_SEND] = apply_foreign,  [INSTR_RECEIVE] = apply_foreign,
        [INSTR_REDUCE] = apply_foreign};
    _Static_assert(sizeof rules / sizeof rules[0] == INSTR_KIND_COUNT, "a rule each");
    struct act a = make_act(w, worker, number);
    return rules[a.instr->kind](&a);
}

/* Whether the bytes of the giver's tensor are the taker's: one layout, or another shape of as many
 * bytes (a flatten without an instruction). Layouts of two devices cannot be compared. */
static bool same_bytes(const struct program *p, const layout *x, const struct program *q,
                       const layout *y)
{
    if (!x || !y || p->backend->layout_bytes(x) != q->backend->layout_bytes(y))
        return false;
    bool same_shape = shape_equal(p->backend->layout_shape(x), q->backend->layout_shape(y));
    return x == y || !same_shape || p->device != q->device;
}

enum status meaning_message(struct world *w, int from, int send, int to, int receive)
{
    struct act giver = make_act(w, from, send), taker = make_act(w, to, receive);
    int source = giver.p->messages[giver.instr->index].buffer;
    int target = taker.p->messages[taker.instr->index].buffer;
    const struct buffer *x = &giver.p->buffers[source], *y = &taker.p->buffers[target];
    struct content content = *at(&giver, source);
    if (giver.m != taker.m || !same_bytes(giver.p, x->layout, taker.p, y->layout))
        return check_fail(taker.p, receive, "receives another kind of tensor than is sent");
    const struct shape *shape = taker.p->backend->layout_shape(y->layout);
    if (!is_parameter_like(x->class)) {
        TRY(see(&giver, source, shape, &content));
        if (!shape_equal(&content.shape, shape))
            content.state = CONTENT_NONE;
    }
    if (content.state == CONTENT_NONE)
        return check_fail(giver.p, send, "sends nothing that makes sense");
    *at(&taker, target) = content;
    return STATUS_OK;
}

/* The part of `whole` at this place. */
static int find_part(const struct program *p, int whole, int64_t offset)
{
    for (int i = 0; i < p->n_buffers; i++)
        if (p->buffers[i].parent == whole && p->buffers[i].parent_offset == offset)
            return i;
    return NO_BUFFER;
}

static enum status sum_over_members(struct world *w, const struct comm_reduction *r,
                                    const int *buffers)
{
    struct content sum = {.state = CONTENT_NONE};
    for (int k = 0; k < r->n_members; k++) {
        const struct content *c = &w->contents[r->members[k]][buffers[k]];
        if (k == 0)
            sum = *c;
        else
            TRY(content_add(w->scratch, c, &sum));
    }
    for (int k = 0; k < r->n_members; k++)
        w->contents[r->members[k]][buffers[k]] = sum;
    return STATUS_OK;
}

/* Part by part, where the bucket has parts: all members' must lie at the same places. */
enum status meaning_reduce(struct world *w, const struct comm_reduction *r, const int *numbers)
{
    const struct program *first = w->programs[r->members[0]];
    bool has_parts = false;
    int *wholes, *parts;
    TRY(arena_alloc_array(w->scratch, (size_t)r->n_members, sizeof *wholes, &wholes));
    TRY(arena_alloc_array(w->scratch, (size_t)r->n_members, sizeof *parts, &parts));
    for (int k = 0; k < r->n_members; k++) {
        const struct program *p = w->programs[r->members[k]];
        wholes[k] = p->reductions[p->instrs[numbers[k]].index].buffer;
    }
    for (int i = 0; i < first->n_buffers; i++) {
        const struct buffer *part = &first->buffers[i];
        if (part->parent != wholes[0])
            continue;
        has_parts = true;
        for (int k = 0; k < r->n_members; k++) {
            const struct program *p = w->programs[r->members[k]];
            parts[k] = find_part(p, wholes[k], part->parent_offset);
            if (parts[k] == NO_BUFFER || p->buffers[parts[k]].n_bytes != part->n_bytes)
                return check_fail(p, numbers[k], "has other parts than worker %d", r->members[0]);
        }
        TRY(sum_over_members(w, r, parts));
    }
    return has_parts ? STATUS_OK : sum_over_members(w, r, wholes);
}

/* ---- one program alone ---- */

static enum status run_alone(struct world *w, const struct program *p)
{
    const struct program **programs;
    TRY(arena_alloc_array(w->scratch, (size_t)w->n_workers, sizeof(const struct program *),
                          &programs));
    programs[p->worker] = p;
    w->programs = programs;
    TRY(world_create(w));
    TRY(meaning_begin(w, p->worker));
    for (int i = 0; i < p->n_instrs; i++)
        TRY(meaning_apply(w, p->worker, i));
    return meaning_end(w, p->worker);
}

enum status check_meaning(const struct program *p, struct holdings *holdings)
{
    struct world w = {.graph = p->graph,
                      .plan = p->plan,
                      .training = p->training,
                      .n_micros = p->n_micros,
                      .n_steps = p->n_steps,
                      .n_workers = p->plan->n_workers,
                      .holdings = holdings};
    TRY(arena_create(&w.scratch));
    enum status st = run_alone(&w, p);
    arena_destroy(w.scratch);
    return st;
}
