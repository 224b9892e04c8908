/* Live ranges and offsets.
 *
 * Weights and optimizer state live always and lie one behind the other, in parameter order. The
 * buffers of the other classes live from the first instruction that writes them to the last that
 * touches them, or as long as they are held (overlap.c). They are placed largest first, each at the
 * lowest offset where it meets no placed buffer that lives at the same time: not optimal in
 * general, but it always reaches the largest sum of live bytes within a few percent on these
 * programs, and is quick. */
#include "base/array.h"
#include "base/numbers.h"
#include "program/lowering.h"

#include <limits.h>
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
    for (int i = 0; i < p->n_buffers; i++) {
        struct buffer *b = &p->buffers[i];
        if (b->first_write >= 0 && b->held_until - 1 > b->last_use)
            b->last_use = b->held_until - 1;
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

/* ---- the order ---- */

/* The largest first, those of one size in the order of creation, which is how they come. By digits
 * of the size, from the lowest on: `order` and `other` take turns; *sorted is one of them. */
static void sort_by_size(struct buffer **order, struct buffer **other, int n,
                         struct buffer ***sorted)
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
        struct buffer **now = other;
        other = order;
        order = now;
    }
    *sorted = order;
}

static bool has_place(const struct buffer *b, enum buffer_class class)
{
    return b->class == class && b->first_write >= 0 && b->parent == NO_BUFFER;
}

/* Those of a class that have a place of their own, the largest first. */
static enum status list_class(struct program *p, enum buffer_class class, arena *scratch,
                              struct buffer ***out, int *n)
{
    struct buffer **order, **other;
    size_t capacity = 0;
    for (int i = 0; i < p->n_buffers; i++)
        capacity += p->buffers[i].class == class;
    TRY(arena_alloc_array(scratch, capacity, sizeof(struct buffer *), &order));
    TRY(arena_alloc_array(scratch, capacity, sizeof(struct buffer *), &other));
    *n = 0;
    for (int i = 0; i < p->n_buffers; i++)
        if (has_place(&p->buffers[i], class))
            order[(*n)++] = &p->buffers[i];
    sort_by_size(order, other, *n, out);
    return STATUS_OK;
}

/* ---- what lies where already ----
 *
 * By offset. Those of one offset, which are never alive together, are a column, by time: that is
 * how the buffers of many micro-batches lie, so few columns have most of the buffers.
 *
 *     offset    0   [ b0 ][ b7 ]  [ b9 ]      time ->
 *             512        [ b3     ]  [ b4 ]
 *            2048   [ b1 ]
 *
 * Columns are kept in blocks. A block none of whose buffers lives together with the one to be
 * placed is passed in one step, and so is one of which all do and that has no gap of its size. */

enum { BLOCK_SIZE = 32 };

struct placed {
    int64_t end;
    int first_write, last_use;
};

/* Several of one offset, by time. */
struct column {
    int n, capacity;
    struct placed *placed;
    uint16_t *first; /* by slice of time: the first that is used from its begin on */
};

struct block {
    int64_t end;                      /* the largest of its buffers' */
    int64_t widest_gap;               /* between them; only where each column has one */
    bool single;                      /* each has */
    int earliest_write, latest_write; /* of their first writes */
    int earliest_use, latest_use;     /* of their last uses */
    int n;
    int64_t offset[BLOCK_SIZE], ends[BLOCK_SIZE];      /* ends: the largest of the column's */
    int first_write[BLOCK_SIZE], last_use[BLOCK_SIZE]; /* the first and the last of the column's */
    struct column column[BLOCK_SIZE];                  /* empty where there is one buffer */
};

enum { SLICES = 64, MOST_IN_COLUMN = UINT16_MAX };

struct slab {
    arena *scratch;
    int slice; /* instructions in one, as a power of two */
    int n_blocks;
    struct block **blocks;
    struct trail *trails; /* [TRAILS], see below */
};

/* A block of one column has no gap; the widest of more is only of use while each has one buffer. */
static void find_widest_gap(struct block *k)
{
    int64_t end = k->ends[0];
    k->widest_gap = 0;
    for (int i = 1; i < k->n && k->single; i++) {
        if (k->offset[i] - end > k->widest_gap)
            k->widest_gap = k->offset[i] - end;
        end = k->ends[i] > end ? k->ends[i] : end;
    }
}

/* One more buffer, in a column of its own or in one that was there. */
static void widen(struct block *k, const struct placed *a)
{
    k->end = a->end > k->end ? a->end : k->end;
    k->earliest_write = int_min(k->earliest_write, a->first_write);
    k->latest_write = int_max(k->latest_write, a->first_write);
    k->earliest_use = int_min(k->earliest_use, a->last_use);
    k->latest_use = int_max(k->latest_use, a->last_use);
}

static void summarise(struct block *k)
{
    k->end = 0;
    k->single = true;
    k->earliest_write = k->earliest_use = INT_MAX;
    k->latest_write = k->latest_use = 0;
    for (int i = 0; i < k->n; i++) {
        widen(k, &(struct placed){k->ends[i], k->first_write[i], k->last_use[i]});
        k->single &= k->column[i].n == 0;
    }
    find_widest_gap(k);
}

/* ---- columns ---- */

/* The first of the column that is used at `time` or later: of those of one slice of time, which are
 * so few that counting is quicker than halving. */
static int first_used_from(const struct column *c, int time, int slice)
{
    int number = time >> slice, first = c->first[number];
    for (int i = first; i < c->first[number + 1]; i++)
        first += c->placed[i].last_use < time;
    return first;
}

/* The one that reaches farthest of those that live together with b; of no length: there are none.
 */
static struct placed column_reach(const struct column *c, const struct buffer *b, int slice)
{
    struct placed most = {0};
    for (int i = first_used_from(c, b->first_write, slice);
         i < c->n && c->placed[i].first_write <= b->last_use; i++)
        if (c->placed[i].end > most.end)
            most = c->placed[i];
    return most;
}

static enum status add_to_column(struct slab *s, struct column *c, const struct placed *a)
{
    TRY(array_reserve(s->scratch, &c->placed, c->n + 1, &c->capacity, sizeof *a));
    if (!c->first)
        TRY(arena_alloc_array(s->scratch, SLICES + 2, sizeof *c->first, &c->first));
    int at = first_used_from(c, a->first_write, s->slice);
    memmove(&c->placed[at + 1], &c->placed[at], (size_t)(c->n - at) * sizeof *a);
    c->placed[at] = *a;
    c->n++;
    for (int i = (a->last_use >> s->slice) + 1; i < SLICES + 2; i++)
        c->first[i]++;
    return STATUS_OK;
}

/* One more at the offset of column i. */
static enum status join_column(struct slab *s, struct block *k, int i, const struct placed *a)
{
    struct placed first = {k->ends[i], k->first_write[i], k->last_use[i]};
    if (k->column[i].n == 0)
        TRY(add_to_column(s, &k->column[i], &first));
    TRY(add_to_column(s, &k->column[i], a));
    k->ends[i] = a->end > k->ends[i] ? a->end : k->ends[i];
    k->first_write[i] = int_min(k->first_write[i], a->first_write);
    k->last_use[i] = int_max(k->last_use[i], a->last_use);
    return STATUS_OK;
}

/* ---- blocks ---- */

static enum status add_block(struct slab *s, int at)
{
    memmove(s->blocks + at + 1, s->blocks + at, (size_t)(s->n_blocks - at) * sizeof *s->blocks);
    s->n_blocks++;
    return arena_alloc(s->scratch, sizeof **s->blocks, &s->blocks[at]);
}

static void copy_column(struct block *to, int i, const struct block *from, int k)
{
    to->offset[i] = from->offset[k];
    to->ends[i] = from->ends[k];
    to->first_write[i] = from->first_write[k];
    to->last_use[i] = from->last_use[k];
    to->column[i] = from->column[k];
}

/* The upper half of a full block becomes one of its own. */
static enum status split_block(struct slab *s, int at)
{
    TRY(add_block(s, at + 1));
    struct block *low = s->blocks[at], *high = s->blocks[at + 1];
    high->n = low->n / 2;
    low->n -= high->n;
    for (int i = 0; i < high->n; i++)
        copy_column(high, i, low, low->n + i);
    summarise(low);
    summarise(high);
    return STATUS_OK;
}

/* The block that has the offset, or would have it. */
static int find_block(const struct slab *s, int64_t offset)
{
    int low = 0, high = s->n_blocks;
    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (s->blocks[middle]->offset[0] > offset)
            high = middle;
        else
            low = middle;
    }
    return low;
}

static enum status insert(struct slab *s, int64_t offset, const struct placed *a)
{
    if (s->n_blocks == 0) {
        TRY(add_block(s, 0));
        summarise(s->blocks[0]);
    }
    int at = find_block(s, offset), i = 0;
    if (s->blocks[at]->n == BLOCK_SIZE) {
        TRY(split_block(s, at));
        at = find_block(s, offset);
    }
    struct block *k = s->blocks[at];
    while (i < k->n && k->offset[i] < offset)
        i++;
    if (i < k->n && k->offset[i] == offset && k->column[i].n < MOST_IN_COLUMN) {
        TRY(join_column(s, k, i, a));
        k->single = false;
        widen(k, a);
        return STATUS_OK;
    }
    for (int t = k->n++; t > i; t--)
        copy_column(k, t, k, t - 1);
    k->offset[i] = offset;
    k->ends[i] = a->end;
    k->first_write[i] = a->first_write;
    k->last_use[i] = a->last_use;
    k->column[i] = (struct column){0};
    widen(k, a);
    find_widest_gap(k);
    return STATUS_OK;
}

/* ---- trails ----
 *
 * Looking for the place of a buffer, one passes others that live together with it and leave no gap
 * of its size. There is none for any later buffer of the same size either that lives together with
 * all of those, so it need not look there again: it begins where they end. Micro-batches bring many
 * buffers of one size, and so do the messages of a layer.
 *
 *     passed          [ a ][ b ]  [ c  ]         offset ->
 *     latest_write      5    5      9            of those so far: who is used then or later, and
 *     earliest_use     80   70     12            written then or before, lives together with them
 *
 * A buffer that is written at 20 and used until 30 passes a and b in one step, but not c. Short and
 * long lives are blocked by others, so buffers of about the same length of life have a trail. */

enum { TRAILS = 32, TRAIL_LENGTH = 64 };

struct step {
    int64_t offset;
    int latest_write, earliest_use;
};

struct trail {
    int64_t n_bytes; /* of whom it is for */
    int n;
    struct step steps[TRAIL_LENGTH];
};

static struct trail *find_trail(const struct slab *s, const struct buffer *b)
{
    int number = 0;
    for (int life = b->last_use - b->first_write; life > 0; life >>= 1)
        number++;
    struct trail *t = &s->trails[number];
    if (t->n_bytes != b->n_bytes)
        t->n = 0;
    t->n_bytes = b->n_bytes;
    return t;
}

/* Cuts off what b does not live together with; how far the rest goes. */
static int64_t follow(struct trail *t, const struct buffer *b)
{
    int low = 0, high = t->n;
    while (low < high) {
        int middle = (low + high) / 2;
        const struct step *s = &t->steps[middle];
        if (s->latest_write <= b->last_use && b->first_write <= s->earliest_use)
            low = middle + 1;
        else
            high = middle;
    }
    t->n = low;
    return low ? t->steps[low - 1].offset : 0;
}

/* Goes on behind one (or several) that b lives together with. */
static int64_t pass(struct trail *t, int64_t end, int latest_write, int earliest_use)
{
    if (t->n == TRAIL_LENGTH)
        return end;
    struct step *s = &t->steps[t->n++];
    *s = (struct step){end, latest_write, earliest_use};
    if (t->n > 1) {
        s->latest_write = int_max(latest_write, s[-1].latest_write);
        s->earliest_use = int_min(earliest_use, s[-1].earliest_use);
    }
    return end;
}

/* ---- looking for a place ---- */

/* Whether b lives together with all of the column. */
static bool lives_throughout(const struct block *k, int i, const struct buffer *b)
{
    return b->first_write <= k->first_write[i] && k->last_use[i] <= b->last_use;
}

#define FOUR_BITS(n) 1u << (n), 1u << ((n) + 1), 1u << ((n) + 2), 1u << ((n) + 3)

/* The columns that may live together with b, as bits. Who does is as good as random: a loop without
 * branches, of a fixed length, is done for several columns at once. */
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

/* Goes on behind what lives together with b, from `offset`; true: there is a gap before the rest.
 */
static bool search_block(const struct block *k, const struct buffer *b, int slice,
                         struct trail *trail, int64_t *offset)
{
    int64_t at = *offset;
    for (uint32_t rest = find_together(k, b); rest; rest &= rest - 1) {
        int t = __builtin_ctz(rest);
        if (at + b->n_bytes <= k->offset[t]) {
            *offset = at;
            return true;
        }
        if (k->ends[t] <= at)
            continue;
        struct placed blocker = {k->ends[t], k->first_write[t], k->last_use[t]};
        if (k->column[t].n && lives_throughout(k, t, b))
            blocker = (struct placed){k->ends[t], k->last_use[t], k->first_write[t]};
        else if (k->column[t].n)
            blocker = column_reach(&k->column[t], b, slice);
        if (blocker.end > at)
            at = pass(trail, blocker.end, blocker.first_write, blocker.last_use);
    }
    *offset = at;
    return false;
}

/* The lowest gap of b's size between the placed buffers that live together with it. */
static int64_t lowest_gap(const struct slab *s, const struct buffer *b)
{
    struct trail *trail = find_trail(s, b);
    int64_t offset = follow(trail, b);
    for (int i = 0; i < s->n_blocks; i++) {
        const struct block *k = s->blocks[i];
        if (offset + b->n_bytes <= k->offset[0])
            break;
        if (k->end <= offset || k->earliest_write > b->last_use || b->first_write > k->latest_use)
            continue;
        bool all = k->single && k->latest_write <= b->last_use && b->first_write <= k->earliest_use;
        if (all && k->widest_gap < b->n_bytes)
            offset = pass(trail, k->end, k->latest_write, k->earliest_use);
        else if (search_block(k, b, s->slice, trail, &offset))
            break;
    }
    return offset;
}

static enum status open_slab(struct slab *s, const struct program *p, int n_buffers)
{
    while (p->n_instrs >> s->slice >= SLICES)
        s->slice++;
    TRY(arena_alloc_array(s->scratch, TRAILS, sizeof *s->trails, &s->trails));
    return arena_alloc_array(s->scratch, (size_t)n_buffers, sizeof(struct block *), &s->blocks);
}

/* ---- placing ---- */

/* ---- where larger slabs are there in any case ---- */

static const struct buffer *next_to_place(const struct program *p, enum buffer_class class, int *i)
{
    for (; *i < p->n_buffers; ++*i)
        if (has_place(&p->buffers[*i], class))
            return &p->buffers[(*i)++];
    return NULL;
}

/* Whether the buffers of a class are of the same sizes and lives as another program's: then they
 * lie as far. So do gradients of parameters for any number of samples. */
static bool is_placed_like(const struct program *p, const struct program *other,
                           enum buffer_class class)
{
    for (int i = 0, k = 0;;) {
        const struct buffer *a = next_to_place(p, class, &i), *b = next_to_place(other, class, &k);
        if (!a || !b)
            return a == b;
        if (a->n_bytes != b->n_bytes || a->first_write != b->first_write ||
            a->last_use != b->last_use)
            return false;
    }
}

/* Whether what is still to be placed can do with slabs that are there. Asking costs as much as
 * placing some, so it is asked once, and again when so few bytes are left that it may be. */
struct outlook {
    int64_t enough; /* 0: all places are wanted */
    int64_t rest;   /* bytes that are still to be placed */
    double reach;   /* of one of them, when it was asked last: see ceiling.c */
};

static enum status has_enough(struct outlook *o, const struct program *p, enum buffer_class class,
                              const struct buffer *const *rest, int n, arena *scratch, bool *out)
{
    int64_t ceiling = 0, room = o->enough - p->slab_bytes[class];
    *out = false;
    if (o->enough == 0 || o->reach * (double)o->rest > (double)room)
        return STATUS_OK;
    TRY(ceiling_find(p, rest, n, scratch, &ceiling));
    *out = ceiling <= room;
    o->reach = (double)ceiling / (double)o->rest;
    return STATUS_OK;
}

static enum status place_one(struct program *p, struct slab *slab, struct buffer *b)
{
    b->offset = lowest_gap(slab, b);
    int64_t end = b->offset + b->n_bytes;
    if (p->slab_bytes[b->class] < end)
        p->slab_bytes[b->class] = end;
    return insert(slab, b->offset, &(struct placed){end, b->first_write, b->last_use});
}

static enum status place_class(struct program *p, enum buffer_class class,
                               const struct lowering *given)
{
    struct slab slab = {.scratch = given->scratch};
    struct outlook outlook = {.enough = given->enough ? given->enough[class] : 0};
    struct buffer **order;
    int n = 0;
    if (outlook.enough && given->shares && is_placed_like(p, given->shares, class)) {
        p->slab_bytes[class] = given->shares->slab_bytes[class];
        return STATUS_OK;
    }
    TRY(list_class(p, class, given->scratch, &order, &n));
    TRY(open_slab(&slab, p, n));
    for (int i = 0; i < n; i++)
        outlook.rest += order[i]->n_bytes;
    for (int i = 0; i < n; i++) {
        bool done;
        TRY(has_enough(&outlook, p, class, (const struct buffer *const *)order + i, n - i,
                       given->scratch, &done));
        if (done)
            return STATUS_OK;
        TRY(place_one(p, &slab, order[i]));
        outlook.rest -= order[i]->n_bytes;
    }
    return STATUS_OK;
}

static enum status place_classes(struct program *p, const struct lowering *given)
{
    for (int class = 0; class < BUFFER_CLASS_COUNT; class ++)
        if (!lives_always(&(struct buffer){.class = (enum buffer_class) class}))
            TRY(place_class(p, (enum buffer_class) class, given));
    return STATUS_OK;
}

enum status lowering_place_buffers(struct program *p, const struct lowering *given)
{
    place_params(p, given->shares);
    TRY(place_classes(p, given));
    for (int i = 0; i < p->n_buffers; i++) {
        struct buffer *b = &p->buffers[i];
        if (b->parent != NO_BUFFER)
            b->offset = p->buffers[b->parent].offset + b->parent_offset;
    }
    return STATUS_OK;
}
