/* Live ranges and offsets.
 *
 * Weights and optimizer state live always and lie one behind the other, in parameter order. The
 * buffers of the other classes live from the first instruction that writes them to the last that
 * touches them. They are placed largest first, each at the lowest offset where it meets no placed
 * buffer that lives at the same time: not optimal in general, but it always reaches the largest sum
 * of live bytes within a few percent on these programs, and is quick. */
#include "program/lowering.h"

#include <stdlib.h>
#include <string.h>

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

/* ---- what lies where already ----
 *
 * Sorted by offset, and where that is the same by time, in blocks. A block none of whose buffers
 * lives together with the one to be placed is passed in one step, and so is one of which all do
 * and that has no gap of its size. */

enum { BLOCK_SIZE = 32 };

struct placed {
    int64_t offset, end;
    int first_write, last_use;
};

struct block {
    int64_t end;                      /* the largest of its buffers' */
    int64_t widest_gap;               /* between them */
    int earliest_write, latest_write; /* of their first writes */
    int earliest_use, latest_use;     /* of their last uses */
    int n;
    struct placed at[BLOCK_SIZE];
};

struct slab {
    arena *scratch;
    int n_blocks;
    struct block **blocks;
};

static bool is_behind(const struct placed *a, const struct placed *b)
{
    return a->offset != b->offset ? a->offset > b->offset : a->first_write > b->first_write;
}

static void summarise(struct block *k)
{
    k->end = k->widest_gap = 0;
    for (int i = 0; i < k->n; i++) {
        const struct placed *a = &k->at[i];
        if (i == 0) {
            k->earliest_write = k->latest_write = a->first_write;
            k->earliest_use = k->latest_use = a->last_use;
        } else if (a->offset - k->end > k->widest_gap) {
            k->widest_gap = a->offset - k->end;
        }
        k->end = a->end > k->end ? a->end : k->end;
        k->earliest_write = a->first_write < k->earliest_write ? a->first_write : k->earliest_write;
        k->latest_write = a->first_write > k->latest_write ? a->first_write : k->latest_write;
        k->earliest_use = a->last_use < k->earliest_use ? a->last_use : k->earliest_use;
        k->latest_use = a->last_use > k->latest_use ? a->last_use : k->latest_use;
    }
}

static enum status add_block(struct slab *s, int at)
{
    memmove(s->blocks + at + 1, s->blocks + at, (size_t)(s->n_blocks - at) * sizeof *s->blocks);
    s->n_blocks++;
    return arena_alloc(s->scratch, sizeof **s->blocks, &s->blocks[at]);
}

/* The upper half of a full block becomes one of its own. */
static enum status split_block(struct slab *s, int at)
{
    TRY(add_block(s, at + 1));
    struct block *low = s->blocks[at], *high = s->blocks[at + 1];
    high->n = low->n / 2;
    low->n -= high->n;
    memcpy(high->at, low->at + low->n, (size_t)high->n * sizeof *high->at);
    summarise(low);
    summarise(high);
    return STATUS_OK;
}

static enum status insert(struct slab *s, const struct placed *a)
{
    int low = 0, high = s->n_blocks; /* the last block that begins before it */
    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (is_behind(&s->blocks[middle]->at[0], a))
            high = middle;
        else
            low = middle;
    }
    if (s->n_blocks == 0)
        TRY(add_block(s, 0));
    if (s->blocks[low]->n == BLOCK_SIZE) {
        TRY(split_block(s, low));
        low += !is_behind(&s->blocks[low + 1]->at[0], a);
    }
    struct block *k = s->blocks[low];
    int i = k->n++;
    for (; i > 0 && is_behind(&k->at[i - 1], a); i--)
        k->at[i] = k->at[i - 1];
    k->at[i] = *a;
    summarise(k);
    return STATUS_OK;
}

/* Goes on behind what lives together with b, from `offset`; true: there is a gap before the rest.
 */
static bool search_block(const struct block *k, const struct buffer *b, int64_t *offset)
{
    for (int i = 0; i < k->n; i++) {
        const struct placed *a = &k->at[i];
        if (*offset + b->n_bytes <= a->offset)
            return true;
        bool together = a->first_write <= b->last_use && b->first_write <= a->last_use;
        if (together && a->end > *offset)
            *offset = a->end;
    }
    return false;
}

/* The lowest gap of b's size between the placed buffers that live together with it. */
static int64_t lowest_gap(const struct slab *s, const struct buffer *b)
{
    int64_t offset = 0;
    for (int i = 0; i < s->n_blocks; i++) {
        const struct block *k = s->blocks[i];
        if (k->earliest_write > b->last_use || b->first_write > k->latest_use)
            continue;
        bool all = k->latest_write <= b->last_use && b->first_write <= k->earliest_use;
        if (all && k->widest_gap < b->n_bytes && offset + b->n_bytes > k->at[0].offset)
            offset = k->end > offset ? k->end : offset;
        else if (search_block(k, b, &offset))
            break;
    }
    return offset;
}

/* ---- placing ---- */

static enum status place_class(struct program *p, enum buffer_class class, arena *scratch)
{
    struct slab slab = {.scratch = scratch};
    struct buffer **order;
    size_t capacity = 0;
    int n = 0;
    for (int i = 0; i < p->n_buffers; i++)
        capacity += p->buffers[i].class == class;
    TRY(arena_alloc_array(scratch, capacity, sizeof(struct buffer *), &order));
    TRY(arena_alloc_array(scratch, capacity, sizeof(struct block *), &slab.blocks));
    for (int i = 0; i < p->n_buffers; i++)
        if (p->buffers[i].class == class && p->buffers[i].first_write >= 0 &&
            p->buffers[i].parent == NO_BUFFER)
            order[n++] = &p->buffers[i];
    qsort(order, (size_t)n, sizeof(struct buffer *), larger_first);
    for (int i = 0; i < n; i++) {
        struct buffer *b = order[i];
        b->offset = lowest_gap(&slab, b);
        int64_t end = b->offset + b->n_bytes;
        TRY(insert(&slab, &(struct placed){b->offset, end, b->first_write, b->last_use}));
        if (p->slab_bytes[class] < end)
            p->slab_bytes[class] = end;
    }
    return STATUS_OK;
}

static enum status place_classes(struct program *p, arena *scratch)
{
    for (int class = 0; class < BUFFER_CLASS_COUNT; class ++)
        if (!lives_always(&(struct buffer){.class = (enum buffer_class) class}))
            TRY(place_class(p, (enum buffer_class) class, scratch));
    return STATUS_OK;
}

enum status lowering_place_buffers(struct program *p, const struct program *shares)
{
    arena *scratch;
    place_params(p, shares);
    TRY(arena_create(&scratch));
    enum status st = place_classes(p, scratch);
    arena_destroy(scratch);
    TRY(st);
    for (int i = 0; i < p->n_buffers; i++) {
        struct buffer *b = &p->buffers[i];
        if (b->parent != NO_BUFFER)
            b->offset = p->buffers[b->parent].offset + b->parent_offset;
    }
    return STATUS_OK;
}
