/* Live ranges and offsets.
 *
 * Weights and optimizer state live always and lie one behind the other, in parameter order. The
 * buffers of the other classes live from the first instruction that writes them to the last that
 * touches them. They are placed largest first, each at the lowest offset where it meets no placed
 * buffer that lives at the same time: not optimal in general, but it always reaches the largest sum
 * of live bytes within a few percent on these programs, and is quick. */
#include "program/lowering.h"

#include <stdlib.h>

static bool lives_always(const struct buffer *b)
{
    return b->class == BUFFER_WEIGHTS || b->class == BUFFER_OPTIMIZER;
}

/* A part lives as long as the whole that it lies in. */
static void touch(struct program *p, int buffer, int instr)
{
    for (; buffer != NO_BUFFER; buffer = p->buffers[buffer].parent) {
        struct buffer *b = &p->buffers[buffer];
        if (b->first_write < 0)
            b->first_write = instr;
        b->last_use = instr;
    }
}

void lowering_find_live_ranges(struct program *p)
{
    for (int i = 0; i < p->n_buffers; i++)
        p->buffers[i].first_write = p->buffers[i].last_use = -1;
    for (int i = 0; i < p->n_instrs; i++) {
        const struct instr *instr = &p->instrs[i];
        for (int k = 0; k < instr->n_reads; k++)
            touch(p, instr->reads[k], i);
        for (int k = 0; k < instr->n_writes; k++)
            touch(p, instr->writes[k], i);
    }
    /* The host reads these after the last instruction. */
    for (int i = 0; i < p->n_results; i++) {
        p->buffers[p->results[i].losses].last_use = p->n_instrs;
        if (p->results[i].logits != NO_BUFFER)
            p->buffers[p->results[i].logits].last_use = p->n_instrs;
    }
}

static void place_params(struct program *p, const struct program *like)
{
    for (int i = 0; i < p->graph->n_params; i++) {
        const struct program_param *param = &p->params[i];
        const int buffers[3] = {param->weight, param->state[0], param->state[1]};
        const struct program_param *there = like ? &like->params[i] : NULL;
        const int theirs[3] = {there ? there->weight : 0, there ? there->state[0] : 0,
                               there ? there->state[1] : 0};
        for (int k = 0; k < 3; k++) {
            if (buffers[k] == NO_BUFFER)
                continue;
            struct buffer *b = &p->buffers[buffers[k]];
            int64_t *slab = &p->slab_bytes[b->class];
            b->offset = like ? like->buffers[theirs[k]].offset : *slab;
            if (*slab < b->offset + b->n_bytes)
                *slab = b->offset + b->n_bytes;
        }
    }
}

static int larger_first(const void *a, const void *b)
{
    const struct buffer *x = *(const struct buffer *const *)a,
                        *y = *(const struct buffer *const *)b;
    if (x->n_bytes != y->n_bytes)
        return x->n_bytes < y->n_bytes ? 1 : -1;
    return (x > y) - (x < y); /* the order of creation: the result must not depend on qsort */
}

static int lower_first(const void *a, const void *b)
{
    const struct buffer *x = *(const struct buffer *const *)a,
                        *y = *(const struct buffer *const *)b;
    return (x->offset > y->offset) - (x->offset < y->offset);
}

/* The lowest gap of n_bytes between the placed buffers that live together with b. `neighbours` is
 * room for as many. */
static int64_t lowest_gap(const struct buffer *b, struct buffer **placed, int n_placed,
                          struct buffer **neighbours)
{
    int n = 0;
    for (int i = 0; i < n_placed; i++)
        if (placed[i]->first_write <= b->last_use && b->first_write <= placed[i]->last_use)
            neighbours[n++] = placed[i];
    qsort(neighbours, (size_t)n, sizeof *neighbours, lower_first);
    int64_t offset = 0;
    for (int i = 0; i < n; i++) {
        if (offset + b->n_bytes <= neighbours[i]->offset)
            break;
        int64_t end = neighbours[i]->offset + neighbours[i]->n_bytes;
        if (end > offset)
            offset = end;
    }
    return offset;
}

static enum status place_class(struct program *p, enum buffer_class class)
{
    struct buffer **order, **neighbours;
    size_t capacity = (size_t)p->n_buffers;
    TRY(arena_alloc_array(p->memory, capacity, sizeof *order, &order));
    TRY(arena_alloc_array(p->memory, capacity, sizeof *neighbours, &neighbours));
    int n = 0;
    for (int i = 0; i < p->n_buffers; i++)
        if (p->buffers[i].class == class && p->buffers[i].first_write >= 0 &&
            p->buffers[i].parent == NO_BUFFER)
            order[n++] = &p->buffers[i];
    qsort(order, (size_t)n, sizeof *order, larger_first);
    for (int i = 0; i < n; i++) {
        struct buffer *b = order[i];
        b->offset = lowest_gap(b, order, i, neighbours);
        if (p->slab_bytes[class] < b->offset + b->n_bytes)
            p->slab_bytes[class] = b->offset + b->n_bytes;
    }
    return STATUS_OK;
}

enum status lowering_place_buffers(struct program *p, const struct program *shares)
{
    place_params(p, shares);
    for (int class = 0; class < BUFFER_CLASS_COUNT; class ++)
        if (!lives_always(&(struct buffer){.class = (enum buffer_class) class}))
            TRY(place_class(p, (enum buffer_class) class));
    for (int i = 0; i < p->n_buffers; i++) {
        struct buffer *b = &p->buffers[i];
        if (b->parent != NO_BUFFER)
            b->offset = p->buffers[b->parent].offset + b->parent_offset;
    }
    return STATUS_OK;
}
