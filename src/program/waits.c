/* Waits: from who touches which memory.
 *
 * An instruction that reads memory comes behind the last that wrote it; one that writes memory
 * comes behind all that read or wrote it before. Memory, not buffers: buffers that are never alive
 * together share places, and a send may still be reading when its buffer's life in the list is
 * over. Computation runs in order, so of the computations only the last matters, and only to
 * communication. */
#include "program/lowering.h"

#include <stdlib.h>
#include <string.h>

struct reader {
    int instr;
    const struct reader *next;
};

struct tracker {
    const struct program *p;
    arena *scratch;
    int n_sorted, *sorted;         /* placed buffers by class and offset */
    int **overlaps, *n_overlaps;   /* by buffer: the buffers in the same memory, itself included */
    int *writer;                   /* by buffer: the last instruction that wrote it, or -1 */
    int *computing_reader;         /* the last computation that read it since, or -1 */
    const struct reader **readers; /* communication that read it since */
    bool *seen_by_compute;         /* by instruction: some computation has waited for it */
    int last_compute;              /* the last computation that must have ended, or -1 */
    int n_waits, *waits;           /* being gathered */
    int *mark;                     /* by instruction: gathered for this one already */
};

static bool is_placed(const struct buffer *b)
{
    return b->first_write >= 0 || b->class == BUFFER_WEIGHTS || b->class == BUFFER_OPTIMIZER;
}

/* qsort has no argument for it. */
static _Thread_local const struct program *sorted_program;

static int by_place(const void *a, const void *b)
{
    const struct buffer *x = &sorted_program->buffers[*(const int *)a];
    const struct buffer *y = &sorted_program->buffers[*(const int *)b];
    if (x->class != y->class)
        return x->class < y->class ? -1 : 1;
    return (x->offset > y->offset) - (x->offset < y->offset);
}

static bool overlap(const struct buffer *a, const struct buffer *b)
{
    return a->class == b->class && a->offset < b->offset + b->n_bytes &&
           b->offset < a->offset + a->n_bytes;
}

/* Every pair of buffers in the same memory, both ways, and each with itself. */
static void count_overlaps(struct tracker *t, bool store)
{
    const struct buffer *all = t->p->buffers;
    for (int i = 0; i < t->n_sorted; i++) {
        int a = t->sorted[i];
        if (store)
            t->overlaps[a][t->n_overlaps[a]] = a;
        t->n_overlaps[a]++;
        for (int k = i + 1; k < t->n_sorted; k++) {
            int b = t->sorted[k];
            if (all[a].class != all[b].class || all[b].offset >= all[a].offset + all[a].n_bytes)
                break;
            if (!overlap(&all[a], &all[b]))
                continue;
            if (store) {
                t->overlaps[a][t->n_overlaps[a]] = b;
                t->overlaps[b][t->n_overlaps[b]] = a;
            }
            t->n_overlaps[a]++;
            t->n_overlaps[b]++;
        }
    }
}

static enum status find_overlaps(struct tracker *t)
{
    size_t n = (size_t)t->p->n_buffers;
    TRY(arena_alloc_array(t->scratch, n, sizeof *t->sorted, &t->sorted));
    TRY(arena_alloc_array(t->scratch, n, sizeof *t->overlaps, &t->overlaps));
    TRY(arena_alloc_array(t->scratch, n, sizeof *t->n_overlaps, &t->n_overlaps));
    for (int i = 0; i < t->p->n_buffers; i++)
        if (is_placed(&t->p->buffers[i]))
            t->sorted[t->n_sorted++] = i;
    sorted_program = t->p;
    qsort(t->sorted, (size_t)t->n_sorted, sizeof *t->sorted, by_place);
    count_overlaps(t, false);
    for (int i = 0; i < t->p->n_buffers; i++) {
        TRY(arena_alloc_array(t->scratch, (size_t)t->n_overlaps[i], sizeof **t->overlaps,
                              &t->overlaps[i]));
        t->n_overlaps[i] = 0;
    }
    count_overlaps(t, true);
    return STATUS_OK;
}

static enum status create(struct tracker *t)
{
    size_t n = (size_t)t->p->n_buffers, n_instrs = (size_t)t->p->n_instrs;
    TRY(find_overlaps(t));
    TRY(arena_alloc_array(t->scratch, n, sizeof *t->writer, &t->writer));
    TRY(arena_alloc_array(t->scratch, n, sizeof *t->computing_reader, &t->computing_reader));
    TRY(arena_alloc_array(t->scratch, n, sizeof(const struct reader *), &t->readers));
    TRY(arena_alloc_array(t->scratch, n_instrs, sizeof *t->seen_by_compute, &t->seen_by_compute));
    TRY(arena_alloc_array(t->scratch, n_instrs, sizeof *t->waits, &t->waits));
    TRY(arena_alloc_array(t->scratch, n_instrs, sizeof *t->mark, &t->mark));
    for (size_t i = 0; i < n; i++)
        t->writer[i] = t->computing_reader[i] = -1;
    return STATUS_OK;
}

/* Instruction `number` comes behind `before` (-1: nothing). */
static void wait_for(struct tracker *t, int number, int before)
{
    if (before < 0 || before == number)
        return;
    if (t->p->instrs[before].stream == STREAM_COMPUTE) {
        if (before > t->last_compute)
            t->last_compute = before;
        return;
    }
    bool computes = t->p->instrs[number].stream == STREAM_COMPUTE;
    if (t->mark[before] == number + 1 || (computes && t->seen_by_compute[before]))
        return;
    t->mark[before] = number + 1;
    t->seen_by_compute[before] |= computes;
    t->waits[t->n_waits++] = before;
}

static void gather(struct tracker *t, int number)
{
    const struct instr *instr = &t->p->instrs[number];
    for (int k = 0; k < instr->n_reads; k++)
        for (int i = 0; i < t->n_overlaps[instr->reads[k]]; i++)
            wait_for(t, number, t->writer[t->overlaps[instr->reads[k]][i]]);
    for (int k = 0; k < instr->n_writes; k++)
        for (int i = 0; i < t->n_overlaps[instr->writes[k]]; i++) {
            int b = t->overlaps[instr->writes[k]][i];
            wait_for(t, number, t->writer[b]);
            wait_for(t, number, t->computing_reader[b]);
            for (const struct reader *r = t->readers[b]; r; r = r->next)
                wait_for(t, number, r->instr);
        }
}

static enum status remember(struct tracker *t, int number)
{
    const struct instr *instr = &t->p->instrs[number];
    for (int k = 0; k < instr->n_reads; k++) {
        int b = instr->reads[k];
        if (instr->stream == STREAM_COMPUTE) {
            t->computing_reader[b] = number;
            continue;
        }
        struct reader *r;
        TRY(arena_alloc(t->scratch, sizeof *r, &r));
        *r = (struct reader){number, t->readers[b]};
        t->readers[b] = r;
    }
    for (int k = 0; k < instr->n_writes; k++) {
        int b = instr->writes[k];
        t->writer[b] = number;
        t->computing_reader[b] = -1;
        t->readers[b] = NULL;
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
        if (t->last_compute >= 0 && instr->stream == STREAM_COMMUNICATE)
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
