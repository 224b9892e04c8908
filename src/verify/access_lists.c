/* The buffers that every instruction reads and writes, found once more from the array entry that
 * the runtime will use, and compared with the lists that places and waits were made from. */
#include "verify/checking.h"

#include <limits.h>

struct lists {
    int n_reads, reads[64], n_writes, writes[64];
};

static void read_buffer(struct lists *l, int b)
{
    if (b != NO_BUFFER)
        l->reads[l->n_reads++] = b;
}

static void write_buffer(struct lists *l, int b)
{
    if (b != NO_BUFFER)
        l->writes[l->n_writes++] = b;
}

static bool is_buffer(const struct program *p, int b)
{
    return b >= 0 && b < p->n_buffers;
}

static bool is_buffer_or_none(const struct program *p, int b)
{
    return b == NO_BUFFER || is_buffer(p, b);
}

static bool holds(const struct program *p, int b, int64_t n_bytes)
{
    return n_bytes == 0 || (b != NO_BUFFER && p->buffers[b].n_bytes >= n_bytes);
}

/* ---- runs ---- */

static bool run_is_in_range(const struct program *p, const struct program_run *run)
{
    const int others[] = {run->residual,   run->output, run->saved,      run->workspace,
                          run->statistics, run->labels, run->folded_grad};
    bool good = run->n_output_grads >= 0 && run->n_output_grads <= GROUP_MAX_ADDENDS;
    for (size_t k = 0; k < sizeof others / sizeof others[0]; k++)
        good &= is_buffer_or_none(p, others[k]);
    for (int k = 0; k < OP_MAX_INPUTS; k++)
        good &= is_buffer_or_none(p, run->input[k]) && is_buffer_or_none(p, run->input_grad[k]);
    for (int k = 0; k < OP_MAX_PARAMS; k++)
        good &= is_buffer_or_none(p, run->param[k]) && is_buffer_or_none(p, run->param_grad[k]);
    for (int k = 0; good && k < run->n_output_grads; k++)
        good &= is_buffer(p, run->output_grad[k]);
    return good;
}

/* Memory that has no layout to tell its size. */
static bool run_has_room(const struct program *p, const struct instr *instr,
                         const struct program_run *run)
{
    const struct program_group *g = &p->groups[instr->group];
    bool forward = instr->pass == PASS_FORWARD || instr->pass == PASS_FORWARD_STATISTICS;
    int64_t scratch =
        forward ? g->needs.forward_workspace_bytes : g->needs.backward_workspace_bytes;
    int64_t statistics = g->spec.shared_statistics ? g->needs.statistics_count : 0;
    return holds(p, run->workspace, scratch) && holds(p, run->saved, g->needs.saved_bytes) &&
           holds(p, run->statistics, statistics * (int64_t)sizeof(double));
}

static void list_forward(const struct program *p, const struct instr *instr,
                         const struct program_run *run, struct lists *l)
{
    const struct program_group *g = &p->groups[instr->group];
    const struct graph_node *node = &p->graph->nodes[g->first_node];
    for (int k = 0; k < g->spec.op.n_inputs; k++)
        read_buffer(l, run->input[k]);
    write_buffer(l, run->workspace);
    if (instr->pass == PASS_FORWARD_STATISTICS) {
        write_buffer(l, run->statistics);
        return;
    }
    if (g->spec.shared_statistics)
        read_buffer(l, run->statistics);
    read_buffer(l, run->residual);
    read_buffer(l, run->labels);
    for (int k = 0; k < OP_MAX_PARAMS; k++)
        read_buffer(l, run->param[k]);
    write_buffer(l, run->output);
    write_buffer(l, run->saved);
    for (int k = 0; p->training && !run->again && k < node->n_params; k++)
        if (!p->graph->params[node->first_param + k].spec.trained)
            write_buffer(l, run->param[k]);
}

static void list_backward(const struct program *p, const struct instr *instr,
                          const struct program_run *run, struct lists *l)
{
    const struct program_group *g = &p->groups[instr->group];
    bool shared = g->spec.shared_statistics, first = instr->pass == PASS_BACKWARD_STATISTICS;
    bool makes_weights =
        first || instr->pass == PASS_BACKWARD_WEIGHTS || (instr->pass == PASS_BACKWARD && !shared);
    bool makes_data = instr->pass == PASS_BACKWARD || instr->pass == PASS_BACKWARD_DATA;
    bool activates = g->spec.activation != ACTIVATION_NONE;
    bool folds = op_get_info(g->spec.op.op)->flags & OP_FOLDS_GRADIENTS && (!shared || first);
    if (!folds) /* another instruction has folded them */
        read_buffer(l, run->folded_grad);
    for (int k = 0; folds && k < run->n_output_grads; k++)
        read_buffer(l, run->output_grad[k]);
    if (folds && (run->n_output_grads > 1 || (run->n_output_grads == 1 && activates)))
        write_buffer(l, run->folded_grad);
    for (int k = 0; g->needs.reads_input && k < g->spec.op.n_inputs; k++)
        read_buffer(l, run->input[k]);
    if (g->needs.reads_output)
        read_buffer(l, run->output);
    for (int k = 0; instr->pass != PASS_BACKWARD_WEIGHTS && k < OP_MAX_PARAMS; k++)
        read_buffer(l, run->param[k]);
    read_buffer(l, run->saved);
    read_buffer(l, run->labels);
    if (first)
        write_buffer(l, run->statistics);
    else
        read_buffer(l, run->statistics);
    for (int k = 0; makes_data && k < g->spec.op.n_inputs; k++)
        write_buffer(l, run->input_grad[k]);
    for (int k = 0; makes_weights && k < OP_MAX_PARAMS; k++)
        write_buffer(l, run->param_grad[k]);
    write_buffer(l, run->workspace);
}

static enum status list_run(const struct program *p, int number, struct lists *l)
{
    const struct instr *instr = &p->instrs[number];
    if (instr->group < 0 || instr->group >= p->n_groups || (int)instr->pass < 0 ||
        instr->pass >= PASS_COUNT)
        return check_fail(p, number, "runs a group or pass that does not exist");
    const struct program_run *run = &p->runs[instr->index];
    if (!run_is_in_range(p, run))
        return check_fail(p, number, "names a buffer that does not exist");
    if (!run_has_room(p, instr, run))
        return check_fail(p, number, "has too little memory beside its tensors");
    if (instr->pass == PASS_FORWARD || instr->pass == PASS_FORWARD_STATISTICS)
        list_forward(p, instr, run, l);
    else
        list_backward(p, instr, run, l);
    return STATUS_OK;
}

/* ---- the others ---- */

static enum status list_fold(const struct program *p, int number, struct lists *l)
{
    const struct instr *instr = &p->instrs[number];
    const struct program_fold *fold = &p->folds[instr->index];
    bool good = fold->n_addends >= 1 && fold->n_addends <= GROUP_MAX_ADDENDS &&
                is_buffer(p, fold->to) && is_buffer_or_none(p, fold->output) &&
                (fold->output == NO_BUFFER) == (fold->activation == ACTIVATION_NONE);
    for (int k = 0; good && k < fold->n_addends; k++)
        good &= is_buffer(p, fold->addend[k]);
    if (!good)
        return check_fail(p, number, "has a broken array entry");
    for (int k = 0; k < fold->n_addends; k++)
        read_buffer(l, fold->addend[k]);
    read_buffer(l, fold->output);
    write_buffer(l, fold->to);
    return STATUS_OK;
}

/* Whether a box lies in a tensor of this layout, and the layout in the buffer. */
static bool box_fits(const struct program *p, int b, const layout *l, const int64_t *begin,
                     const int64_t *extent)
{
    if (!l || p->backend->layout_bytes(l) > p->buffers[b].n_bytes ||
        p->backend->layout_type(l) != p->buffers[b].type)
        return false;
    const struct shape *shape = p->backend->layout_shape(l);
    for (int i = 0; i < shape->rank; i++)
        if (begin[i] < 0 || extent[i] < 1 || begin[i] + extent[i] > shape->dim[i])
            return false;
    return true;
}

static enum status list_copy(const struct program *p, int number, struct lists *l)
{
    const struct instr *instr = &p->instrs[number];
    bool clear = instr->kind == INSTR_CLEAR;
    const struct program_copy *c = &p->copies[instr->index];
    if (!is_buffer(p, c->to) || (clear ? c->from != NO_BUFFER : !is_buffer(p, c->from)))
        return check_fail(p, number, "names a buffer that does not exist");
    if (instr->kind == INSTR_COPY) {
        const struct region_copy *r = &c->region;
        if (!box_fits(p, c->from, r->from_layout, r->from_begin, r->extent) ||
            !box_fits(p, c->to, r->to_layout, r->to_begin, r->extent) ||
            p->backend->layout_shape(r->from_layout)->rank !=
                p->backend->layout_shape(r->to_layout)->rank)
            return check_fail(p, number, "copies a box that does not fit");
    } else if (!clear && p->buffers[c->from].n_bytes != p->buffers[c->to].n_bytes) {
        return check_fail(p, number, "is between buffers of different sizes");
    }
    bool adds = instr->kind == INSTR_ACCUMULATE || (instr->kind == INSTR_COPY && c->region.add);
    read_buffer(l, c->from);
    if (adds)
        read_buffer(l, c->to);
    write_buffer(l, c->to);
    return STATUS_OK;
}

static enum status list_load(const struct program *p, int number, struct lists *l)
{
    const struct instr *instr = &p->instrs[number];
    const struct program_load *load = &p->loads[instr->index];
    if (!is_buffer_or_none(p, load->images) || !is_buffer_or_none(p, load->labels))
        return check_fail(p, number, "names a buffer that does not exist");
    int64_t n_labels = load->label_samples.end - load->label_samples.begin;
    if (load->labels != NO_BUFFER && !holds(p, load->labels, n_labels * (int64_t)sizeof(int32_t)))
        return check_fail(p, number, "has more labels than room");
    write_buffer(l, load->images);
    write_buffer(l, load->labels);
    return STATUS_OK;
}

static enum status list_update(const struct program *p, int number, struct lists *l)
{
    const struct instr *instr = &p->instrs[number];
    if (instr->param < 0 || instr->param >= p->graph->n_params)
        return check_fail(p, number, "updates no parameter");
    const struct program_param *param = &p->params[instr->param];
    if (!is_buffer(p, param->weight) || !is_buffer(p, param->gradient) ||
        !is_buffer_or_none(p, param->master) || !is_buffer_or_none(p, param->state[0]) ||
        !is_buffer_or_none(p, param->state[1]))
        return check_fail(p, number, "lacks a weight or a gradient");
    read_buffer(l, param->gradient);
    write_buffer(l, param->weight);
    write_buffer(l, param->master);
    write_buffer(l, param->state[0]);
    write_buffer(l, param->state[1]);
    return STATUS_OK;
}

static enum status list_message(const struct program *p, int number, struct lists *l)
{
    const struct instr *instr = &p->instrs[number];
    const struct program_message *m = &p->messages[instr->index];
    if (!is_buffer(p, m->buffer) || m->n_bytes != p->buffers[m->buffer].n_bytes)
        return check_fail(p, number, "has no buffer, or one of another size");
    if (m->peer < 0 || m->peer >= p->plan->n_workers || m->peer == p->worker)
        return check_fail(p, number, "has no peer");
    if (instr->kind == INSTR_SEND)
        read_buffer(l, m->buffer);
    else
        write_buffer(l, m->buffer);
    return STATUS_OK;
}

static bool is_member(const struct program *p, const struct comm_reduction *r)
{
    bool member = false;
    for (int k = 0; k < r->n_members; k++) {
        if (r->members[k] < 0 || r->members[k] >= p->plan->n_workers ||
            (k && r->members[k] <= r->members[k - 1]))
            return false;
        member |= r->members[k] == p->worker;
    }
    return member;
}

/* All of it: a batch norm's statistics, or a bucket of gradients. */
static bool reduces_all(const struct program *p, const struct instr *instr,
                        const struct program_reduction *r)
{
    int64_t n_bytes = r->spec.count * element_bytes(r->spec.type);
    if (r->spec.type != p->buffers[r->buffer].type)
        return false;
    if (instr->group >= 0)
        return instr->group < p->n_groups && r->spec.type == ELEMENT_F64 &&
               r->spec.count == p->groups[instr->group].needs.statistics_count &&
               holds(p, r->buffer, n_bytes);
    return n_bytes == p->buffers[r->buffer].n_bytes;
}

static enum status list_reduction(const struct program *p, int number, struct lists *l)
{
    const struct instr *instr = &p->instrs[number];
    const struct program_reduction *r = &p->reductions[instr->index];
    int64_t scratch = p->transport ? p->transport->reduce_workspace_bytes(&r->spec) : 0;
    if (!is_buffer(p, r->buffer) || !is_buffer_or_none(p, r->workspace) ||
        !reduces_all(p, instr, r) || !holds(p, r->workspace, scratch))
        return check_fail(p, number, "has no buffers, or of another size");
    if (!is_member(p, &r->spec))
        return check_fail(p, number, "is over workers that are no ascending list with this one");
    read_buffer(l, r->buffer);
    write_buffer(l, r->buffer);
    write_buffer(l, r->workspace);
    return STATUS_OK;
}

/* ---- comparing ---- */

static bool is_subset(int n, const int *items, int n_all, const int *all)
{
    for (int i = 0; i < n; i++) {
        int k = 0;
        while (k < n_all && all[k] != items[i])
            k++;
        if (k == n_all)
            return false;
    }
    return true;
}

/* A buffer may stand in a list twice, and the order means nothing. */
static bool same_set(int n, const int *a, int m, const int *b)
{
    return is_subset(n, a, m, b) && is_subset(m, b, n, a);
}

static enum status list_instr(const struct program *p, int number, struct lists *l)
{
    static enum status (*const rules[])(const struct program *, int, struct lists *) = {
        [INSTR_LOAD] = list_load,       [INSTR_RUN] = list_run,
        [INSTR_FOLD] = list_fold,       [INSTR_COPY] = list_copy,
        [INSTR_CLEAR] = list_copy,      [INSTR_ACCUMULATE] = list_copy,
        [INSTR_STASH] = list_copy,      [INSTR_UPDATE] = list_update,
        [INSTR_SEND] = list_message,    [INSTR_RECEIVE] = list_message,
        [INSTR_REDUCE] = list_reduction};
    _Static_assert(sizeof rules / sizeof rules[0] == INSTR_KIND_COUNT, "a rule each");
    const struct instr *instr = &p->instrs[number];
    if ((int)instr->kind < 0 || instr->kind >= INSTR_KIND_COUNT)
        return status_fail(STATUS_FAILED, "program check: instruction %d is of no kind", number);
    const int lengths[] = {[INSTR_LOAD] = p->n_loads,       [INSTR_RUN] = p->n_runs,
                           [INSTR_FOLD] = p->n_folds,       [INSTR_COPY] = p->n_copies,
                           [INSTR_CLEAR] = p->n_copies,     [INSTR_ACCUMULATE] = p->n_copies,
                           [INSTR_STASH] = p->n_copies,     [INSTR_UPDATE] = INT_MAX, /* none */
                           [INSTR_SEND] = p->n_messages,    [INSTR_RECEIVE] = p->n_messages,
                           [INSTR_REDUCE] = p->n_reductions};
    if (instr->index < 0 || instr->index >= lengths[instr->kind])
        return check_fail(p, number, "has no array entry");
    return rules[instr->kind](p, number, l);
}

enum status check_lists(const struct program *p)
{
    for (int i = 0; i < p->n_instrs; i++) {
        const struct instr *instr = &p->instrs[i];
        struct lists l = {0};
        TRY(list_instr(p, i, &l));
        bool talks = instr->kind == INSTR_SEND || instr->kind == INSTR_RECEIVE ||
                     instr->kind == INSTR_REDUCE;
        if (talks != (instr->stream == STREAM_COMMUNICATE))
            return check_fail(p, i, "is in the wrong stream");
        if (instr->micro < -1 || instr->micro >= p->n_micros * p->n_steps)
            return check_fail(p, i, "is of micro-batch %d", instr->micro);
        if (!same_set(l.n_reads, l.reads, instr->n_reads, instr->reads))
            return check_fail(p, i, "reads other buffers than it lists");
        if (!same_set(l.n_writes, l.writes, instr->n_writes, instr->writes))
            return check_fail(p, i, "writes other buffers than it lists");
        if (l.n_reads + l.n_writes == 0)
            return check_fail(p, i, "touches nothing");
    }
    return STATUS_OK;
}
