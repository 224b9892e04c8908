/* Waits: from who touches which memory.
 *
 * An instruction that reads memory comes behind the last that wrote it; one that writes memory
 * comes behind all that read or wrote it before. Memory, not buffers: buffers that are never alive
 * together share places, and a send may still be reading when its buffer's life in the list is
 * over. Computation runs in order, so of the computations only the last matters, and only to
 * communication.
 *
 * Buffers that only computations touch, which are most, therefore matter to communication alone.
 * So there are two lists of every class, sorted by offset, of the communicated buffers and of the
 * others; what shares memory with a buffer is a span of each. State is kept by place in the lists:
 *
 *     communicated  |--a--|--b--|    |--c--|           spans of d: a to c, and e
 *     others           |----d----|  |-e-|
 */
#include "program/lowering.h"

#include <stdlib.h>
#include <string.h>

enum kind { COMMUNICATED, OTHER, KIND_COUNT };

struct reader {
    int instr;
    const struct reader *next;
};

struct span {
    int begin, end; /* places */
};

struct tracker {
    const struct program *p;
    arena *scratch;
    bool *communicates; /* by instruction: it is no computation */
    bool *communicated; /* by buffer: some communication touches it */
    int n_places;
    int *buffer_at, *place_of; /* the lists, one behind the other; -1: not in a list */
    struct span list[KIND_COUNT][BUFFER_CLASS_COUNT];
    int64_t *end;                  /* by place: of the buffer in its slab */
    int64_t *reach;                /* the largest end up to here in the list */
    struct span *near[KIND_COUNT]; /* by buffer: no others are in its memory, though not all of
                                      these need be */
    int *writer;                   /* by place: the last instruction that wrote it, or -1 */
    int *computing_reader;         /* the last computation that read it since, or -1 */
    const struct reader **readers; /* communication that read it since */
    bool *pending;                 /* of writer and readers, some may not be in seen_by_compute */
    bool *seen_by_compute;         /* by instruction: some computation has waited for it */
    int last_compute;              /* the last computation that must have ended, or -1 */
    int n_waits, *waits;           /* being gathered */
    int *mark;                     /* by instruction: gathered for this one already */
};

/* ---- which buffers share memory ---- */

static bool is_placed(const struct buffer *b)
{
    return b->first_write >= 0 || b->class == BUFFER_WEIGHTS || b->class == BUFFER_OPTIMIZER;
}

static void note_communicated(struct tracker *t, int n, const int *buffers,
                              bool classes[BUFFER_CLASS_COUNT])
{
    for (int i = 0; i < n; i++)
        t->communicated[buffers[i]] = classes[t->p->buffers[buffers[i]].class] = true;
}

static enum status find_communicated(struct tracker *t, bool classes[BUFFER_CLASS_COUNT])
{
    const struct program *p = t->p;
    TRY(arena_alloc_array(t->scratch, (size_t)p->n_instrs, sizeof *t->communicates,
                          &t->communicates));
    TRY(arena_alloc_array(t->scratch, (size_t)p->n_buffers, sizeof *t->communicated,
                          &t->communicated));
    for (int i = 0; i < p->n_instrs; i++) {
        const struct instr *instr = &p->instrs[i];
        t->communicates[i] = instr->stream == STREAM_COMMUNICATE;
        if (!t->communicates[i])
            continue;
        note_communicated(t, instr->n_reads, instr->reads, classes);
        note_communicated(t, instr->n_writes, instr->writes, classes);
    }
    return STATUS_OK;
}

struct entry {
    int64_t offset;
    int list, buffer;
};

static int by_place(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    if (x->list != y->list)
        return x->list < y->list ? -1 : 1;
    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    return (x->buffer > y->buffer) - (x->buffer < y->buffer);
}

static enum status make_lists(struct tracker *t, const struct entry *sorted)
{
    const struct program *p = t->p;
    size_t n = (size_t)t->n_places;
    TRY(arena_alloc_array(t->scratch, n, sizeof *t->buffer_at, &t->buffer_at));
    TRY(arena_alloc_array(t->scratch, (size_t)p->n_buffers, sizeof *t->place_of, &t->place_of));
    TRY(arena_alloc_array(t->scratch, n, sizeof *t->end, &t->end));
    TRY(arena_alloc_array(t->scratch, n, sizeof *t->reach, &t->reach));
    for (int i = 0; i < p->n_buffers; i++)
        t->place_of[i] = -1;
    for (int i = 0; i < t->n_places; i++) {
        const struct buffer *b = &p->buffers[sorted[i].buffer];
        struct span *list =
            &t->list[t->communicated[sorted[i].buffer] ? COMMUNICATED : OTHER][b->class];
        if (list->end == 0)
            list->begin = i;
        t->buffer_at[i] = sorted[i].buffer;
        t->place_of[sorted[i].buffer] = i;
        t->end[i] = b->offset + b->n_bytes;
        t->reach[i] = t->end[i];
        if (list->end && t->reach[i - 1] > t->reach[i])
            t->reach[i] = t->reach[i - 1];
        list->end = i + 1;
    }
    return STATUS_OK;
}

/* Only classes of which something is communicated have lists. */
static enum status sort_buffers(struct tracker *t)
{
    const struct program *p = t->p;
    bool classes[BUFFER_CLASS_COUNT] = {false};
    struct entry *all;
    TRY(find_communicated(t, classes));
    TRY(arena_alloc_array(t->scratch, (size_t)p->n_buffers, sizeof *all, &all));
    for (int i = 0; i < p->n_buffers; i++) {
        const struct buffer *b = &p->buffers[i];
        int list = (t->communicated[i] ? 0 : BUFFER_CLASS_COUNT) + (int)b->class;
        if (classes[b->class] && is_placed(b))
            all[t->n_places++] = (struct entry){b->offset, list, i};
    }
    qsort(all, (size_t)t->n_places, sizeof *all, by_place);
    return make_lists(t, all);
}

/* The first place of the list that reaches behind `at`. */
static int first_reaching(const struct tracker *t, struct span list, int64_t at)
{
    while (list.begin < list.end) {
        int middle = (list.begin + list.end) / 2;
        if (t->reach[middle] > at)
            list.end = middle;
        else
            list.begin = middle + 1;
    }
    return list.begin;
}

/* The first place of the list that begins at `at` or behind. */
static int first_from(const struct tracker *t, struct span list, int64_t at)
{
    while (list.begin < list.end) {
        int middle = (list.begin + list.end) / 2;
        if (t->p->buffers[t->buffer_at[middle]].offset >= at)
            list.end = middle;
        else
            list.begin = middle + 1;
    }
    return list.begin;
}

static enum status find_near(struct tracker *t)
{
    const struct program *p = t->p;
    for (int kind = 0; kind < KIND_COUNT; kind++) {
        TRY(arena_alloc_array(t->scratch, (size_t)p->n_buffers, sizeof *t->near[kind],
                              &t->near[kind]));
        for (int i = 0; i < t->n_places; i++) {
            const struct buffer *b = &p->buffers[t->buffer_at[i]];
            struct span list = t->list[kind][b->class], *near = &t->near[kind][t->buffer_at[i]];
            near->begin = first_reaching(t, list, b->offset);
            near->end = first_from(t, list, t->end[i]);
        }
    }
    return STATUS_OK;
}

static enum status create(struct tracker *t)
{
    size_t n_instrs = (size_t)t->p->n_instrs;
    TRY(sort_buffers(t));
    TRY(find_near(t));
    size_t n = (size_t)t->n_places;
    TRY(arena_alloc_array(t->scratch, n, sizeof *t->writer, &t->writer));
    TRY(arena_alloc_array(t->scratch, n, sizeof *t->computing_reader, &t->computing_reader));
    TRY(arena_alloc_array(t->scratch, n, sizeof(const struct reader *), &t->readers));
    TRY(arena_alloc_array(t->scratch, n, sizeof *t->pending, &t->pending));
    TRY(arena_alloc_array(t->scratch, n_instrs, sizeof *t->seen_by_compute, &t->seen_by_compute));
    TRY(arena_alloc_array(t->scratch, n_instrs, sizeof *t->waits, &t->waits));
    TRY(arena_alloc_array(t->scratch, n_instrs, sizeof *t->mark, &t->mark));
    for (size_t i = 0; i < n; i++)
        t->writer[i] = t->computing_reader[i] = -1;
    return STATUS_OK;
}

/* ---- going through the instructions ---- */

/* Instruction `number` comes behind `before` (-1: nothing). */
static void wait_for(struct tracker *t, int number, int before)
{
    if (before < 0 || before == number)
        return;
    if (!t->communicates[before]) {
        if (before > t->last_compute)
            t->last_compute = before;
        return;
    }
    bool computes = !t->communicates[number];
    if (t->mark[before] == number + 1 || (computes && t->seen_by_compute[before]))
        return;
    t->mark[before] = number + 1;
    t->seen_by_compute[before] |= computes;
    t->waits[t->n_waits++] = before;
}

/* Behind what was done at a place, before it is read or written. */
static void wait_for_place(struct tracker *t, int number, int place, bool writes)
{
    wait_for(t, number, t->writer[place]);
    if (!writes)
        return;
    wait_for(t, number, t->computing_reader[place]);
    for (const struct reader *r = t->readers[place]; r; r = r->next)
        wait_for(t, number, r->instr);
}

static void gather_for_compute(struct tracker *t, int number, int b, bool writes)
{
    struct span near = t->near[COMMUNICATED][b];
    int64_t offset = t->p->buffers[b].offset;
    for (int i = near.begin; i < near.end; i++) {
        const bool *next = memchr(t->pending + i, true, (size_t)(near.end - i));
        if (!next)
            return;
        i = (int)(next - t->pending);
        if (t->end[i] <= offset)
            continue;
        wait_for_place(t, number, i, writes);
        t->pending[i] = !writes;
    }
}

static void gather_for_communication(struct tracker *t, int number, int b, bool writes)
{
    int64_t offset = t->p->buffers[b].offset;
    for (int kind = 0; kind < KIND_COUNT; kind++)
        for (int i = t->near[kind][b].begin; i < t->near[kind][b].end; i++)
            if (t->end[i] > offset)
                wait_for_place(t, number, i, writes);
}

static void gather(struct tracker *t, int number)
{
    const struct instr *instr = &t->p->instrs[number];
    void (*gather_one)(struct tracker *, int, int, bool) =
        t->communicates[number] ? gather_for_communication : gather_for_compute;
    for (int k = 0; k < instr->n_reads; k++)
        gather_one(t, number, instr->reads[k], false);
    for (int k = 0; k < instr->n_writes; k++)
        gather_one(t, number, instr->writes[k], true);
}

static enum status remember_read(struct tracker *t, int number, int place)
{
    if (!t->communicates[number]) {
        t->computing_reader[place] = number;
        return STATUS_OK;
    }
    struct reader *r;
    TRY(arena_alloc(t->scratch, sizeof *r, &r));
    *r = (struct reader){number, t->readers[place]};
    t->readers[place] = r;
    t->pending[place] = true;
    return STATUS_OK;
}

static enum status remember(struct tracker *t, int number)
{
    const struct instr *instr = &t->p->instrs[number];
    for (int k = 0; k < instr->n_reads; k++)
        if (t->place_of[instr->reads[k]] >= 0)
            TRY(remember_read(t, number, t->place_of[instr->reads[k]]));
    for (int k = 0; k < instr->n_writes; k++) {
        int place = t->place_of[instr->writes[k]];
        if (place < 0)
            continue;
        t->writer[place] = number;
        t->computing_reader[place] = -1;
        t->readers[place] = NULL;
        t->pending[place] = t->communicates[number];
    }
    return STATUS_OK;
}

static enum status track(struct program *p, struct tracker *t)
{
    TRY(create(t));
    for (int i = 0; i < p->n_instrs; i++) {
        struct instr *instr = &p->instrs[i];
        int *waits;
        t->n_waits = 0;
        t->last_compute = -1;
        gather(t, i);
        if (t->last_compute >= 0 && t->communicates[i])
            t->waits[t->n_waits++] = t->last_compute;
        TRY(arena_alloc_array(p->memory, (size_t)t->n_waits, sizeof *waits, &waits));
        memcpy(waits, t->waits, (size_t)t->n_waits * sizeof *waits);
        instr->n_waits = t->n_waits;
        instr->waits = waits;
        TRY(remember(t, i));
    }
    return STATUS_OK;
}

enum status lowering_find_waits(struct program *p)
{
    struct tracker t = {.p = p};
    TRY(arena_create(&t.scratch));
    enum status st = track(p, &t);
    arena_destroy(t.scratch);
    return st;
}
