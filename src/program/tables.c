/* The tables of a program while it is being lowered.
 *
 * How long they become is known only at the end. So they grow here, in memory that is used again
 * for the next worker and is warm by then, and a program that is kept gets a copy of just their
 * length: pages that were never touched before cost more than what is written to them. */
#include "base/array.h"
#include "program/lowering.h"

#include <assert.h>
#include <stdalign.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* Where the program has them. */
struct row {
    size_t items, n, size;
};

#define ROW(items, n)                                                 \
    {                                                                 \
        offsetof(struct program, items), offsetof(struct program, n), \
            sizeof *((struct program *)NULL)->items                   \
    }
static const struct row rows[] = {
    [TABLE_INSTRS] = ROW(instrs, n_instrs),
    [TABLE_BUFFERS] = ROW(buffers, n_buffers),
    [TABLE_RUNS] = ROW(runs, n_runs),
    [TABLE_FOLDS] = ROW(folds, n_folds),
    [TABLE_COPIES] = ROW(copies, n_copies),
    [TABLE_LOADS] = ROW(loads, n_loads),
    [TABLE_MESSAGES] = ROW(messages, n_messages),
    [TABLE_REDUCTIONS] = ROW(reductions, n_reductions),
    [TABLE_RESULTS] = ROW(results, n_results),
};
static_assert(sizeof rows / sizeof rows[0] == TABLE_COUNT, "a row each");

static void set_items(struct program *p, enum table_kind kind, void *items)
{
    memcpy((char *)p + rows[kind].items, &items, sizeof items);
}

static int *count_of(struct program *p, enum table_kind kind)
{
    return (int *)(void *)((char *)p + rows[kind].n);
}

void tables_deinit(struct tables *t)
{
    for (int k = 0; k < TABLE_COUNT; k++)
        free(t->table[k].items);
}

enum status tables_extend(struct tables *t, struct program *p, enum table_kind kind, void *out)
{
    const struct row *row = &rows[kind];
    struct table *table = &t->table[kind];
    int *n = count_of(p, kind);
    TRY(array_reserve(NULL, &table->items, *n + 1, &table->capacity, row->size));
    set_items(p, kind, table->items); /* it may lie elsewhere now */
    void *item = table->items + (size_t)(*n)++ * row->size;
    memcpy(out, &item, sizeof item);
    return STATUS_OK;
}

/* Each begins where anything may. */
static size_t bytes_of(struct program *p, enum table_kind kind)
{
    size_t n_bytes = (size_t)*count_of(p, kind) * rows[kind].size, alignment = alignof(max_align_t);
    return (n_bytes + alignment - 1) / alignment * alignment;
}

enum status tables_keep(const struct tables *t, struct program *p)
{
    size_t all = 0;
    char *to;
    for (enum table_kind kind = 0; kind < TABLE_COUNT; kind++)
        all += bytes_of(p, kind);
    TRY(arena_alloc(p->memory, all, &to));
    for (enum table_kind kind = 0; kind < TABLE_COUNT; kind++) {
        if (*count_of(p, kind))
            memcpy(to, t->table[kind].items, (size_t)*count_of(p, kind) * rows[kind].size);
        set_items(p, kind, to);
        to += bytes_of(p, kind);
    }
    return STATUS_OK;
}
