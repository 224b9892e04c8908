/* Waits, from the memory that instructions touch.
 *
 * An instruction that reads memory comes behind the last that wrote it; one that writes memory
 * comes behind all that read or wrote it before. Memory, not buffers: buffers that are never alive
 * together share places, and a send may still be reading when its buffer's life in the list is
 * over. So each class's slab is a line of segments with their last accesses:
 *
 *     | written by 3, read since by 9 | never touched | written by 7, read by 12 and 14 | ...
 *
 * A write makes its range one segment: a later instruction waits for the write, and with it for
 * all that came before. A class of which nothing is communicated has no line, because computations
 * run in order anyway. A line is cut into zones of equal length, so that little has to move when a
 * segment comes or goes; a buffer that lies in several zones has a segment in each.
 *
 * A wait that another wait implies is left out. An instruction that waits for another also comes
 * behind all that the other waited for, and a computation behind all that an earlier one waited
 * for. The computations behind a communication are all from some number on, so one number says it
 * (`seen_at`); so does one for the computations that a communication is behind. */
#include "base/array.h"
#include "base/numbers.h"
#include "program/lowering.h"

#include <limits.h>
#include <string.h>

struct reader {
    int instr;
    const struct reader *next;
};

struct segment {
    int64_t begin;                /* up to the next one's */
    int writer;                   /* the last instruction that wrote it, or -1 */
    int computing_reader;         /* the last computation that read it since, or -1 */
    const struct reader *readers; /* communication that read it since */
};

struct zone {
    int64_t begin, end;
    int n, capacity;
    struct segment *segments;
};

struct line {
    int n_zones; /* 0: nothing of the class is communicated */
    int64_t zone_bytes;
    struct zone *zones;
};

struct tracker {
    const struct program *p;
    arena *scratch;
    struct line lines[BUFFER_CLASS_COUNT];
    bool *communicates;  /* by instruction: it is no computation */
    int *seen_at;        /* by communication: the first computation behind it, or INT_MAX */
    int *behind;         /* by communication: the last computation it is behind, or -1 */
    int last_compute;    /* the last computation that must have ended, or -1 */
    int n_found, *found; /* communication that must have ended, being gathered */
    int *mark;           /* by instruction: gathered for this one already; -1: implied */
    int *stack;          /* see() */
    int n_ints, *ints;   /* room for waits */
};

/* ---- segments ---- */

/* The segment that `offset` lies in: one of the n from `low` on. A branch on the half would be
 * mispredicted half of the time, so it is added. */
static int find_segment(const struct zone *l, int64_t offset)
{
    int low = 0;
    for (int n = l->n; n > 1; n -= n / 2)
        low += l->segments[low + n / 2].begin <= offset ? n / 2 : 0;
    return low;
}

/* Makes segment i begin at `offset`, which lies in it or at its begin; its number then. */
static int split(struct zone *l, int i, int64_t offset)
{
    if (l->segments[i].begin == offset)
        return i;
    memmove(&l->segments[i + 1], &l->segments[i], (size_t)(l->n - i) * sizeof *l->segments);
    l->n++;
    l->segments[i + 1].begin = offset;
    return i + 1;
}

/* The number behind the last segment before `end`; afterwards none reaches across it. */
static int split_end(struct zone *l, int i, int64_t end)
{
    while (i + 1 < l->n && l->segments[i + 1].begin < end)
        i++;
    if (i + 1 < l->n ? l->segments[i + 1].begin == end : end == l->end)
        return i + 1;
    return split(l, i, end);
}

/* Segments `first` to `last` make way for one from `begin` to `end`; of these two the parts outside
 * of it stay. The rest of the zone moves once at most. */
static void replace(struct zone *l, int first, int last, int64_t end, const struct segment *by)
{
    int64_t behind = last + 1 < l->n ? l->segments[last + 1].begin : l->end;
    bool left = l->segments[first].begin < by->begin, right = end < behind;
    struct segment rest = l->segments[last];
    int from = last + 1, to = first + left + 1 + right;
    if (from != to)
        memmove(&l->segments[to], &l->segments[from], (size_t)(l->n - from) * sizeof rest);
    l->n += to - from;
    l->segments[first + left] = *by;
    if (!right)
        return;
    rest.begin = end;
    l->segments[first + left + 1] = rest;
}

/* ---- creating ---- */

static enum status open_line(struct tracker *t, enum buffer_class class)
{
    enum { INSTRS_PER_ZONE = 64, MOST_ZONES = 64, FIRST_CAPACITY = 16 };
    struct line *l = &t->lines[class];
    int64_t all = t->p->slab_bytes[class];
    if (l->n_zones || all == 0)
        return STATUS_OK;
    int n = 1 + t->p->n_instrs / INSTRS_PER_ZONE;
    l->n_zones = int_min(n, MOST_ZONES);
    l->zone_bytes = (all + l->n_zones - 1) / l->n_zones;
    TRY(arena_alloc_array(t->scratch, (size_t)l->n_zones, sizeof *l->zones, &l->zones));
    for (int i = 0; i < l->n_zones; i++) {
        struct zone *z = &l->zones[i];
        int64_t begin = i * l->zone_bytes;
        *z = (struct zone){.begin = begin,
                           .end = int64_min(begin + l->zone_bytes, all),
                           .n = 1,
                           .capacity = FIRST_CAPACITY};
        TRY(arena_alloc_array(t->scratch, FIRST_CAPACITY, sizeof *z->segments, &z->segments));
        z->segments[0] = (struct segment){.begin = begin, .writer = -1, .computing_reader = -1};
    }
    return STATUS_OK;
}

static enum status create(struct tracker *t)
{
    size_t n = (size_t)t->p->n_instrs;
    TRY(arena_alloc_array(t->scratch, n, sizeof *t->communicates, &t->communicates));
    TRY(arena_alloc_array(t->scratch, n, sizeof *t->seen_at, &t->seen_at));
    TRY(arena_alloc_array(t->scratch, n, sizeof *t->behind, &t->behind));
    TRY(arena_alloc_array(t->scratch, n, sizeof *t->found, &t->found));
    TRY(arena_alloc_array(t->scratch, n, sizeof *t->mark, &t->mark));
    TRY(arena_alloc_array(t->scratch, n, sizeof *t->stack, &t->stack));
    for (int i = 0; i < t->p->n_instrs; i++) {
        t->communicates[i] = t->p->instrs[i].stream == STREAM_COMMUNICATE;
        t->seen_at[i] = INT_MAX;
        const struct instr *instr = &t->p->instrs[i];
        for (int k = 0; t->communicates[i] && k < instr->n_reads; k++)
            TRY(open_line(t, t->p->buffers[instr->reads[k]].class));
        for (int k = 0; t->communicates[i] && k < instr->n_writes; k++)
            TRY(open_line(t, t->p->buffers[instr->writes[k]].class));
    }
    return STATUS_OK;
}

/* ---- gathering ----
 *
 * An access adds two segments at most. */

/* Instruction `number` comes behind `before` (-1: nothing). */
static void come_behind(struct tracker *t, int number, int before)
{
    if (before < 0 || before == number)
        return;
    if (!t->communicates[before]) {
        t->last_compute = int_max(t->last_compute, before);
        return;
    }
    bool known = !t->communicates[number] && t->seen_at[before] < number;
    if (known || t->mark[before] == number + 1)
        return;
    t->mark[before] = number + 1;
    t->found[t->n_found++] = before;
}

static enum status read_zone(struct tracker *t, int number, struct zone *l, int64_t begin,
                             int64_t end)
{
    TRY(array_reserve(t->scratch, &l->segments, l->n + 2, &l->capacity, sizeof *l->segments));
    int first = split(l, find_segment(l, begin), begin), behind = split_end(l, first, end);
    for (int i = first; i < behind; i++) {
        struct segment *s = &l->segments[i];
        struct reader *r;
        come_behind(t, number, s->writer);
        if (!t->communicates[number]) {
            s->computing_reader = number;
            continue;
        }
        TRY(arena_alloc(t->scratch, sizeof *r, &r));
        *r = (struct reader){number, s->readers};
        s->readers = r;
    }
    return STATUS_OK;
}

static enum status write_zone(struct tracker *t, int number, struct zone *l, int64_t begin,
                              int64_t end)
{
    struct segment written = {.begin = begin, .writer = number, .computing_reader = -1};
    TRY(array_reserve(t->scratch, &l->segments, l->n + 2, &l->capacity, sizeof *l->segments));
    int first = find_segment(l, begin), last = first;
    for (int i = first; i < l->n && (i == first || l->segments[i].begin < end); i++) {
        const struct segment *s = &l->segments[i];
        come_behind(t, number, s->writer);
        come_behind(t, number, s->computing_reader);
        for (const struct reader *r = s->readers; r; r = r->next)
            come_behind(t, number, r->instr);
        last = i;
    }
    replace(l, first, last, end, &written);
    return STATUS_OK;
}

typedef enum status access_zone(struct tracker *t, int number, struct zone *l, int64_t begin,
                                int64_t end);

/* In every zone that the buffer lies in; nothing if its class has no line. */
static enum status access_buffer(struct tracker *t, int number, const struct buffer *b,
                                 access_zone *access)
{
    const struct line *l = &t->lines[b->class];
    int64_t begin = b->offset, end = b->offset + b->n_bytes;
    if (l->n_zones == 0)
        return STATUS_OK;
    for (struct zone *z = &l->zones[begin / l->zone_bytes]; begin < end; z++) {
        int64_t here = end < z->end ? end : z->end;
        TRY(access(t, number, z, begin, here));
        begin = here;
    }
    return STATUS_OK;
}

/* ---- leaving out implied waits ---- */

/* The latest first: it may imply those before it. Most are found in one order or the other. */
static void sort_found(struct tracker *t)
{
    int n = t->n_found, *f = t->found;
    if (n > 1 && f[0] < f[n - 1])
        for (int i = 0; i < n / 2; i++) {
            int other = f[n - 1 - i];
            f[n - 1 - i] = f[i];
            f[i] = other;
        }
    for (int i = 1; i < n; i++) {
        int k = i, item = f[i];
        for (; k > 0 && f[k - 1] < item; k--)
            f[k] = f[k - 1];
        f[k] = item;
    }
}

/* Computation `number` comes behind a communication, and so behind all that this waited for. */
static void see(struct tracker *t, int number, int before)
{
    int n = 0;
    t->seen_at[before] = number;
    t->stack[n++] = before;
    while (n > 0) {
        const struct instr *instr = &t->p->instrs[t->stack[--n]];
        for (int k = 0; k < instr->n_waits; k++) {
            int earlier = instr->waits[k];
            if (!t->communicates[earlier] || t->seen_at[earlier] != INT_MAX)
                continue;
            t->seen_at[earlier] = number;
            t->stack[n++] = earlier;
        }
    }
}

static int keep_for_compute(struct tracker *t, int number)
{
    int n = 0;
    for (int i = 0; i < t->n_found; i++)
        if (t->seen_at[t->found[i]] == INT_MAX) {
            see(t, number, t->found[i]);
            t->found[n++] = t->found[i];
        }
    return n;
}

/* Communication knows what others waited for by one step only: more is hardly ever left. */
static int keep_for_communication(struct tracker *t, int number)
{
    int n = 0, behind = -1;
    for (int i = 0; i < t->n_found; i++)
        behind = int_max(behind, t->behind[t->found[i]]);
    bool waits_for_last = t->last_compute > behind;
    if (waits_for_last)
        behind = t->last_compute;
    t->behind[number] = behind;
    for (int i = 0; i < t->n_found; i++) {
        int before = t->found[i];
        const struct instr *instr = &t->p->instrs[before];
        if (t->seen_at[before] <= behind || t->mark[before] < 0)
            continue;
        t->found[n++] = before;
        for (int k = 0; k < instr->n_waits; k++)
            if (t->mark[instr->waits[k]] == number + 1)
                t->mark[instr->waits[k]] = -1;
    }
    if (waits_for_last)
        t->found[n++] = t->last_compute;
    return n;
}

/* Most instructions wait for one or two: room is taken for many of them at once. */
static enum status take_ints(struct tracker *t, arena *memory, int n, int **out)
{
    enum { AT_ONCE = 2048 };
    if (n > t->n_ints || !t->ints) {
        t->n_ints = n > AT_ONCE ? n : AT_ONCE;
        TRY(arena_alloc_array(memory, (size_t)t->n_ints, sizeof *t->ints, &t->ints));
    }
    *out = t->ints;
    t->ints += n;
    t->n_ints -= n;
    return STATUS_OK;
}

static enum status track(struct program *p, struct tracker *t)
{
    TRY(create(t));
    for (int i = 0; i < p->n_instrs; i++) {
        struct instr *instr = &p->instrs[i];
        int *waits = NULL;
        t->n_found = 0;
        t->last_compute = -1;
        for (int k = 0; k < instr->n_reads; k++)
            TRY(access_buffer(t, i, &p->buffers[instr->reads[k]], read_zone));
        for (int k = 0; k < instr->n_writes; k++)
            TRY(access_buffer(t, i, &p->buffers[instr->writes[k]], write_zone));
        sort_found(t);
        int n = t->communicates[i] ? keep_for_communication(t, i) : keep_for_compute(t, i);
        TRY(take_ints(t, p->memory, n, &waits));
        memcpy(waits, t->found, (size_t)n * sizeof *waits);
        instr->n_waits = n;
        instr->waits = waits;
    }
    return STATUS_OK;
}

enum status lowering_find_waits(struct program *p, const struct lowering *given)
{
    struct tracker t = {.p = p, .scratch = given->memory->scratch};
    return track(p, &t);
}
