/* Shared by all parts of emission: buffers, and instructions with the buffers that they touch. */
#include "base/array.h"
#include "program/lowering.h"

#include <string.h>

enum status emit_append(struct emitter *e, void *array, int *n, int *capacity, size_t item_bytes,
                        const void *item)
{
    char **items = array;
    TRY(array_reserve(e->scratch, items, *n + 1, capacity, item_bytes));
    memcpy(*items + (size_t)*n * item_bytes, item, item_bytes);
    *n += 1;
    return STATUS_OK;
}

static enum status add_buffer(struct emitter *e, const struct buffer *like, int64_t n_bytes,
                              int *out)
{
    struct program *p = e->p;
    *out = NO_BUFFER;
    if (n_bytes == 0)
        return STATUS_OK;
    int64_t padded = (n_bytes + BUFFER_ALIGNMENT - 1) / BUFFER_ALIGNMENT * BUFFER_ALIGNMENT;
    struct buffer *b;
    int none = 0, n = p->n_buffers;
    TRY(emit_append(e, &e->in_lists, &n, &e->in_lists_capacity, sizeof none, &none));
    TRY(arrays_extend(e->arrays, p, ARRAY_BUFFERS, &b));
    *b = *like;
    b->n_bytes = padded;
    b->parent = NO_BUFFER;
    *out = p->n_buffers - 1;
    return STATUS_OK;
}

enum status emit_buffer(struct emitter *e, const char *name, enum buffer_class class,
                        enum element type, int64_t count, int *out)
{
    const struct buffer like = {.name = name, .class = class, .type = type};
    return add_buffer(e, &like, count * element_bytes(type), out);
}

enum status emit_tensor(struct emitter *e, const char *name, enum buffer_class class,
                        const layout *l, int *out)
{
    const struct backend *b = e->p->backend;
    const struct buffer like = {
        .name = name, .class = class, .layout = l, .type = b->layout_type(l)};
    return add_buffer(e, &like, b->layout_bytes(l), out);
}

static enum status copy_list(struct emitter *e, struct list *l, int *n, const int **items)
{
    enum { AT_ONCE = 2048 };
    if (l->n > e->n_ints || !e->ints) {
        TRY(arena_alloc_array(e->p->memory, AT_ONCE, sizeof *e->ints, &e->ints));
        e->n_ints = AT_ONCE;
    }
    memcpy(e->ints, l->item, (size_t)l->n * sizeof *e->ints);
    *n = l->n;
    *items = e->ints;
    e->ints += l->n;
    e->n_ints -= l->n;
    l->n = 0;
    return STATUS_OK;
}

enum status emit_instr(struct emitter *e, struct instr instr)
{
    struct instr *to;
    if (instr.kind == INSTR_RUN)
        overlap_run(e);
    TRY(copy_list(e, &e->reads, &instr.n_reads, &instr.reads));
    TRY(copy_list(e, &e->writes, &instr.n_writes, &instr.writes));
    TRY(arrays_extend(e->arrays, e->p, ARRAY_INSTRS, &to));
    *to = instr;
    return STATUS_OK;
}

enum status emit_run(struct emitter *e, const struct program_run *run, enum pass pass, int in_group,
                     int micro)
{
    struct program_run *to;
    TRY(arrays_extend(e->arrays, e->p, ARRAY_RUNS, &to));
    *to = *run;
    return emit_instr(e, (struct instr){.kind = INSTR_RUN,
                                        .micro = micro,
                                        .group = in_group,
                                        .pass = pass,
                                        .param = -1,
                                        .index = e->p->n_runs - 1});
}

enum status emit_fold(struct emitter *e, const struct program_fold *fold, struct instr like)
{
    struct program_fold *to;
    for (int k = 0; k < fold->n_addends; k++)
        emit_reads(e, fold->addend[k]);
    emit_reads(e, fold->output);
    emit_writes(e, fold->to);
    TRY(arrays_extend(e->arrays, e->p, ARRAY_FOLDS, &to));
    *to = *fold;
    like.kind = INSTR_FOLD;
    like.index = e->p->n_folds - 1;
    return emit_instr(e, like);
}

enum status emit_copy(struct emitter *e, enum instr_kind kind, const struct program_copy *copy,
                      struct instr like)
{
    struct program_copy *to;
    emit_reads(e, copy->from);
    if (kind == INSTR_ACCUMULATE || (kind == INSTR_COPY && copy->region.add))
        emit_reads(e, copy->to);
    emit_writes(e, copy->to);
    TRY(arrays_extend(e->arrays, e->p, ARRAY_COPIES, &to));
    *to = *copy;
    like.kind = kind;
    like.index = e->p->n_copies - 1;
    return emit_instr(e, like);
}

enum status emit_message(struct emitter *e, enum instr_kind kind, int peer, int64_t tag, int buffer,
                         struct instr like)
{
    struct program_message *to;
    if (kind == INSTR_SEND)
        emit_reads(e, buffer);
    else
        emit_writes(e, buffer);
    TRY(arrays_extend(e->arrays, e->p, ARRAY_MESSAGES, &to));
    *to = (struct program_message){peer, tag, e->p->buffers[buffer].n_bytes, buffer};
    like.kind = kind;
    like.stream = STREAM_COMMUNICATE;
    like.index = e->p->n_messages - 1;
    return emit_instr(e, like);
}

enum status emit_reduction(struct emitter *e, const struct comm_reduction *spec, int buffer,
                           struct instr like)
{
    struct program *p = e->p;
    struct program_reduction *to;
    int workspace;
    int64_t n_bytes = p->transport ? p->transport->reduce_workspace_bytes(spec) : 0;
    TRY(emit_buffer(e, p->buffers[buffer].name, BUFFER_TRANSFER, ELEMENT_U8, n_bytes, &workspace));
    emit_reads(e, buffer);
    emit_writes(e, buffer);
    emit_writes(e, workspace);
    TRY(arrays_extend(e->arrays, p, ARRAY_REDUCTIONS, &to));
    *to = (struct program_reduction){.spec = *spec, .buffer = buffer, .workspace = workspace};
    like.kind = INSTR_REDUCE;
    like.stream = STREAM_COMMUNICATE;
    like.index = p->n_reductions - 1;
    return emit_instr(e, like);
}

int64_t emit_tag(enum tag_kind kind, int64_t number)
{
    return 4 * number + (int64_t)kind;
}

struct instance *emit_instance(const struct emitter *e, int tensor, int micro)
{
    return &e->instances[tensor][micro];
}

struct group_instance *emit_group_instance(const struct emitter *e, int group_number, int micro)
{
    return &e->group_instances[group_number][micro];
}

int emit_size(const struct emitter *e, int micro)
{
    return e->part->size_of_micro[micro % e->part->n_micros];
}

int emit_completed_step(const struct emitter *e, int micro)
{
    int n = e->part->n_micros;
    bool last = micro % n == (e->p->plan->schedule == PLAN_GPIPE ? 0 : n - 1);
    return last ? micro / n : -1;
}

const struct region *emit_region(const struct emitter *e, int tensor, int size, int worker)
{
    return &e->part->tensors[tensor].at[size][worker];
}

enum status emit_natural_layout(struct emitter *e, int tensor, const struct shape *shape,
                                const layout **out)
{
    const struct part_tensor *t = &e->part->tensors[tensor];
    bool images = tensor == TENSOR_IMAGES || t->source == TENSOR_IMAGES;
    enum element type = precision_get_info(e->p->precision)->activation;
    if (images) /* as they were loaded */
        return e->p->backend->layout_plain(e->p->device, type, shape, out);
    return e->p->backend->layout_transfer(e->p->device, type, shape, &t->axes, out);
}
