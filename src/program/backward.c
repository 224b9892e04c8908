/* Backward of one group for one micro-batch.
 *
 * Every tensor keeps the list of gradients that its consumers have written so far. Groups are
 * emitted in reverse order, so the list is complete when the tensor's own group is reached: several
 * gradients, or a folded activation, are first folded into one.
 *
 *     x ──► conv1 ──► add ──► loss        loss: gradient g1 of add's output
 *       └─────────────┘                   add:  hands g1 to conv1's output and to x
 *                                         conv1: reads g1, writes g2 to x; x has g1 and g2
 *
 * A buffer may stand in several lists, as g1 does; only the last list that holds it may overwrite
 * it (emitter.in_lists counts them). */
#include "program/lowering.h"

#include <string.h>

static struct instr named(const struct backward_work *w)
{
    return (struct instr){.group = w->k->group, .micro = w->micro, .param = -1};
}

enum status emit_hand_gradient(struct emitter *e, int tensor, int micro, int buffer)
{
    struct instance *to = emit_instance(e, tensor, micro);
    if (!e->part->tensors[tensor].needs_gradient)
        return STATUS_OK;
    if (to->n_grads == GROUP_MAX_ADDENDS)
        return status_fail(STATUS_USAGE, "a tensor has more than %d consumers", GROUP_MAX_ADDENDS);
    to->grad[to->n_grads++] = buffer;
    e->in_lists[buffer]++;
    return STATUS_OK;
}

/* Whether something must be folded before the group's gradients: a sum, or an activation. */
static bool folds(const struct backward_work *w)
{
    return w->run.n_output_grads > 1 ||
           (w->run.n_output_grads && w->made->spec.activation != ACTIVATION_NONE);
}

/* A gradient of the list that stands in no other list, or NO_BUFFER. */
static int overwritable(const struct emitter *e, const struct program_run *run)
{
    for (int k = 0; k < run->n_output_grads; k++)
        if (e->in_lists[run->output_grad[k]] == 1)
            return run->output_grad[k];
    return NO_BUFFER;
}

/* Chooses where the folded gradient goes and, for ops that do not fold by themselves, emits the
 * instruction that folds. Afterwards run.folded_grad is what backward reads. */
static enum status fold_gradients(struct emitter *e, struct backward_work *w)
{
    struct program_run *run = &w->run;
    if (!folds(w)) {
        run->folded_grad = run->output_grad[0];
        return STATUS_OK;
    }
    run->folded_grad = overwritable(e, run);
    if (run->folded_grad == NO_BUFFER) {
        int size = emit_size(e, w->micro);
        TRY(emit_tensor(e, w->made->name, BUFFER_ACTIVATIONS, e->layouts[w->g->output][size],
                        &run->folded_grad));
        e->in_lists[run->folded_grad]++;
    }
    if (w->flags & OP_FOLDS_GRADIENTS)
        return STATUS_OK;
    struct program_fold fold = {.n_addends = run->n_output_grads,
                                .activation = w->made->spec.activation,
                                .output = NO_BUFFER,
                                .to = run->folded_grad};
    memcpy(fold.addend, run->output_grad, sizeof fold.addend);
    if (fold.activation != ACTIVATION_NONE)
        fold.output = run->output;
    return emit_fold(e, &fold, named(w));
}

static int input_tensor(const struct backward_work *w, int k)
{
    return w->g->input[w->k->piece->slot[k]];
}

/* Buffers for the gradients of the inputs; in place of the output's where that is allowed. */
static enum status add_input_gradients(struct emitter *e, struct backward_work *w)
{
    int size = emit_size(e, w->micro);
    for (int k = 0; k < w->made->spec.op.n_inputs; k++) {
        int in = input_tensor(w, k);
        if (!e->part->tensors[in].needs_gradient)
            continue;
        bool in_place = k == 0 && w->made->needs.in_place_gradient &&
                        w->run.folded_grad != NO_BUFFER && e->in_lists[w->run.folded_grad] == 1;
        if (in_place)
            w->run.input_grad[k] = w->run.folded_grad;
        else
            TRY(emit_tensor(e, w->made->name, BUFFER_ACTIVATIONS, e->layouts[in][size],
                            &w->run.input_grad[k]));
        TRY(emit_hand_gradient(e, in, w->micro, w->run.input_grad[k]));
    }
    return STATUS_OK;
}

/* Whether a pass of its backward makes gradients of weights: not a pass of its own for frozen ones.
 */
static bool makes_weights(const struct backward_work *w)
{
    return w->learns || !(w->flags & OP_SPLIT_GRADIENT);
}

static bool first_of_step(const struct emitter *e, int micro)
{
    /* GPipe goes back from the last micro-batch. */
    int n = e->part->n_micros;
    return micro % n == (e->p->plan->schedule == PLAN_GPIPE ? n - 1 : 0);
}

/* The first micro-batch writes its gradient where the sum is; the others write beside it. If a
 * layer's weights are frozen in part, or its pass makes all gradients at once, those of frozen
 * weights go where nobody reads them. */
static enum status choose_param_gradients(struct emitter *e, struct backward_work *w)
{
    const struct program *p = e->p;
    const struct graph_node *node = &p->graph->nodes[w->g->first_node];
    for (int k = 0; k < node->n_params; k++) {
        const struct program_param *param = &p->params[node->first_param + k];
        const struct graph_param *named_param = &p->graph->params[node->first_param + k];
        bool beside =
            graph_param_learns(named_param)
                ? param->gradient != NO_BUFFER && !first_of_step(e, w->micro)
                : named_param->group.frozen && param->weight != NO_BUFFER && makes_weights(w);
        w->run.param_grad[k] = param->gradient;
        if (!beside)
            continue;
        const layout *l;
        TRY(p->backend->layout_in_type(p->device, precision_get_info(p->precision)->gradient,
                                       p->buffers[param->weight].layout, &l));
        TRY(emit_tensor(e, named_param->name, BUFFER_GRADIENTS, l, &w->run.param_grad[k]));
    }
    return STATUS_OK;
}

static enum status emit_pass(struct emitter *e, const struct backward_work *w, enum pass pass)
{
    const struct program_run *run = &w->run;
    const struct group_needs *needs = &w->made->needs;
    bool shared = w->made->spec.shared_statistics, first = pass == PASS_BACKWARD_STATISTICS;
    bool data = pass != PASS_BACKWARD_WEIGHTS && !first;
    bool weights = pass != PASS_BACKWARD_DATA && !(shared && !first);
    bool folds_here = w->flags & OP_FOLDS_GRADIENTS && (first || !shared);
    for (int k = 0; folds_here && k < run->n_output_grads; k++)
        emit_reads(e, run->output_grad[k]);
    if (!folds_here)
        emit_reads(e, run->folded_grad);
    for (int k = 0; needs->reads_input && k < w->made->spec.op.n_inputs; k++)
        emit_reads(e, run->input[k]);
    if (needs->reads_output)
        emit_reads(e, run->output);
    for (int k = 0; pass != PASS_BACKWARD_WEIGHTS && k < OP_MAX_PARAMS; k++)
        emit_reads(e, run->param[k]);
    emit_reads(e, run->saved);
    emit_reads(e, run->labels);
    if (first)
        emit_writes(e, run->statistics);
    else
        emit_reads(e, run->statistics);
    if (folds_here && folds(w))
        emit_writes(e, run->folded_grad);
    for (int k = 0; data && k < w->made->spec.op.n_inputs; k++)
        emit_writes(e, run->input_grad[k]);
    for (int k = 0; weights && k < OP_MAX_PARAMS; k++)
        emit_writes(e, run->param_grad[k]);
    emit_writes(e, run->workspace);
    return emit_run(e, run, pass, w->k->group, w->micro);
}

static enum status add_workspace(struct emitter *e, struct backward_work *w)
{
    w->run.workspace = NO_BUFFER;
    return emit_buffer(e, w->made->name, BUFFER_WORKSPACE, ELEMENT_U8,
                       w->made->needs.backward_workspace_bytes, &w->run.workspace);
}

static enum status emit_passes(struct emitter *e, struct backward_work *w)
{
    if (w->flags & OP_SPLIT_GRADIENT) {
        if (makes_weights(w))
            TRY(emit_pass(e, w, PASS_BACKWARD_WEIGHTS));
        if (w->run.input_grad[0] != NO_BUFFER)
            TRY(emit_pass(e, w, PASS_BACKWARD_DATA));
        return STATUS_OK;
    }
    if (w->made->spec.shared_statistics) {
        TRY(emit_buffer(e, w->made->name, BUFFER_ACTIVATIONS, ELEMENT_F64,
                        w->made->needs.statistics_count, &w->run.statistics));
        TRY(emit_pass(e, w, PASS_BACKWARD_STATISTICS));
        TRY(emit_statistics(e, w->group_number, w->micro, w->k, w->run.statistics, true, false));
        TRY(emit_delayed_weights(e)); /* something to do while the sum is under way */
        if (w->run.input_grad[0] == NO_BUFFER)
            return STATUS_OK;
    }
    return emit_pass(e, w, PASS_BACKWARD);
}

/* The group is done with its list of gradients. */
static void let_go(struct emitter *e, const struct program_run *run)
{
    bool own = run->folded_grad != NO_BUFFER; /* made by fold_gradients, not one of the list */
    for (int k = 0; k < run->n_output_grads; k++) {
        e->in_lists[run->output_grad[k]]--;
        own &= run->output_grad[k] != run->folded_grad;
    }
    if (own)
        e->in_lists[run->folded_grad]--;
}

/* Runs forward again for tensors that backward reads and forward did not keep. A tensor made just
 * now is kept, because dropping it would save no memory: the inputs of the first group of a
 * backward that directly follows its forward. */
static enum status recompute(struct emitter *e, int group_number, int micro)
{
    const struct part_group *g = &e->part->groups[group_number];
    if (!g->recompute || emit_group_instance(e, group_number, micro)->again)
        return STATUS_OK;
    const struct graph_node *node = &e->p->graph->nodes[g->first_node];
    for (int k = 0; k < node->op.n_inputs + (g->residual_sum ? 1 : 0); k++) {
        int tensor = k < node->op.n_inputs ? g->input[k] : g->residual;
        int producer = e->part->tensors[tensor].producer;
        if (producer >= 0)
            TRY(recompute(e, producer, micro));
    }
    emit_group_instance(e, group_number, micro)->again = true;
    if (e->fresh == g->stage)
        return STATUS_OK;
    return emit_forward(e, group_number, micro, true);
}

static enum status recompute_for(struct emitter *e, int group_number, int micro)
{
    const struct part_group *g = &e->part->groups[group_number];
    const struct graph_node *node = &e->p->graph->nodes[g->first_node];
    const struct kernel *k = &e->kernels[group_number][emit_size(e, micro)];
    for (int i = 0; i < node->op.n_inputs; i++) {
        int producer = e->part->tensors[g->input[i]].producer;
        if (producer >= 0)
            TRY(recompute(e, producer, micro));
    }
    TRY(recompute(e, group_number, micro));
    for (int i = 0; k->here && i < k->piece->op.n_inputs; i++)
        emit_group_instance(e, group_number, micro)->run.input[i] =
            emit_instance(e, g->input[k->piece->slot[i]], micro)->buffer;
    return STATUS_OK;
}

/* Behind the gradients of the parameters. */
static enum status finish_weights(struct emitter *e, const struct backward_work *w)
{
    const struct graph_node *node = &e->p->graph->nodes[w->g->first_node];
    let_go(e, &w->run);
    for (int k = 0; k < node->n_params; k++) {
        int sum = e->p->params[node->first_param + k].gradient, part = w->run.param_grad[k];
        struct instr like = named(w);
        like.param = node->first_param + k;
        if (part != sum && sum != NO_BUFFER)
            TRY(emit_copy(e, INSTR_ACCUMULATE, &(struct program_copy){part, sum, {0}}, like));
    }
    return STATUS_OK;
}

/* Workers that share batch-norm statistics wait for each other at every such layer. The weight
 * gradient of the layer behind it is put off until that sum is under way, so that a worker which
 * comes early has something to do.
 *
 *     data conv2 · statistics bn1 · [sum] · weights conv2 · backward bn1 · data conv1 · ..
 */
static bool may_delay(const struct emitter *e, const struct backward_work *w)
{
    return e->analysis->shares_statistics && w->flags & OP_SPLIT_GRADIENT && makes_weights(w) &&
           w->run.input_grad[0] != NO_BUFFER;
}

enum status emit_delayed_weights(struct emitter *e)
{
    if (!e->has_delayed)
        return STATUS_OK;
    struct backward_work w = e->delayed;
    int step = emit_completed_step(e, w.micro);
    e->has_delayed = false;
    TRY(add_workspace(e, &w));
    TRY(emit_pass(e, &w, PASS_BACKWARD_WEIGHTS));
    TRY(finish_weights(e, &w));
    return step >= 0 ? emit_synchronise(e, w.group_number, step) : STATUS_OK;
}

static enum status backward_here(struct emitter *e, struct backward_work *w)
{
    const struct instance *out = emit_instance(e, w->g->output, w->micro);
    bool loss = w->flags & OP_IS_LOSS;
    w->run.n_output_grads = out->n_grads;
    memcpy(w->run.output_grad, out->grad, sizeof out->grad);
    if (w->run.n_output_grads == 0 && !loss)
        return STATUS_OK;
    if (w->made->needs.output_is_input) {
        for (int i = 0; i < w->run.n_output_grads; i++)
            TRY(emit_hand_gradient(e, input_tensor(w, 0), w->micro, w->run.output_grad[i]));
        let_go(e, &w->run);
        return STATUS_OK;
    }
    if (!loss)
        TRY(fold_gradients(e, w));
    if (w->flags & OP_PASSES_GRADIENT) {
        for (int k = 0; k < w->made->spec.op.n_inputs; k++)
            TRY(emit_hand_gradient(e, input_tensor(w, k), w->micro, w->run.folded_grad));
        let_go(e, &w->run);
        return STATUS_OK;
    }
    if (w->g->residual_sum)
        TRY(emit_hand_gradient(e, w->g->residual, w->micro, w->run.folded_grad));
    TRY(add_input_gradients(e, w));
    TRY(choose_param_gradients(e, w));
    if (w->flags & OP_SPLIT_GRADIENT)
        TRY(emit_delayed_weights(e));
    TRY(add_workspace(e, w));
    if (may_delay(e, w)) {
        e->delayed = *w;
        e->has_delayed = true;
        return emit_pass(e, w, PASS_BACKWARD_DATA);
    }
    TRY(emit_passes(e, w));
    return finish_weights(e, w);
}

/* A holder without a sample in this micro-batch adds nothing to the gradients. */
static enum status clear_param_gradients(struct emitter *e, int group_number, int micro)
{
    const struct graph_node *node = &e->p->graph->nodes[e->part->groups[group_number].first_node];
    for (int k = 0; first_of_step(e, micro) && k < node->n_params; k++) {
        int gradient = e->p->params[node->first_param + k].gradient;
        struct instr like = {.group = -1, .micro = micro, .param = node->first_param + k};
        if (gradient != NO_BUFFER)
            TRY(emit_copy(e, INSTR_CLEAR, &(struct program_copy){.from = NO_BUFFER, .to = gradient},
                          like));
    }
    return STATUS_OK;
}

enum status emit_backward(struct emitter *e, int group_number, int micro)
{
    const struct part_group *g = &e->part->groups[group_number];
    struct kernel *k;
    TRY(emit_kernel(e, group_number, emit_size(e, micro), &k));
    if (e->part->tensors[g->output].needs_gradient) {
        TRY(recompute_for(e, group_number, micro));
        TRY(emit_take_returns(e, g->output, micro));
        if (k->here) {
            struct backward_work w = {
                .group_number = group_number,
                .micro = micro,
                .g = g,
                .k = k,
                .made = &e->p->groups[k->group],
                .flags = op_get_info(e->p->graph->nodes[g->first_node].op.op)->flags,
                .learns = graph_node_learns(e->p->graph, &e->p->graph->nodes[g->first_node]) != 0,
                .run = emit_group_instance(e, group_number, micro)->run};
            TRY(backward_here(e, &w));
        } else if (e->part->piece_of[g->first_node][e->me] != NO_PIECE) {
            TRY(clear_param_gradients(e, group_number, micro));
        }
    }
    return emit_return_views(e, group_number, micro);
}
