/* Kernels, buffers and instructions: the middle of lowering.
 *
 * Backward keeps, for every tensor, the list of gradients that its consumers have written so far.
 * When the tensor's own group is reached (in reverse order, so after all consumers), the list is
 * complete: several gradients, or a folded activation, are first folded into one. A gradient buffer
 * may stand in several lists (a sum hands the same gradient to all its inputs); only the last
 * holder may overwrite it. */
#include "program/lowering.h"

#include <stdlib.h>
#include <string.h>

/* What is known of the tensor behind a node while lowering. */
struct tensor {
    int buffer;
    const layout *layout;
    bool needs_gradient; /* some parameter lies before it */
    int n_grads, grad[GROUP_MAX_ADDENDS];
};

struct emitter {
    struct program *p;
    struct tensor *tensors; /* by node; only those that end a group, and node 0 */
    int *holders;           /* by buffer: in how many gradient lists it stands */
    int buffer_capacity, instr_capacity;
};

static enum status add_buffer(struct emitter *e, const char *name, enum buffer_class class,
                              const layout *l, int64_t n_bytes, int *out)
{
    struct program *p = e->p;
    *out = NO_BUFFER;
    if (n_bytes == 0)
        return STATUS_OK;
    if (p->n_buffers == e->buffer_capacity)
        return status_fail(STATUS_FAILED, "lowering: more buffers than foreseen");
    int64_t padded = (n_bytes + BUFFER_ALIGNMENT - 1) / BUFFER_ALIGNMENT * BUFFER_ALIGNMENT;
    p->buffers[p->n_buffers] =
        (struct buffer){.name = name, .class = class, .layout = l, .n_bytes = padded};
    *out = p->n_buffers++;
    return STATUS_OK;
}

static enum status add_tensor(struct emitter *e, const char *name, enum buffer_class class,
                              const layout *l, int *out)
{
    return add_buffer(e, name, class, l, e->p->backend->layout_bytes(l), out);
}

/* A gatherer of buffer numbers for one instruction. */
struct list {
    int n, item[64];
};

static void list_add(struct list *l, int buffer)
{
    if (buffer != NO_BUFFER)
        l->item[l->n++] = buffer;
}

static enum status copy_list(arena *a, const struct list *l, int *n, const int **items)
{
    int *copy;
    TRY(arena_alloc_array(a, (size_t)l->n, sizeof *copy, &copy));
    memcpy(copy, l->item, (size_t)l->n * sizeof *copy);
    *n = l->n;
    *items = copy;
    return STATUS_OK;
}

static enum status add_instr(struct emitter *e, struct instr instr, const struct list *reads,
                             const struct list *writes)
{
    struct program *p = e->p;
    if (p->n_instrs == e->instr_capacity)
        return status_fail(STATUS_FAILED, "lowering: more instructions than foreseen");
    TRY(copy_list(p->memory, reads, &instr.n_reads, &instr.reads));
    TRY(copy_list(p->memory, writes, &instr.n_writes, &instr.writes));
    p->instrs[p->n_instrs++] = instr;
    return STATUS_OK;
}

/* ---- forward ---- */

static const struct graph_node *first_node(const struct emitter *e, const struct program_group *g)
{
    return &e->p->graph->nodes[g->first_node];
}

/* The tensor added to the group's op: the other input of the sum behind it. */
static struct tensor *residual_tensor(const struct emitter *e, const struct program_group *g)
{
    if (!g->spec.residual)
        return NULL;
    const struct graph *graph = e->p->graph;
    for (int i = g->first_node + 1; i <= g->last_node; i++) {
        const struct graph_node *n = &graph->nodes[i];
        if (n->op.op == OP_ADD && n->input[0] == g->first_node)
            return &e->tensors[n->input[1]];
        if (n->op.op == OP_ADD && n->op.n_inputs == 2 && n->input[1] == g->first_node)
            return &e->tensors[n->input[0]];
    }
    return NULL;
}

static enum status add_param_buffers(struct emitter *e, struct program_group *g,
                                     const struct group_layouts *io)
{
    struct program *p = e->p;
    const struct graph_node *node = first_node(e, g);
    for (int k = 0; k < node->n_params; k++) {
        int number = node->first_param + k;
        const struct graph_param *param = &p->graph->params[number];
        struct program_param *to = &p->params[number];
        *to = (struct program_param){NO_BUFFER, NO_BUFFER, {NO_BUFFER, NO_BUFFER}};
        TRY(add_tensor(e, param->name, BUFFER_WEIGHTS, io->param[k], &to->weight));
        g->param[k] = to->weight;
        if (!p->training || !param->spec.trained)
            continue;
        for (int s = 0; s < p->n_states; s++)
            TRY(add_tensor(e, param->name, BUFFER_OPTIMIZER, io->param[k], &to->state[s]));
        TRY(add_tensor(e, param->name, BUFFER_GRADIENTS, io->param[k], &to->gradient));
        g->param_grad[k] = to->gradient;
    }
    return STATUS_OK;
}

static enum status create_kernels(struct emitter *e, struct program_group *g,
                                  const struct program *shares_params_of)
{
    struct program *p = e->p;
    const struct graph_node *node = first_node(e, g);
    struct group_layouts io = {0};
    struct tensor *out = &e->tensors[g->last_node];
    struct tensor *residual = residual_tensor(e, g);
    out->needs_gradient = node->n_params > 0;
    for (int k = 0; k < node->op.n_inputs; k++) {
        const struct tensor *in = &e->tensors[node->input[k]];
        io.input[k] = in->layout;
        g->input[k] = in->buffer;
        g->spec.input_gradient |= in->needs_gradient;
    }
    if (residual) {
        io.residual = residual->layout;
        g->residual = residual->buffer;
        g->spec.input_gradient |= residual->needs_gradient;
    }
    out->needs_gradient |= g->spec.input_gradient;
    for (int k = 0; shares_params_of && k < node->n_params; k++) {
        int weight = shares_params_of->params[node->first_param + k].weight;
        io.param[k] = shares_params_of->buffers[weight].layout;
    }
    TRY(p->backend->group_create(p->device, &g->spec, &io, &g->kernels));
    p->backend->group_get_needs(g->kernels, &g->needs);
    out->layout = io.output;
    return add_param_buffers(e, g, &io);
}

static enum status emit_forward(struct emitter *e, int number)
{
    struct program *p = e->p;
    struct program_group *g = &p->groups[number];
    struct tensor *out = &e->tensors[g->last_node];
    if (g->needs.output_is_input) {
        g->output = out->buffer = g->input[0];
        return STATUS_OK;
    }
    TRY(add_tensor(e, g->name, BUFFER_ACTIVATIONS, out->layout, &out->buffer));
    g->output = out->buffer;
    TRY(add_buffer(e, g->name, BUFFER_ACTIVATIONS, NULL, g->needs.saved_bytes, &g->saved));
    TRY(add_buffer(e, g->name, BUFFER_WORKSPACE, NULL, g->needs.forward_workspace_bytes,
                   &g->forward_workspace));

    struct list reads = {0}, writes = {0};
    for (int k = 0; k < g->spec.op.n_inputs; k++)
        list_add(&reads, g->input[k]);
    list_add(&reads, g->residual);
    if (op_get_info(g->spec.op.op)->flags & OP_IS_LOSS)
        list_add(&reads, p->labels);
    for (int k = 0; k < OP_MAX_PARAMS; k++)
        list_add(&reads, g->param[k]);
    list_add(&writes, g->output);
    list_add(&writes, g->saved);
    list_add(&writes, g->forward_workspace);
    struct instr run = {.kind = INSTR_RUN, .group = number, .pass = PASS_FORWARD};
    return add_instr(e, run, &reads, &writes);
}

/* ---- backward ---- */

/* One more gradient for a tensor. */
static enum status hand_gradient(struct emitter *e, struct tensor *to, int buffer)
{
    if (!to->needs_gradient)
        return STATUS_OK;
    if (to->n_grads == GROUP_MAX_ADDENDS)
        return status_fail(STATUS_USAGE, "a tensor has more than %d consumers", GROUP_MAX_ADDENDS);
    to->grad[to->n_grads++] = buffer;
    e->holders[buffer]++;
    return STATUS_OK;
}

static struct tensor *input_tensor(const struct emitter *e, const struct program_group *g, int k)
{
    return &e->tensors[first_node(e, g)->input[k]];
}

/* A gradient of the list that nobody else holds, or NO_BUFFER. */
static int overwritable(const struct emitter *e, const struct program_group *g)
{
    for (int k = 0; k < g->n_output_grads; k++)
        if (e->holders[g->output_grad[k]] == 1)
            return g->output_grad[k];
    return NO_BUFFER;
}

/* Chooses where the folded gradient goes and, for ops that do not fold by themselves, emits the
 * instruction that folds. Afterwards g->folded_grad is what backward reads. */
static enum status fold_gradients(struct emitter *e, int number)
{
    struct program_group *g = &e->p->groups[number];
    if (!program_group_folds(g)) {
        g->folded_grad = g->output_grad[0];
        return STATUS_OK;
    }
    g->folded_grad = overwritable(e, g);
    if (g->folded_grad == NO_BUFFER) {
        TRY(add_tensor(e, g->name, BUFFER_ACTIVATIONS, e->tensors[g->last_node].layout,
                       &g->folded_grad));
        e->holders[g->folded_grad]++;
    }
    if (op_get_info(g->spec.op.op)->flags & OP_FOLDS_GRADIENTS)
        return STATUS_OK;
    struct list reads = {0}, writes = {0};
    for (int k = 0; k < g->n_output_grads; k++)
        list_add(&reads, g->output_grad[k]);
    if (g->spec.activation != ACTIVATION_NONE)
        list_add(&reads, g->output);
    list_add(&writes, g->folded_grad);
    return add_instr(e, (struct instr){.kind = INSTR_FOLD, .group = number}, &reads, &writes);
}

/* Buffers for the gradients of the inputs; in place of the output's where that is allowed. */
static enum status add_input_gradients(struct emitter *e, struct program_group *g)
{
    for (int k = 0; k < g->spec.op.n_inputs; k++) {
        struct tensor *in = input_tensor(e, g, k);
        if (!in->needs_gradient)
            continue;
        bool in_place = k == 0 && g->needs.in_place_gradient && g->folded_grad != NO_BUFFER &&
                        e->holders[g->folded_grad] == 1;
        if (in_place)
            g->input_grad[k] = g->folded_grad;
        else
            TRY(add_tensor(e, g->name, BUFFER_ACTIVATIONS, in->layout, &g->input_grad[k]));
        TRY(hand_gradient(e, in, g->input_grad[k]));
    }
    return STATUS_OK;
}

static enum status emit_pass(struct emitter *e, int number, enum pass pass)
{
    struct program_group *g = &e->p->groups[number];
    bool data = pass != PASS_BACKWARD_WEIGHTS, weights = pass != PASS_BACKWARD_DATA;
    bool folds = op_get_info(g->spec.op.op)->flags & OP_FOLDS_GRADIENTS;
    struct list reads = {0}, writes = {0};
    if (folds)
        for (int k = 0; k < g->n_output_grads; k++)
            list_add(&reads, g->output_grad[k]);
    else
        list_add(&reads, g->folded_grad);
    for (int k = 0; g->needs.reads_input && k < g->spec.op.n_inputs; k++)
        list_add(&reads, g->input[k]);
    if (g->needs.reads_output)
        list_add(&reads, g->output);
    for (int k = 0; data && k < OP_MAX_PARAMS; k++)
        list_add(&reads, g->param[k]);
    list_add(&reads, g->saved);
    if (op_get_info(g->spec.op.op)->flags & OP_IS_LOSS)
        list_add(&reads, e->p->labels);
    if (folds && program_group_folds(g))
        list_add(&writes, g->folded_grad);
    for (int k = 0; data && k < g->spec.op.n_inputs; k++)
        list_add(&writes, g->input_grad[k]);
    for (int k = 0; weights && k < OP_MAX_PARAMS; k++)
        list_add(&writes, g->param_grad[k]);
    list_add(&writes, g->backward_workspace);
    return add_instr(e, (struct instr){.kind = INSTR_RUN, .group = number, .pass = pass}, &reads,
                     &writes);
}

static enum status emit_updates(struct emitter *e, const struct program_group *g)
{
    const struct graph_node *node = first_node(e, g);
    for (int k = 0; k < node->n_params; k++) {
        int number = node->first_param + k;
        const struct program_param *param = &e->p->params[number];
        if (param->gradient == NO_BUFFER)
            continue;
        struct list reads = {0}, writes = {0};
        list_add(&reads, param->gradient);
        list_add(&writes, param->weight);
        list_add(&writes, param->state[0]);
        list_add(&writes, param->state[1]);
        TRY(add_instr(e, (struct instr){.kind = INSTR_UPDATE, .param = number}, &reads, &writes));
    }
    return STATUS_OK;
}

/* Lists of gradients that this group alone held are free again. */
static void let_go(struct emitter *e, const struct program_group *g)
{
    bool own = g->folded_grad != NO_BUFFER; /* made by fold_gradients, not one of the list */
    for (int k = 0; k < g->n_output_grads; k++) {
        e->holders[g->output_grad[k]]--;
        own &= g->output_grad[k] != g->folded_grad;
    }
    if (own)
        e->holders[g->folded_grad]--;
}

/* Groups whose inputs' gradient is the output's: nothing to compute. */
static enum status pass_gradient_on(struct emitter *e, struct program_group *g)
{
    for (int k = 0; k < g->spec.op.n_inputs; k++)
        TRY(hand_gradient(e, input_tensor(e, g, k), g->folded_grad));
    return STATUS_OK;
}

static enum status emit_backward(struct emitter *e, int number)
{
    struct program_group *g = &e->p->groups[number];
    struct tensor *out = &e->tensors[g->last_node];
    unsigned flags = op_get_info(g->spec.op.op)->flags;
    g->n_output_grads = out->n_grads;
    memcpy(g->output_grad, out->grad, sizeof out->grad);
    bool loss = flags & OP_IS_LOSS;
    if (!out->needs_gradient || (out->n_grads == 0 && !loss))
        return STATUS_OK;
    if (g->needs.output_is_input) { /* one tensor with its input: hand the whole list on */
        for (int k = 0; k < g->n_output_grads; k++)
            TRY(hand_gradient(e, input_tensor(e, g, 0), g->output_grad[k]));
        let_go(e, g);
        return STATUS_OK;
    }
    if (!loss)
        TRY(fold_gradients(e, number));
    if (flags & OP_PASSES_GRADIENT) {
        TRY(pass_gradient_on(e, g));
        let_go(e, g);
        return STATUS_OK;
    }
    if (g->spec.residual)
        TRY(hand_gradient(e, residual_tensor(e, g), g->folded_grad));
    TRY(add_input_gradients(e, g));
    TRY(add_buffer(e, g->name, BUFFER_WORKSPACE, NULL, g->needs.backward_workspace_bytes,
                   &g->backward_workspace));
    if (flags & OP_SPLIT_GRADIENT) {
        TRY(emit_pass(e, number, PASS_BACKWARD_WEIGHTS));
        if (g->input_grad[0] != NO_BUFFER)
            TRY(emit_pass(e, number, PASS_BACKWARD_DATA));
    } else {
        TRY(emit_pass(e, number, PASS_BACKWARD));
    }
    let_go(e, g);
    return emit_updates(e, g);
}

/* ---- the whole ---- */

static enum status allocate(struct emitter *e)
{
    struct program *p = e->p;
    const int per_group = 6 + OP_MAX_INPUTS; /* output, saved, two workspaces, gradients */
    e->buffer_capacity = 4 + p->n_groups * per_group + 4 * p->graph->n_params;
    e->instr_capacity = 1 + 4 * p->n_groups + p->graph->n_params;
    size_t n_buffers = (size_t)e->buffer_capacity, n_instrs = (size_t)e->instr_capacity;
    TRY(arena_alloc_array(p->memory, n_buffers, sizeof *p->buffers, &p->buffers));
    TRY(arena_alloc_array(p->memory, n_buffers, sizeof *e->holders, &e->holders));
    TRY(arena_alloc_array(p->memory, n_instrs, sizeof *p->instrs, &p->instrs));
    TRY(arena_alloc_array(p->memory, (size_t)p->graph->n_nodes, sizeof *e->tensors, &e->tensors));
    return arena_alloc_array(p->memory, (size_t)p->graph->n_params, sizeof *p->params, &p->params);
}

static enum status emit_load(struct emitter *e)
{
    struct program *p = e->p;
    struct tensor *images = &e->tensors[0];
    TRY(p->backend->layout_plain(p->device, &p->graph->nodes[0].op.output, &images->layout));
    TRY(add_tensor(e, "images", BUFFER_ACTIVATIONS, images->layout, &images->buffer));
    p->images = images->buffer;
    TRY(add_buffer(e, "labels", BUFFER_ACTIVATIONS, NULL,
                   p->graph->batch * (int64_t)sizeof(int32_t), &p->labels));
    struct list none = {0}, writes = {0};
    list_add(&writes, p->images);
    list_add(&writes, p->labels);
    return add_instr(e, (struct instr){.kind = INSTR_LOAD}, &none, &writes);
}

enum status lowering_emit(struct program *p, const struct program *shares_params_of)
{
    struct emitter e = {.p = p};
    TRY(allocate(&e));
    TRY(emit_load(&e));
    for (int i = 0; i < p->n_groups; i++) {
        TRY(create_kernels(&e, &p->groups[i], shares_params_of));
        TRY(emit_forward(&e, i));
    }
    const struct program_group *loss = &p->groups[p->n_groups - 1];
    p->losses = loss->output;
    p->logits = loss->input[0];
    for (int i = p->n_groups - 1; p->training && i >= 0; i--)
        TRY(emit_backward(&e, i));
    return STATUS_OK;
}
