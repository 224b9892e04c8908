/* The clock's events: the heap and the table of flows' ends together against a plain list. */
#include "clock/parts.h"
#include "testing.h"

#include <math.h>

enum { N_FLOWS = 150, N_PLAIN = 4096 };

/* All that is to come, in the order in which it was added. */
struct plain {
    int n;
    struct clock_event events[N_PLAIN];
};

static void plain_drop(struct plain *p, int at)
{
    for (int i = at; i + 1 < p->n; i++)
        p->events[i] = p->events[i + 1];
    p->n--;
}

static void plain_set_end(struct plain *p, int flow, double t_s)
{
    for (int i = p->n - 1; i >= 0; i--)
        if (p->events[i].kind == EVENT_FLOW_END && p->events[i].target == flow)
            plain_drop(p, i);
    if (isfinite(t_s))
        p->events[p->n++] = (struct clock_event){t_s, 0, EVENT_FLOW_END, flow, 0};
}

/* The earliest; of those of one time the first that was added. */
static int plain_first(const struct plain *p)
{
    int first = 0;
    for (int i = 1; i < p->n; i++)
        if (p->events[i].t_s < p->events[first].t_s)
            first = i;
    return first;
}

static void take_and_compare(struct clock_events *e, struct plain *p)
{
    struct clock_event taken;
    if (p->n == 0) {
        assert_true(isinf(events_next_s(e)));
        assert_false(events_take(e, &taken));
        return;
    }
    int first = plain_first(p);
    const struct clock_event *expected = &p->events[first];
    assert_true(events_next_s(e) >= expected->t_s && events_next_s(e) <= expected->t_s);
    assert_true(events_take(e, &taken));
    assert_int_equal(taken.kind, expected->kind);
    assert_int_equal(taken.target, expected->target);
    plain_drop(p, first);
}

static uint32_t draw(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

/* Few different times, so that most events have company. */
static void events_come_in_order(void **state)
{
    (void)state;
    static struct plain p;
    for (uint32_t round = 0; round < 20; round++) {
        struct clock_events e = {0};
        uint32_t seed = round;
        p.n = 0;
        assert_ok(events_make_places(&e, round % 2 ? N_FLOWS : 40));
        assert_ok(events_make_places(&e, N_FLOWS));
        for (int i = 0; i < 4000; i++) {
            uint32_t what = draw(&seed) % 8;
            int target = (int)(draw(&seed) % N_FLOWS);
            double t_s = draw(&seed) % 16;
            if (what < 4) {
                t_s = what == 0 ? INFINITY : t_s;
                events_set_end(&e, target, t_s);
                plain_set_end(&p, target, t_s);
            } else if (what < 6 && p.n < N_PLAIN) {
                assert_ok(events_add(&e, t_s, EVENT_RESUME, target, 0));
                p.events[p.n++] = (struct clock_event){t_s, 0, EVENT_RESUME, target, 0};
            } else {
                take_and_compare(&e, &p);
            }
        }
        while (p.n > 0)
            take_and_compare(&e, &p);
        take_and_compare(&e, &p);
        events_deinit(&e);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(events_come_in_order)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
