/* Gradients of parameters that several workers hold: buckets and reductions, updates, servers.
 *
 *     holders of the parameter       its gradient                        its update
 *     one worker                     its own                             at once
 *     several workers                reduced among them, in a bucket     after the stage's backward
 *     several, and a server          sent to the server, summed there    on the server, then sent
 *
 * A bucket is one array that is filled in the order in which backward reaches the parameters. It is
 * reduced as soon as its last gradient is there, while backward goes on. No update waits for a
 * reduction before the stage's backward has ended. The memory of the gradient of a parameter that
 * one worker holds alone is free after the update. */
#include "base/numbers.h"
#include "program/lowering.h"

#include <string.h>

bool emit_is_shared(const struct emitter *e, int param)
{
    const struct program_param *p = &e->p->params[param];
    return p->n_holders > 1 || (p->n_holders == 1 && emit_server_of(e, param) >= 0);
}

static const struct graph_node *node_of(const struct emitter *e, int group_number)
{
    return &e->p->graph->nodes[e->part->groups[group_number].first_node];
}

static struct instr about_param(const struct emitter *e, int number, int step)
{
    return (struct instr){.group = -1, .micro = step * e->p->n_micros, .param = number};
}

/* ---- buckets ---- */

static bool suits(const struct program *program, const struct bucket *b,
                  const struct program_param *p)
{
    if (b->n_members != p->n_holders || b->type != program->buffers[p->gradient].type)
        return false;
    return b->members == p->holders ||
           memcmp(b->members, p->holders, (size_t)b->n_members * sizeof *b->members) == 0;
}

/* Into the open bucket of the parameter's holders and type. */
static enum status put_into_bucket(struct emitter *e, int number)
{
    struct program *p = e->p;
    const struct program_param *param = &p->params[number];
    int at = 0;
    while (at < e->n_buckets && (e->buckets[at].closed || !suits(p, &e->buckets[at], param)))
        at++;
    if (at == e->n_buckets) {
        struct bucket new = {.n_members = param->n_holders,
                             .members = param->holders,
                             .type = p->buffers[param->gradient].type,
                             .buffer = NO_BUFFER};
        TRY(emit_append(e, &e->buckets, &e->n_buckets, &e->bucket_capacity, sizeof new, &new));
    }
    struct bucket *b = &e->buckets[at];
    TRY(emit_append(e, &b->params, &b->n_params, &b->param_capacity, sizeof number, &number));
    p->buffers[param->gradient].parent_offset = b->n_bytes;
    b->n_bytes += p->buffers[param->gradient].n_bytes;
    b->closed = b->n_bytes >= p->plan->bucket_bytes;
    e->bucket_of[number] = at;
    return STATUS_OK;
}

enum status emit_buckets(struct emitter *e)
{
    struct program *p = e->p;
    for (int i = 0; i < p->graph->n_params; i++)
        e->bucket_of[i] = -1;
    for (int g = e->part->n_groups - 1; g >= 0; g--)
        for (int k = 0; k < node_of(e, g)->n_params; k++) {
            int number = node_of(e, g)->first_param + k;
            bool served = emit_server_of(e, number) >= 0;
            if (p->params[number].gradient != NO_BUFFER && !served && emit_is_shared(e, number))
                TRY(put_into_bucket(e, number));
        }
    for (int i = 0; i < e->n_buckets; i++) {
        struct bucket *b = &e->buckets[i];
        b->closed = true;
        TRY(emit_buffer(e, "gradients", BUFFER_GRADIENTS, b->type,
                        b->n_bytes / element_bytes(b->type), &b->buffer));
        for (int k = 0; k < b->n_params; k++)
            p->buffers[p->params[b->params[k]].gradient].parent = b->buffer;
    }
    return STATUS_OK;
}

static enum comm_method method_of(const struct plan *plan)
{
    switch (plan->sync) {
    case PLAN_TREE:
        return COMM_TREE;
    case PLAN_HIERARCHICAL:
        return COMM_HIERARCHICAL;
    default:
        return COMM_RING;
    }
}

static enum status reduce_bucket(struct emitter *e, const struct bucket *b, int step)
{
    struct program *p = e->p;
    struct comm_reduction r = {
        .method = method_of(p->plan),
        .type = b->type,
        .n_members = b->n_members,
        .members = b->members,
        .node_size = p->plan->workers_per_node,
        .count = b->n_bytes / element_bytes(b->type),
        .tag = emit_tag(TAG_BUCKET, (int64_t)step * p->graph->n_params + b->params[0])};
    return emit_reduction(e, &r, b->buffer, about_param(e, b->params[0], step));
}

/* ---- updates ---- */

static enum status update(struct emitter *e, int number, int step)
{
    const struct program_param *param = &e->p->params[number];
    emit_reads(e, param->gradient);
    emit_writes(e, param->weight);
    emit_writes(e, param->master);
    emit_writes(e, param->state[0]);
    emit_writes(e, param->state[1]);
    struct instr instr = about_param(e, number, step);
    instr.kind = INSTR_UPDATE;
    return emit_instr(e, instr);
}

enum status emit_synchronise(struct emitter *e, int group_number, int step)
{
    const struct graph_node *node = node_of(e, group_number);
    for (int k = 0; k < node->n_params; k++) {
        int number = node->first_param + k, bucket = e->bucket_of[number];
        const struct program_param *param = &e->p->params[number];
        if (param->gradient == NO_BUFFER || (bucket < 0 && emit_is_shared(e, number)))
            continue;
        if (bucket < 0) {
            TRY(update(e, number, step));
            continue;
        }
        const struct bucket *b = &e->buckets[bucket];
        if (b->params[b->n_params - 1] == number)
            TRY(reduce_bucket(e, b, step));
    }
    return STATUS_OK;
}

static int stage_of(const struct emitter *e, int param)
{
    return e->p->plan->layers[e->p->graph->params[param].node].stage;
}

/* ---- servers ---- */

/* A holder's gradient to the server; there it is the first, or is added. */
static enum status push_gradient(struct emitter *e, int number, int step, int holder, int server,
                                 bool first)
{
    struct program *p = e->p;
    const struct program_param *param = &p->params[number];
    struct instr like = about_param(e, number, step);
    int64_t tag = emit_tag(TAG_MESSAGE, e->next_message++);
    if (e->me == holder)
        return emit_message(e, INSTR_SEND, server, tag, param->gradient, like);
    if (e->me != server)
        return STATUS_OK;
    if (first)
        return emit_message(e, INSTR_RECEIVE, holder, tag, param->gradient, like);
    int beside;
    TRY(emit_tensor(e, p->graph->params[number].name, BUFFER_TRANSFER,
                    p->buffers[param->gradient].layout, &beside));
    TRY(emit_message(e, INSTR_RECEIVE, holder, tag, beside, like));
    return emit_copy(e, INSTR_ACCUMULATE, &(struct program_copy){beside, param->gradient, {0}},
                     like);
}

static enum status pull_weight(struct emitter *e, int number, int step, int holder, int server)
{
    const struct program_param *param = &e->p->params[number];
    struct instr like = about_param(e, number, step);
    int64_t tag = emit_tag(TAG_MESSAGE, e->next_message++);
    if (e->me == holder)
        return emit_message(e, INSTR_RECEIVE, server, tag, param->weight, like);
    if (e->me == server)
        return emit_message(e, INSTR_SEND, holder, tag, param->weight, like);
    return STATUS_OK;
}

/* A synchronous server sums the gradients of all holders, updates once and sends the weight to all.
 * An asynchronous one applies each holder's gradient by itself, in the order of worker numbers, and
 * the holder goes on with the weight as it is then. In round i it is holder i's turn. */
static enum status serve(struct emitter *e, int number, int step, int round)
{
    /* A server's parameter has one part, the whole. All workers know its holders here, unlike those
     * of program_param, which only holders and the server fill. */
    const struct param_part *whole = &e->analysis->params[number].parts[0];
    int server = emit_server_of(e, number), first = 0, end = whole->n_holders;
    if (e->p->plan->asynchronous) {
        first = int_min(round, end);
        end = int_min(round + 1, end);
    }
    if (first == end)
        return STATUS_OK;
    for (int i = first; i < end; i++)
        TRY(push_gradient(e, number, step, whole->holders[i], server, i == first));
    if (e->me == server)
        TRY(update(e, number, step));
    for (int i = first; i < end; i++)
        TRY(pull_weight(e, number, step, whole->holders[i], server));
    return STATUS_OK;
}

static enum status serve_stage(struct emitter *e, int stage, int step)
{
    int rounds = e->p->plan->asynchronous ? e->p->plan->n_workers : 1;
    for (int i = 0; i < rounds; i++)
        for (int g = e->part->n_groups - 1; g >= 0; g--)
            for (int k = 0; k < node_of(e, g)->n_params; k++) {
                int number = node_of(e, g)->first_param + k;
                if (stage_of(e, number) == stage && emit_server_of(e, number) >= 0)
                    TRY(serve(e, number, step, i));
            }
    return STATUS_OK;
}

enum status emit_stage_updates(struct emitter *e, int stage, int step)
{
    if (e->p->plan->n_servers)
        TRY(serve_stage(e, stage, step));
    for (int i = 0; i < e->n_buckets; i++)
        for (int k = 0; k < e->buckets[i].n_params; k++)
            if (stage_of(e, e->buckets[i].params[k]) == stage)
                TRY(update(e, e->buckets[i].params[k], step));
    return STATUS_OK;
}
