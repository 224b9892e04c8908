/* The arrays of a program while it is being lowered.
 *
 * Their length is known only at the end. So they grow here, in memory that the next worker's
 * program uses again and that is warm by then; a program that is kept gets a copy of just their
 * length. Touching a page for the first time costs more than writing to it. */
#include "base/array.h"
#include "program/lowering.h"

#include <assert.h>
#include <stdalign.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* Where struct program has each array and its length. */
struct row {
    size_t items, n, size;
};

#define ROW(items, n)                                                 \
    {                                                                 \
        offsetof(struct program, items), offsetof(struct program, n), \
            sizeof *((struct program *)NULL)->items                   \
    }
static const struct row rows[] = {
    [ARRAY_INSTRS] = ROW(instrs, n_instrs),
    [ARRAY_BUFFERS] = ROW(buffers, n_buffers),
    [ARRAY_RUNS] = ROW(runs, n_runs),
    [ARRAY_FOLDS] = ROW(folds, n_folds),
    [ARRAY_COPIES] = ROW(copies, n_copies),
    [ARRAY_LOADS] = ROW(loads, n_loads),
    [ARRAY_MESSAGES] = ROW(messages, n_messages),
    [ARRAY_REDUCTIONS] = ROW(reductions, n_reductions),
    [ARRAY_RESULTS] = ROW(results, n_results),
};
static_assert(sizeof rows / sizeof rows[0] == ARRAY_COUNT, "a row each");

static int *length_of(struct program *p, enum array_kind kind)
{
    return (int *)(void *)((char *)p + rows[kind].n);
}

static void set_items(struct program *p, enum array_kind kind, void *items)
{
    memcpy((char *)p + rows[kind].items, &items, sizeof items);
}

void arrays_deinit(struct arrays *a)
{
    for (int k = 0; k < ARRAY_COUNT; k++)
        free(a->items[k]);
}

enum status arrays_extend(struct arrays *a, struct program *p, enum array_kind kind, void *out)
{
    int *n = length_of(p, kind);
    TRY(array_reserve(NULL, &a->items[kind], *n + 1, &a->capacity[kind], rows[kind].size));
    set_items(p, kind, a->items[kind]); /* it may lie elsewhere now */
    void *item = a->items[kind] + (size_t)(*n)++ * rows[kind].size;
    memcpy(out, &item, sizeof item);
    return STATUS_OK;
}

enum status arrays_keep(const struct arrays *a, struct program *p)
{
    size_t begin[ARRAY_COUNT], all = 0, alignment = alignof(max_align_t);
    char *to;
    for (enum array_kind kind = 0; kind < ARRAY_COUNT; kind++) {
        begin[kind] = all;
        all += (size_t)*length_of(p, kind) * rows[kind].size + alignment - 1;
        all -= all % alignment;
    }
    TRY(arena_alloc(p->memory, all, &to));
    for (enum array_kind kind = 0; kind < ARRAY_COUNT; kind++) {
        if (*length_of(p, kind))
            memcpy(to + begin[kind], a->items[kind], (size_t)*length_of(p, kind) * rows[kind].size);
        set_items(p, kind, to + begin[kind]);
    }
    return STATUS_OK;
}
