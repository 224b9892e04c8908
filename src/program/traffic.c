/* The pairs of workers whose regions of a view and of its source meet: each pair of different
 * workers is a message.
 *
 *     source, rows    w0  0..13   w1 14..27
 *     view, rows      w0  0..14   w1 13..27       pairs (source, view): 0-0, 1-0, 0-1, 1-1
 *
 * Most pairs do not meet, so not all of them are tried. The source's regions are sorted along the
 * axis that cuts it into the most parts, and a region of the view is compared only with those that
 * begin near it.
 *
 *     source    |--0--|--1--|--2--|--3--|          sorted by where they begin; the longest is L
 *     view              |---1---|                   tried: begins in (begin - L, end)
 */
#include "base/array.h"
#include "base/numbers.h"
#include "program/analysis.h"

#include <stdlib.h>
#include <string.h>

struct begin {
    int64_t at;
    int worker;
};

struct pair {
    int source, view;
};

struct finder {
    const struct region *source, *view; /* by worker */
    int rank, n_workers;
    arena *scratch;
    int axis;        /* along which regions of the source are sorted */
    int64_t longest; /* of them along the axis */
    int n_begins;
    struct begin *begins;
    int n_pairs, capacity;
    struct pair *pairs;
};

/* Into how many parts an axis is cut, about; *longest: the longest of them. */
static int64_t count_parts(const struct finder *f, int axis, int64_t *longest)
{
    int64_t begin = INT64_MAX, end = 0;
    *longest = 0;
    for (int w = 0; w < f->n_workers; w++) {
        const struct range *r = &f->source[w].axis[axis];
        if (r->end <= r->begin)
            continue;
        begin = int64_min(begin, r->begin);
        end = int64_max(end, r->end);
        *longest = int64_max(*longest, r->end - r->begin);
    }
    return *longest ? (end - begin) / *longest : 0;
}

static int by_begin(const void *a, const void *b)
{
    const struct begin *x = a, *y = b;
    if (x->at != y->at)
        return x->at < y->at ? -1 : 1;
    return (x->worker > y->worker) - (x->worker < y->worker);
}

static enum status sort_source(struct finder *f)
{
    int64_t most = -1;
    for (int a = 0; a < f->rank; a++) {
        int64_t longest, parts = count_parts(f, a, &longest);
        if (parts <= most)
            continue;
        most = parts;
        f->axis = a;
        f->longest = longest;
    }
    TRY(arena_alloc_array(f->scratch, (size_t)f->n_workers, sizeof *f->begins, &f->begins));
    for (int w = 0; w < f->n_workers; w++)
        if (!region_is_empty(&f->source[w], f->rank))
            f->begins[f->n_begins++] = (struct begin){f->source[w].axis[f->axis].begin, w};
    qsort(f->begins, (size_t)f->n_begins, sizeof *f->begins, by_begin);
    return STATUS_OK;
}

/* The first region that begins behind `at`. */
static int first_behind(const struct finder *f, int64_t at)
{
    int low = 0, high = f->n_begins;
    while (low < high) {
        int middle = (low + high) / 2;
        if (f->begins[middle].at > at)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static enum status add_pair(struct finder *f, int source, int view)
{
    TRY(array_reserve(f->scratch, &f->pairs, f->n_pairs + 1, &f->capacity, sizeof *f->pairs));
    f->pairs[f->n_pairs++] = (struct pair){source, view};
    return STATUS_OK;
}

static enum status find_pairs(struct finder *f)
{
    TRY(sort_source(f));
    for (int w = 0; w < f->n_workers; w++) {
        const struct range *r = &f->view[w].axis[f->axis];
        struct region share;
        if (region_is_empty(&f->view[w], f->rank))
            continue;
        for (int i = first_behind(f, r->begin - f->longest);
             i < f->n_begins && f->begins[i].at < r->end; i++) {
            int giver = f->begins[i].worker;
            if (region_intersect(&f->source[giver], &f->view[w], f->rank, &share))
                TRY(add_pair(f, giver, w));
        }
    }
    return STATUS_OK;
}

static int side_of(const struct pair *p, enum direction side)
{
    return side == TO_VIEW ? p->view : p->source;
}

/* Sorts the pairs by one of their workers and keeps the order of those that share it. *first: where
 * each worker's begin. */
static enum status sort_pairs(struct finder *f, enum direction side, arena *memory, int **first)
{
    size_t n = (size_t)f->n_workers;
    int *next;
    struct pair *sorted;
    TRY(arena_alloc_array(memory, n + 1, sizeof **first, first));
    TRY(arena_alloc_array(f->scratch, n + 1, sizeof *next, &next));
    TRY(arena_alloc_array(f->scratch, (size_t)f->n_pairs, sizeof *sorted, &sorted));
    for (int i = 0; i < f->n_pairs; i++)
        (*first)[side_of(&f->pairs[i], side) + 1]++;
    for (size_t w = 0; w < n; w++)
        (*first)[w + 1] += (*first)[w];
    memcpy(next, *first, n * sizeof *next);
    for (int i = 0; i < f->n_pairs; i++)
        sorted[next[side_of(&f->pairs[i], side)]++] = f->pairs[i];
    f->pairs = sorted;
    return STATUS_OK;
}

/* Pairs are sorted by worker of the view, then of the source. Every pair takes its two message
 * numbers, and goes into both lists. */
static enum status number_pairs(const struct finder *f, arena *memory, struct traffic *t)
{
    int *next, *backward;
    TRY(arena_alloc_array(memory, (size_t)f->n_pairs, sizeof *t->in_source, &t->in_source));
    TRY(arena_alloc_array(memory, (size_t)f->n_pairs, sizeof *t->in_view, &t->in_view));
    TRY(arena_alloc_array(f->scratch, (size_t)f->n_workers, sizeof *next, &next));
    TRY(arena_alloc_array(f->scratch, (size_t)f->n_workers + 1, sizeof *backward, &backward));
    for (int i = 0; i < f->n_pairs; i++)
        backward[f->pairs[i].source + 1] += f->pairs[i].source != f->pairs[i].view;
    for (int w = 0; w < f->n_workers; w++) {
        next[w] = t->of_source[w];
        backward[w + 1] += backward[w];
    }
    for (int i = 0; i < f->n_pairs; i++) {
        struct pair p = f->pairs[i];
        struct share s = {p.source, {-1, -1}};
        if (p.source != p.view) {
            s.message[TO_VIEW] = t->n_messages++;
            s.message[TO_SOURCE] = backward[p.source]++;
        }
        t->in_source[i] = s;
        s.peer = p.view;
        t->in_view[next[p.source]++] = s;
    }
    return STATUS_OK;
}

enum status traffic_find(const struct partition *part, int n_workers, int tensor, int size,
                         arena *memory, arena *scratch, struct traffic *out)
{
    const struct part_tensor *view = &part->tensors[tensor];
    struct finder f = {.source = part->tensors[view->source].at[size],
                       .view = view->at[size],
                       .rank = view->axes.rank,
                       .n_workers = n_workers,
                       .scratch = scratch};
    struct region share;
    *out = (struct traffic){0};
    if (view->source != TENSOR_IMAGES)
        TRY(find_pairs(&f));
    for (int w = 0; view->source == TENSOR_IMAGES && w < n_workers; w++)
        if (region_intersect(&f.source[w], &f.view[w], f.rank, &share))
            TRY(add_pair(&f, w, w));
    TRY(sort_pairs(&f, TO_SOURCE, memory, &out->of_source));
    TRY(sort_pairs(&f, TO_VIEW, memory, &out->of_view));
    return number_pairs(&f, memory, out);
}
