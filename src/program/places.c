/* Live ranges of buffers, and their offsets.
 *
 * Weights and optimizer state live always and lie one behind the other, in parameter order. The
 * buffers of the other classes live from the first instruction that writes them to the last that
 * touches them, or as long as overlap.c holds them. They are placed largest first, each at the
 * lowest offset where no buffer that was placed before and lives at the same time is in the way:
 *
 *     offset    0   [ b0 ][ b7 ]  [ b9 ]      time ->
 *             512        [ b3     ]  [ b4 ]
 *            2048   [ b1 ]
 *
 * This is not optimal in general, but on these programs a slab is at most a few percent larger than
 * the largest sum of live bytes. */
#include "base/array.h"
#include "base/numbers.h"
#include "program/lowering.h"

#include <limits.h>
#include <string.h>

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
    for (int i = 0; i < p->n_buffers; i++) {
        struct buffer *b = &p->buffers[i];
        if (b->first_write >= 0)
            b->last_use = int_max(b->last_use, b->held_until - 1);
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
        const struct program_param *here = &p->params[i], *there = like ? &like->params[i] : here;
        const int buffers[4] = {here->weight, here->master, here->state[0], here->state[1]};
        const int theirs[4] = {there->weight, there->master, there->state[0], there->state[1]};
        for (int k = 0; k < 4; k++) {
            if (buffers[k] == NO_BUFFER)
                continue;
            struct buffer *b = &p->buffers[buffers[k]];
            int64_t *slab = &p->slab_bytes[b->class];
            b->offset = like ? like->buffers[theirs[k]].offset : *slab;
            *slab = int64_max(*slab, b->offset + b->n_bytes);
        }
    }
}

/* ---- placed buffers ----
 *
 * Placed buffers are sorted by offset, and those of one offset, which are never alive together, by
 * time. They are kept in blocks with a summary each. The search for a gap skips a block if none of
 * its buffers lives together with the new one, or if all of them do and leave no gap of its size:
 * with many micro-batches nearly all blocks are one or the other. */

enum { BLOCK_SIZE = 32 };

struct block {
    int64_t highest_end;
    int64_t widest_gap;               /* between its buffers if all are alive; -1: not known */
    int earliest_write, latest_write; /* of their first writes */
    int earliest_use, latest_use;     /* of their last uses */
    int n;
    int64_t offset[BLOCK_SIZE], end[BLOCK_SIZE];
    int first_write[BLOCK_SIZE], last_use[BLOCK_SIZE];
};

struct slab {
    arena *scratch;
    int n_blocks, capacity;
    struct block **blocks;
};

/* Takes entry i into the summary. */
static void widen(struct block *k, int i)
{
    k->highest_end = int64_max(k->highest_end, k->end[i]);
    k->earliest_write = int_min(k->earliest_write, k->first_write[i]);
    k->latest_write = int_max(k->latest_write, k->first_write[i]);
    k->earliest_use = int_min(k->earliest_use, k->last_use[i]);
    k->latest_use = int_max(k->latest_use, k->last_use[i]);
    k->widest_gap = -1;
}

static void summarise(struct block *k)
{
    k->highest_end = 0;
    k->earliest_write = k->earliest_use = INT_MAX;
    k->latest_write = k->latest_use = 0;
    for (int i = 0; i < k->n; i++)
        widen(k, i);
}

static int64_t widest_gap(struct block *k)
{
    int64_t end = k->end[0];
    if (k->widest_gap >= 0)
        return k->widest_gap;
    k->widest_gap = 0;
    for (int i = 1; i < k->n; i++) {
        k->widest_gap = int64_max(k->widest_gap, k->offset[i] - end);
        end = int64_max(end, k->end[i]);
    }
    return k->widest_gap;
}

static bool lies_before(const struct block *k, int i, const struct buffer *b)
{
    return k->offset[i] < b->offset ||
           (k->offset[i] == b->offset && k->first_write[i] < b->first_write);
}

static enum status add_block(struct slab *s, int at)
{
    TRY(array_reserve(s->scratch, &s->blocks, s->n_blocks + 1, &s->capacity, sizeof *s->blocks));
    memmove(s->blocks + at + 1, s->blocks + at, (size_t)(s->n_blocks - at) * sizeof *s->blocks);
    s->n_blocks++;
    TRY(arena_alloc(s->scratch, sizeof **s->blocks, &s->blocks[at]));
    summarise(s->blocks[at]);
    return STATUS_OK;
}

static void move_entries(struct block *to, int i, const struct block *from, int k, int n_entries)
{
    size_t n = (size_t)n_entries;
    memmove(&to->offset[i], &from->offset[k], n * sizeof *to->offset);
    memmove(&to->end[i], &from->end[k], n * sizeof *to->end);
    memmove(&to->first_write[i], &from->first_write[k], n * sizeof *to->first_write);
    memmove(&to->last_use[i], &from->last_use[k], n * sizeof *to->last_use);
}

/* A full block is split in halves first. */
static enum status insert(struct slab *s, const struct buffer *b)
{
    int at = 0, behind = s->n_blocks, i = 0;
    if (s->n_blocks == 0)
        TRY(add_block(s, 0));
    while (behind - at > 1) {
        int middle = (at + behind) / 2;
        *(lies_before(s->blocks[middle], 0, b) ? &at : &behind) = middle;
    }
    struct block *k = s->blocks[at];
    if (k->n == BLOCK_SIZE) {
        TRY(add_block(s, at + 1));
        struct block *high = s->blocks[at + 1];
        k->n = high->n = BLOCK_SIZE / 2;
        move_entries(high, 0, k, k->n, high->n);
        summarise(k);
        summarise(high);
        k = lies_before(high, 0, b) ? high : k;
    }
    while (i < k->n && lies_before(k, i, b))
        i++;
    move_entries(k, i + 1, k, i, k->n - i);
    k->n++;
    k->offset[i] = b->offset;
    k->end[i] = b->offset + b->n_bytes;
    k->first_write[i] = b->first_write;
    k->last_use[i] = b->last_use;
    widen(k, i);
    return STATUS_OK;
}

/* ---- placing ---- */

#define FOUR_BITS(n) 1u << (n), 1u << ((n) + 1), 1u << ((n) + 2), 1u << ((n) + 3)

/* The entries that live together with b, as bits. A branch on each would be mispredicted half of
 * the time; a loop of fixed length without branches compares several entries at once. */
static uint32_t find_together(const struct block *k, const struct buffer *b)
{
    static const uint32_t bits[BLOCK_SIZE] = {FOUR_BITS(0),  FOUR_BITS(4),  FOUR_BITS(8),
                                              FOUR_BITS(12), FOUR_BITS(16), FOUR_BITS(20),
                                              FOUR_BITS(24), FOUR_BITS(28)};
    int first_write = b->first_write, last_use = b->last_use;
    uint32_t together = 0;
    for (int i = 0; i < BLOCK_SIZE; i++) {
        bool lives = (k->first_write[i] <= last_use) & (first_write <= k->last_use[i]);
        together |= lives ? bits[i] : 0;
    }
    return together & (UINT32_MAX >> (BLOCK_SIZE - k->n));
}

static int64_t lowest_gap(const struct slab *s, const struct buffer *b)
{
    int64_t offset = 0;
    for (int i = 0; i < s->n_blocks; i++) {
        struct block *k = s->blocks[i];
        if (offset + b->n_bytes <= k->offset[0])
            return offset;
        if (k->highest_end <= offset || k->earliest_write > b->last_use ||
            k->latest_use < b->first_write)
            continue;
        bool all = k->latest_write <= b->last_use && b->first_write <= k->earliest_use;
        if (all && widest_gap(k) < b->n_bytes) {
            offset = k->highest_end;
            continue;
        }
        for (uint32_t rest = find_together(k, b); rest; rest &= rest - 1) {
            int t = __builtin_ctz(rest);
            if (offset + b->n_bytes <= k->offset[t])
                return offset;
            offset = int64_max(offset, k->end[t]);
        }
    }
    return offset;
}

/* The largest first, equal sizes in the order of creation, by digits of the size from the lowest
 * on. `order` and `other` take turns; the one that is sorted in the end is returned. (The library's
 * qsort would add 5 % to the time of lowering.) */
static struct buffer **sort_by_size(struct buffer **order, struct buffer **other, int n)
{
    enum { BITS = 8, VALUES = 1 << BITS };
    int64_t all = 0;
    for (int i = 0; i < n; i++)
        all |= order[i]->n_bytes / BUFFER_ALIGNMENT;
    for (int shift = 0; all >> shift; shift += BITS) {
        int place[VALUES] = {0};
        for (int i = 0; i < n; i++)
            place[order[i]->n_bytes / BUFFER_ALIGNMENT >> shift & (VALUES - 1)]++;
        for (int v = VALUES - 1, before = 0; v >= 0; v--) {
            int here = place[v];
            place[v] = before;
            before += here;
        }
        for (int i = 0; i < n; i++)
            other[place[order[i]->n_bytes / BUFFER_ALIGNMENT >> shift & (VALUES - 1)]++] = order[i];
        struct buffer **sorted = other;
        other = order;
        order = sorted;
    }
    return order;
}

static bool has_place(const struct buffer *b, enum buffer_class class)
{
    return b->class == class && b->first_write >= 0 && b->parent == NO_BUFFER;
}

static enum status place_class(struct program *p, enum buffer_class class, arena *scratch)
{
    struct slab slab = {.scratch = scratch};
    struct buffer **order, **other;
    size_t capacity = 0;
    int n = 0;
    for (int i = 0; i < p->n_buffers; i++)
        capacity += has_place(&p->buffers[i], class);
    TRY(arena_alloc_array(scratch, capacity, sizeof(struct buffer *), &order));
    TRY(arena_alloc_array(scratch, capacity, sizeof(struct buffer *), &other));
    for (int i = 0; i < p->n_buffers; i++)
        if (has_place(&p->buffers[i], class))
            order[n++] = &p->buffers[i];
    order = sort_by_size(order, other, n);
    for (int i = 0; i < n; i++) {
        order[i]->offset = lowest_gap(&slab, order[i]);
        p->slab_bytes[class] =
            int64_max(p->slab_bytes[class], order[i]->offset + order[i]->n_bytes);
        TRY(insert(&slab, order[i]));
    }
    return STATUS_OK;
}

enum status lowering_place_buffers(struct program *p, const struct lowering *given)
{
    place_params(p, given->shares);
    for (enum buffer_class class = 0; class < BUFFER_CLASS_COUNT; class ++)
        if (class != BUFFER_WEIGHTS && class != BUFFER_OPTIMIZER)
            TRY(place_class(p, class, given->memory->scratch));
    for (int i = 0; i < p->n_buffers; i++) {
        struct buffer *b = &p->buffers[i];
        if (b->parent != NO_BUFFER)
            b->offset = p->buffers[b->parent].offset + b->parent_offset;
    }
    return STATUS_OK;
}
