/* The order of tasks. Each stage has its own list (S stages, M micro-batches):
 *
 *     gpipe       all forwards, then all backwards in reverse    F0 F1 F2 F3 B3 B2 B1 B0
 *     1f1b        stage s: S - s forwards ahead, then one        s=0 of 2: F0 F1 B0 F2 B1 ..
 *                 backward, one forward in turn                  s=1:      F0 B0 F1 B1 ..
 *     pipedream   as 1f1b; every backward is followed by its update
 *
 * The global sequence is found by letting the stages take turns, each doing its next task if what
 * that depends on is done. */
#include "program/partition.h"

struct stage_order {
    int n_forward, n_backward; /* done so far */
};

/* The next task of stage s in its own list. */
static struct task next_task(const struct plan *plan, int s, const struct stage_order *o,
                             int n_micros, bool training)
{
    int ahead = plan->schedule == PLAN_GPIPE ? n_micros : plan->n_stages - s;
    bool forward = o->n_forward < n_micros && o->n_forward - o->n_backward < ahead;
    if (!training)
        forward = true;
    int backward = plan->schedule == PLAN_GPIPE ? n_micros - 1 - o->n_backward : o->n_backward;
    return (struct task){s, forward, forward ? o->n_forward : backward};
}

/* Whether the neighbours have done their part for the task: F of the stage before, B of the one
 * behind. In every schedule a stage takes micro-batches in the same order as its neighbours, so it
 * is enough to compare counts. */
static bool is_ready(const struct plan *plan, const struct task *t, const struct stage_order *all)
{
    const struct stage_order *o = &all[t->stage];
    if (t->forward)
        return t->stage == 0 || all[t->stage - 1].n_forward > o->n_forward;
    if (t->stage == plan->n_stages - 1)
        return o->n_forward > t->micro;
    return all[t->stage + 1].n_backward > o->n_backward;
}

enum status order_tasks(const struct plan *plan, int n_micros, bool training, arena *memory,
                        struct task **tasks, int *n_tasks)
{
    int per_micro = training ? 2 : 1, total = plan->n_stages * n_micros * per_micro;
    struct stage_order *all;
    TRY(arena_alloc_array(memory, (size_t)plan->n_stages, sizeof *all, &all));
    TRY(arena_alloc_array(memory, (size_t)total, sizeof **tasks, tasks));
    *n_tasks = 0;
    for (bool moved = true; moved;) {
        moved = false;
        for (int s = 0; s < plan->n_stages; s++) {
            if (all[s].n_forward + all[s].n_backward == per_micro * n_micros)
                continue;
            struct task t = next_task(plan, s, &all[s], n_micros, training);
            if (!is_ready(plan, &t, all))
                continue;
            (*tasks)[(*n_tasks)++] = t;
            *(t.forward ? &all[s].n_forward : &all[s].n_backward) += 1;
            moved = true;
        }
    }
    if (*n_tasks != total)
        return status_fail(STATUS_FAILED, "lowering: the schedule stops after %d of %d tasks",
                           *n_tasks, total);
    return STATUS_OK;
}
