#include "base/array.h"
#include "clock/parts.h"

#include <math.h>
#include <stdlib.h>

static bool before(const struct clock_event *a, const struct clock_event *b)
{
    return a->t_s < b->t_s || (a->t_s <= b->t_s && a->number < b->number);
}

/* ---- the heap ---- */

enum status events_add(struct clock_events *e, double t_s, enum event_kind kind, int target,
                       int version)
{
    TRY(array_reserve(NULL, &e->heap, e->n + 1, &e->capacity, sizeof *e->heap));
    struct clock_event added = {t_s, e->next_number++, kind, target, version};
    int i = e->n++;
    for (; i > 0 && before(&added, &e->heap[(i - 1) / 2]); i = (i - 1) / 2)
        e->heap[i] = e->heap[(i - 1) / 2];
    e->heap[i] = added;
    return STATUS_OK;
}

static void take_from_heap(struct clock_events *e, struct clock_event *out)
{
    *out = e->heap[0];
    struct clock_event last = e->heap[--e->n];
    int i = 0;
    for (int child = 1; child < e->n; child = 2 * i + 1) {
        if (child + 1 < e->n && before(&e->heap[child + 1], &e->heap[child]))
            child++;
        if (!before(&e->heap[child], &last))
            break;
        e->heap[i] = e->heap[child];
        i = child;
    }
    e->heap[i] = last;
}

/* ---- flows' ends ---- */

static enum status resize(void *array, size_t n, size_t size)
{
    void **items = array, *larger = realloc(*items, n * size);
    if (!larger)
        return status_no_memory(n * size);
    *items = larger;
    return STATUS_OK;
}

static enum status grow(struct due_table *t, int n)
{
    int capacity = t->capacity ? t->capacity : 2 * DUE_BLOCK;
    while (capacity < n)
        capacity *= 2;
    size_t places = (size_t)capacity, blocks = places / DUE_BLOCK;
    TRY(resize(&t->due, places, sizeof *t->due));
    TRY(resize(&t->first, blocks, sizeof *t->first));
    TRY(resize(&t->changed, blocks, sizeof *t->changed));
    for (int i = t->capacity; i < capacity; i++)
        t->due[i] = (struct due){INFINITY, 0};
    for (int i = t->capacity / DUE_BLOCK; i < capacity / DUE_BLOCK; i++) {
        t->first[i] = i * DUE_BLOCK;
        t->changed[i] = false;
    }
    t->capacity = capacity;
    return STATUS_OK;
}

enum status events_make_places(struct clock_events *e, int n)
{
    if (n > e->ends.capacity)
        TRY(grow(&e->ends, n));
    e->ends.n = n;
    return STATUS_OK;
}

void events_set_end(struct clock_events *e, int target, double t_s)
{
    struct due_table *t = &e->ends;
    t->due[target] = (struct due){t_s, isfinite(t_s) ? e->next_number++ : 0};
    t->changed[target / DUE_BLOCK] = t->any_changed = true;
}

static bool is_due_before(const struct due *a, const struct due *b)
{
    return a->t_s < b->t_s || (a->t_s <= b->t_s && a->number < b->number);
}

static void look_through(struct due_table *t, int block)
{
    int first = block * DUE_BLOCK;
    for (int i = first + 1; i < (block + 1) * DUE_BLOCK; i++)
        if (is_due_before(&t->due[i], &t->due[first]))
            first = i;
    t->first[block] = first;
    t->changed[block] = false;
}

static const struct due *find_earliest(struct due_table *t)
{
    if (t->n == 0)
        return NULL;
    if (t->any_changed) {
        t->earliest = 0;
        for (int block = 0; block * DUE_BLOCK < t->n; block++) {
            if (t->changed[block])
                look_through(t, block);
            if (is_due_before(&t->due[t->first[block]], &t->due[t->earliest]))
                t->earliest = t->first[block];
        }
        t->any_changed = false;
    }
    const struct due *due = &t->due[t->earliest];
    return isfinite(due->t_s) ? due : NULL;
}

/* ---- both ---- */

double events_next_s(struct clock_events *e)
{
    const struct due *end = find_earliest(&e->ends);
    double other_s = e->n ? e->heap[0].t_s : INFINITY;
    return end && end->t_s < other_s ? end->t_s : other_s;
}

bool events_take(struct clock_events *e, struct clock_event *out)
{
    const struct due *end = find_earliest(&e->ends);
    if (end) {
        *out = (struct clock_event){end->t_s, end->number, EVENT_FLOW_END, e->ends.earliest, 0};
        if (e->n == 0 || before(out, &e->heap[0])) {
            events_set_end(e, out->target, INFINITY);
            return true;
        }
    }
    if (e->n == 0)
        return false;
    take_from_heap(e, out);
    return true;
}

void events_deinit(struct clock_events *e)
{
    free(e->heap);
    free(e->ends.due);
    free(e->ends.first);
    free(e->ends.changed);
}
