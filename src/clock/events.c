#include "clock/parts.h"

#include <stdlib.h>

static bool before(const struct clock_event *a, const struct clock_event *b)
{
    return a->t_s < b->t_s || (a->t_s <= b->t_s && a->number < b->number);
}

enum status events_add(struct clock_events *e, double t_s, enum event_kind kind, int who,
                       int version)
{
    if (e->n == e->capacity) {
        int capacity = e->capacity ? 2 * e->capacity : 256;
        struct clock_event *heap = realloc(e->heap, (size_t)capacity * sizeof *heap);
        if (!heap)
            return status_no_memory((size_t)capacity * sizeof *heap);
        e->heap = heap;
        e->capacity = capacity;
    }
    struct clock_event added = {t_s, e->next_number++, kind, who, version};
    int i = e->n++;
    for (; i > 0 && before(&added, &e->heap[(i - 1) / 2]); i = (i - 1) / 2)
        e->heap[i] = e->heap[(i - 1) / 2];
    e->heap[i] = added;
    return STATUS_OK;
}

bool events_take(struct clock_events *e, struct clock_event *out)
{
    if (e->n == 0)
        return false;
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
    return true;
}
