/* Forward of one group for one micro-batch, and the loading of the batch. */
#include "base/numbers.h"
#include "program/lowering.h"

#include <string.h>

static struct instr named(int group_number, int micro)
{
    return (struct instr){.group = group_number, .micro = micro, .param = -1};
}

/* ---- loading ---- */

static bool is_loss(const struct emitter *e, const struct part_group *g)
{
    return op_get_info(e->p->graph->nodes[g->first_node].op.op)->flags & OP_IS_LOSS;
}

/* This worker's samples of a tensor, numbered within the step's batch. */
static struct range samples_in_step(const struct emitter *e, int tensor, int micro)
{
    const struct region *region = emit_region(e, tensor, emit_size(e, micro), e->me);
    struct range r = region_samples(region, &e->part->tensors[tensor].axes);
    int64_t first = e->part->micro_first[micro % e->part->n_micros];
    return (struct range){r.begin + first, r.end + first};
}

static void touch_samples(struct program *p, struct range samples)
{
    bool first = p->samples.end == 0;
    p->samples.begin = first ? samples.begin : int64_min(p->samples.begin, samples.begin);
    p->samples.end = int64_max(p->samples.end, samples.end);
}

static enum status load_images(struct emitter *e, int stage, int micro, struct program_load *load)
{
    int size = emit_size(e, micro);
    const struct part_tensor *images = &e->part->tensors[TENSOR_IMAGES];
    const struct region *region = emit_region(e, TENSOR_IMAGES, size, e->me);
    if (!e->analysis->stages[stage].reads_images || region_is_empty(region, images->axes.rank))
        return STATUS_OK;
    const layout **l = &e->layouts[TENSOR_IMAGES][size];
    struct shape shape = region_shape(region, images->axes.rank);
    TRY(e->p->backend->layout_plain(e->p->device, precision_get_info(e->p->precision)->activation,
                                    &shape, l));
    TRY(emit_tensor(e, "images", BUFFER_ACTIVATIONS, *l, &load->images));
    emit_instance(e, TENSOR_IMAGES, micro)->buffer = load->images;
    load->image_samples = samples_in_step(e, TENSOR_IMAGES, micro);
    return STATUS_OK;
}

/* Only the loss reads labels, so their buffer is kept with its instance. */
static enum status load_labels(struct emitter *e, int stage, int micro, struct program_load *load)
{
    int last = e->part->n_groups - 1, size = emit_size(e, micro);
    const struct part_group *loss = &e->part->groups[last];
    const struct region *region = emit_region(e, loss->output, size, e->me);
    const struct axes *axes = &e->part->tensors[loss->output].axes;
    if (!is_loss(e, loss) || loss->stage != stage || region_is_empty(region, axes->rank))
        return STATUS_OK;
    load->label_samples = samples_in_step(e, loss->output, micro);
    int64_t n = load->label_samples.end - load->label_samples.begin;
    TRY(emit_buffer(e, "labels", BUFFER_ACTIVATIONS, ELEMENT_I32, n, &load->labels));
    emit_group_instance(e, last, micro)->run.labels = load->labels;
    return STATUS_OK;
}

enum status emit_load(struct emitter *e, int stage, int micro)
{
    struct program *p = e->p;
    struct program_load load = {.images = NO_BUFFER, .labels = NO_BUFFER}, *to;
    TRY(load_images(e, stage, micro, &load));
    TRY(load_labels(e, stage, micro, &load));
    if (load.images == NO_BUFFER && load.labels == NO_BUFFER)
        return STATUS_OK;
    if (load.images != NO_BUFFER)
        touch_samples(p, load.image_samples);
    if (load.labels != NO_BUFFER)
        touch_samples(p, load.label_samples);
    TRY(arrays_extend(e->arrays, p, ARRAY_LOADS, &to));
    *to = load;
    emit_writes(e, load.images);
    emit_writes(e, load.labels);
    TRY(emit_instr(e, (struct instr){.kind = INSTR_LOAD,
                                     .micro = micro,
                                     .group = -1,
                                     .param = -1,
                                     .index = p->n_loads - 1}));
    return load.images != NO_BUFFER ? emit_post_views(e, TENSOR_IMAGES, micro) : STATUS_OK;
}

/* ---- statistics over several pieces ---- */

/* Whether two regions of a tensor differ only along axes over which statistics are summed: they
 * have the same channels and, where statistics are those of a worker's samples, the same samples.
 */
static bool shares_statistics(const struct loop_nest *nest, bool by_worker, const struct region *x,
                              const struct region *y)
{
    for (int a = 0; a < nest->output.rank; a++) {
        int loop = nest->output.axis[a].term[0].loop;
        bool summed = nest->loop[loop].role == LOOP_STATISTIC &&
                      plan_summed_statistics(by_worker, nest, 1U << loop);
        if (!summed && x->axis[a].begin != y->axis[a].begin)
            return false;
    }
    return true;
}

/* Workers with a piece that is not empty, in ascending order. */
static enum status find_statistics_members(struct emitter *e, int group_number, int size,
                                           struct kernel *k)
{
    const struct loop_nest *nest = &e->analysis->cases[group_number][size]->nest;
    int tensor = e->part->groups[group_number].output, *all;
    const struct region *mine = emit_region(e, tensor, size, e->me);
    bool by_worker = plan_norms_by_worker(e->p->plan);
    TRY(arena_alloc_array(e->p->memory, (size_t)e->p->plan->n_workers, sizeof *all, &all));
    for (int w = 0; w < e->p->plan->n_workers; w++) {
        const struct region *r = emit_region(e, tensor, size, w);
        if (!region_is_empty(r, nest->output.rank) && shares_statistics(nest, by_worker, r, mine))
            all[k->n_members++] = w;
    }
    k->members = all;
    return STATUS_OK;
}

enum status emit_statistics(struct emitter *e, int group_number, int micro, struct kernel *k,
                            int buffer, bool backward, bool again)
{
    if (k->n_members == 0)
        TRY(find_statistics_members(e, group_number, emit_size(e, micro), k));
    if (k->n_members == 1)
        return STATUS_OK;
    int64_t number = ((int64_t)group_number * e->n_micros + micro) * 2 + again;
    struct comm_reduction r = {
        .method = COMM_GATHER,
        .type = ELEMENT_F64,
        .n_members = k->n_members,
        .members = k->members,
        .count = e->p->groups[k->group].needs.statistics_count,
        .tag = emit_tag(backward ? TAG_BACKWARD_STATISTICS : TAG_FORWARD_STATISTICS, number)};
    return emit_reduction(e, &r, buffer, named(k->group, micro));
}

/* Holders without a sample in this micro-batch get the running statistics from one that has some,
 * unless each has its own. */
static enum status hand_out_running_statistics(struct emitter *e, int group_number, int micro,
                                               const struct kernel *k)
{
    struct program *p = e->p;
    const struct part_group *g = &e->part->groups[group_number];
    const struct graph_node *node = &p->graph->nodes[g->first_node];
    int size = emit_size(e, micro), rank = e->part->tensors[g->output].axes.rank;
    const struct program_param *first = &p->params[node->first_param];
    if (!e->analysis->has_empty[group_number][size])
        return STATUS_OK;
    if (!p->training || node->n_params == 0 || first->n_holders < 2 ||
        plan_norms_by_worker(p->plan))
        return STATUS_OK;
    int giver = -1;
    for (int i = 0; i < first->n_holders && giver < 0; i++)
        if (!region_is_empty(emit_region(e, g->output, size, first->holders[i]), rank))
            giver = first->holders[i];
    for (int i = 0; i < first->n_holders; i++) {
        int taker = first->holders[i];
        if (!region_is_empty(emit_region(e, g->output, size, taker), rank))
            continue;
        for (int n = 0; n < node->n_params; n++) {
            const struct program_param *param = &p->params[node->first_param + n];
            if (p->graph->params[node->first_param + n].spec.trained)
                continue;
            /* Not from a running count: only holders of these channels come here. */
            int64_t place = (int64_t)group_number * e->n_micros + micro;
            int64_t behind = (int64_t)e->part->n_groups * e->n_micros * 2;
            int64_t tag = emit_tag(TAG_FORWARD_STATISTICS, behind + place * OP_MAX_PARAMS + n);
            struct instr like = named(k->group, micro);
            like.param = node->first_param + n;
            if (e->me == giver)
                TRY(emit_message(e, INSTR_SEND, taker, tag, param->weight, like));
            if (e->me == taker)
                TRY(emit_message(e, INSTR_RECEIVE, giver, tag, param->weight, like));
        }
    }
    return STATUS_OK;
}

/* ---- one group ---- */

/* The version of each parameter that this micro-batch uses: in an asynchronous pipeline a copy as
 * it is now, because updates of earlier micro-batches come before this one's backward. */
static enum status choose_weights(struct emitter *e, int group_number, int micro,
                                  struct program_run *run)
{
    struct program *p = e->p;
    const struct part_group *g = &e->part->groups[group_number];
    const struct graph_node *node = &p->graph->nodes[g->first_node];
    bool stash =
        p->training && p->plan->schedule == PLAN_PIPEDREAM && g->stage < p->plan->n_stages - 1;
    for (int k = 0; k < node->n_params; k++) {
        int number = node->first_param + k;
        const struct program_param *param = &p->params[number];
        run->param[k] = param->weight;
        if (!stash || param->weight == NO_BUFFER || !graph_param_learns(&p->graph->params[number]))
            continue;
        int *version = &e->stash[number * e->n_micros + micro];
        if (*version == NO_BUFFER) {
            TRY(emit_tensor(e, p->graph->params[number].name, BUFFER_WEIGHT_VERSIONS,
                            p->buffers[param->weight].layout, version));
            struct instr like = named(-1, micro);
            like.param = number;
            TRY(emit_copy(e, INSTR_STASH, &(struct program_copy){param->weight, *version, {0}},
                          like));
        }
        run->param[k] = *version;
    }
    return STATUS_OK;
}

static enum status choose_inputs(struct emitter *e, const struct part_group *g, int micro,
                                 const struct kernel *k, struct program_run *run)
{
    for (int i = 0; i < k->piece->op.n_inputs; i++) {
        int tensor = g->input[k->piece->slot[i]];
        TRY(emit_complete_view(e, tensor, micro));
        run->input[i] = emit_instance(e, tensor, micro)->buffer;
    }
    if (g->residual_sum) {
        TRY(emit_complete_view(e, g->residual, micro));
        run->residual = emit_instance(e, g->residual, micro)->buffer;
    }
    return STATUS_OK;
}

static enum status run_forward(struct emitter *e, int group_number, int micro, struct kernel *k,
                               struct program_run *run)
{
    struct program *p = e->p;
    const struct program_group *g = &p->groups[k->group];
    const struct graph_node *node = &p->graph->nodes[g->first_node];
    if (g->spec.shared_statistics) {
        TRY(emit_buffer(e, g->name, BUFFER_ACTIVATIONS, ELEMENT_F64, g->needs.statistics_count,
                        &run->statistics));
        for (int i = 0; i < g->spec.op.n_inputs; i++)
            emit_reads(e, run->input[i]);
        emit_writes(e, run->statistics);
        emit_writes(e, run->workspace);
        TRY(emit_run(e, run, PASS_FORWARD_STATISTICS, k->group, micro));
        TRY(emit_statistics(e, group_number, micro, k, run->statistics, false, run->again));
    }
    for (int i = 0; i < g->spec.op.n_inputs; i++)
        emit_reads(e, run->input[i]);
    emit_reads(e, run->statistics);
    emit_reads(e, run->residual);
    emit_reads(e, run->labels);
    for (int i = 0; i < OP_MAX_PARAMS; i++)
        emit_reads(e, run->param[i]);
    emit_writes(e, run->output);
    emit_writes(e, run->saved);
    emit_writes(e, run->workspace);
    for (int i = 0; p->training && !run->again && i < node->n_params; i++)
        if (!p->graph->params[node->first_param + i].spec.trained)
            emit_writes(e, run->param[i]); /* running statistics */
    return emit_run(e, run, PASS_FORWARD, k->group, micro);
}

static enum status add_result(struct emitter *e, const struct part_group *g, int micro,
                              const struct program_run *run)
{
    struct program *p = e->p;
    struct program_result *to;
    TRY(arrays_extend(e->arrays, p, ARRAY_RESULTS, &to));
    *to = (struct program_result){.micro = micro,
                                  .losses = run->output,
                                  .logits = p->training ? NO_BUFFER : run->input[0],
                                  .samples = samples_in_step(e, g->output, micro)};
    return STATUS_OK;
}

enum status emit_forward(struct emitter *e, int group_number, int micro, bool again)
{
    struct program *p = e->p;
    const struct part_group *g = &e->part->groups[group_number];
    int size = emit_size(e, micro);
    struct kernel *k;
    TRY(emit_kernel(e, group_number, size, &k));
    if (k->here) {
        const struct program_group *made = &p->groups[k->group];
        struct group_instance *instance = emit_group_instance(e, group_number, micro);
        struct instance *out = emit_instance(e, g->output, micro);
        struct program_run *run = &instance->run;
        run->first_sample = e->part->micro_first[micro % e->part->n_micros];
        run->again = instance->again = again;
        TRY(choose_inputs(e, g, micro, k, run));
        TRY(choose_weights(e, group_number, micro, run));
        if (made->needs.output_is_input) {
            run->output = out->buffer = run->input[0];
        } else {
            const layout *l = e->layouts[g->output][size];
            TRY(emit_tensor(e, e->part->tensors[g->output].name, BUFFER_ACTIVATIONS, l,
                            &run->output));
            TRY(emit_buffer(e, made->name, BUFFER_ACTIVATIONS, ELEMENT_U8, made->needs.saved_bytes,
                            &run->saved));
            TRY(emit_buffer(e, made->name, BUFFER_WORKSPACE, ELEMENT_U8,
                            made->needs.forward_workspace_bytes, &run->workspace));
            out->buffer = run->output;
            TRY(run_forward(e, group_number, micro, k, run));
        }
        if (is_loss(e, g))
            TRY(add_result(e, g, micro, run));
    }
    if (again)
        return STATUS_OK;
    TRY(hand_out_running_statistics(e, group_number, micro, k));
    return emit_post_views(e, g->output, micro);
}
