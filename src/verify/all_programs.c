/* All workers' programs together.
 *
 * It is proved that
 *   - every message has exactly one other side, with the same size, and the messages of a pair come
 *     in the same order on both sides; all members of a reduction mean the same reduction;
 *   - nothing waits for ever: both streams of all workers are run, on the rule that a message ends
 *     when both sides have started and a reduction when all have;
 *   - the step is the one that graph and plan ask for: in the order found there, every instruction
 *     is applied to symbols (symbolic_run.c). So all copies of a weight end equal, updated by the
 *     gradients of all holders, each once;
 *   - every sample of the batch has its loss, once. */
#include "base/progress.h"
#include "verify/checking.h"

#include <stdlib.h>
#include <string.h>

/* One side of a message, or one member of a reduction. */
struct side {
    int from, to; /* a message's; a reduction: its first member, -1 */
    int64_t tag;
    int worker, number; /* the instruction */
    bool started;
    int first, n; /* the sides that belong together: n of them from number `first` on */
};

struct rendezvous {
    struct world *w;
    int n_sides;
    struct side *sides; /* sorted: those that belong together are neighbours, by worker */
    int **side_of;      /* by worker and instruction; communications alone */
    bool **done;        /* by worker and instruction */
    int *next[2];       /* by stream and worker: the next instruction of the stream */
};

/* ---- matching ---- */

static int compare_places(const struct side *a, const struct side *b)
{
    if (a->from != b->from)
        return a->from < b->from ? -1 : 1;
    if (a->to != b->to)
        return a->to < b->to ? -1 : 1;
    return (a->tag > b->tag) - (a->tag < b->tag);
}

static int compare_sides(const void *x, const void *y)
{
    const struct side *a = x, *b = y;
    int places = compare_places(a, b);
    if (places)
        return places;
    if (a->worker != b->worker)
        return a->worker < b->worker ? -1 : 1;
    return (a->number > b->number) - (a->number < b->number);
}

static struct side make_side(const struct program *p, int number)
{
    const struct instr *instr = &p->instrs[number];
    struct side s = {.worker = p->worker, .number = number, .to = -1};
    if (instr->kind == INSTR_REDUCE) {
        s.from = p->reductions[instr->index].spec.members[0];
        s.tag = p->reductions[instr->index].spec.tag;
        return s;
    }
    int peer = p->messages[instr->index].peer;
    s.tag = p->messages[instr->index].tag;
    s.from = instr->kind == INSTR_SEND ? p->worker : peer;
    s.to = instr->kind == INSTR_SEND ? peer : p->worker;
    return s;
}

static enum status gather_sides(struct rendezvous *r)
{
    struct world *w = r->w;
    size_t n = 0;
    for (int u = 0; u < w->n_workers; u++)
        n += (size_t)w->programs[u]->n_instrs;
    TRY(arena_alloc_array(w->scratch, n, sizeof *r->sides, &r->sides));
    for (int u = 0; u < w->n_workers; u++) {
        const struct program *p = w->programs[u];
        for (int i = 0; i < p->n_instrs; i++)
            if (p->instrs[i].stream == STREAM_COMMUNICATE)
                r->sides[r->n_sides++] = make_side(p, i);
    }
    qsort(r->sides, (size_t)r->n_sides, sizeof *r->sides, compare_sides);
    for (int k = 0; k < r->n_sides; k++) {
        struct side *s = &r->sides[k];
        bool joins = k > 0 && compare_places(&r->sides[k - 1], s) == 0;
        s->first = joins ? r->sides[k - 1].first : k;
        r->sides[s->first].n++;
        r->side_of[s->worker][s->number] = k;
    }
    return STATUS_OK;
}

static const struct instr *instr_of(const struct rendezvous *r, const struct side *s)
{
    return &r->w->programs[s->worker]->instrs[s->number];
}

static int64_t message_bytes(const struct rendezvous *r, const struct side *s)
{
    return r->w->programs[s->worker]->messages[instr_of(r, s)->index].n_bytes;
}

static const struct comm_reduction *reduction_of(const struct rendezvous *r, const struct side *s)
{
    return &r->w->programs[s->worker]->reductions[instr_of(r, s)->index].spec;
}

static enum status check_message(const struct rendezvous *r, const struct side *s)
{
    const struct program *p = r->w->programs[s->worker];
    if (s->n == 1)
        return check_fail(p, s->number, "has no other side, tag %lld", (long long)s->tag);
    if (s->n > 2 || s[0].worker == s[1].worker)
        return check_fail(p, s->number, "has a tag that is used twice, %lld", (long long)s->tag);
    if (message_bytes(r, &s[0]) != message_bytes(r, &s[1]))
        return check_fail(p, s->number, "has %lld bytes, and %lld on the other side",
                          (long long)message_bytes(r, &s[0]), (long long)message_bytes(r, &s[1]));
    return STATUS_OK;
}

static bool same_reduction(const struct comm_reduction *a, const struct comm_reduction *b)
{
    return a->kind == b->kind && a->method == b->method && a->type == b->type &&
           a->count == b->count && a->node_size == b->node_size && a->n_members == b->n_members &&
           memcmp(a->members, b->members, (size_t)a->n_members * sizeof *a->members) == 0;
}

static enum status check_reduction(const struct rendezvous *r, const struct side *s)
{
    const struct comm_reduction *spec = reduction_of(r, s);
    const struct program *p = r->w->programs[s->worker];
    for (int k = 0; k < s->n; k++)
        if (!same_reduction(spec, reduction_of(r, &s[k])))
            return check_fail(r->w->programs[s[k].worker], s[k].number,
                              "is another reduction than worker %d's", s->worker);
    for (int k = 0; k < spec->n_members; k++)
        if (k >= s->n || s[k].worker != spec->members[k])
            return check_fail(p, s->number, "is over worker %d, which does not take part once",
                              spec->members[k]);
    if (s->n != spec->n_members)
        return check_fail(p, s->number, "has too many members");
    return STATUS_OK;
}

static bool is_reduction(const struct side *s)
{
    return s->to < 0;
}

/* Both sides have the messages from a to b in the same order. */
static enum status check_pair_order(const struct rendezvous *r, int a, int b)
{
    const struct program *giver = r->w->programs[a], *taker = r->w->programs[b];
    for (int i = 0, k = 0; i < giver->n_instrs; i++) {
        const struct instr *send = &giver->instrs[i];
        if (send->kind != INSTR_SEND || giver->messages[send->index].peer != b)
            continue;
        while (taker->instrs[k].kind != INSTR_RECEIVE ||
               taker->messages[taker->instrs[k].index].peer != a)
            k++; /* there are as many */
        if (giver->messages[send->index].tag != taker->messages[taker->instrs[k].index].tag)
            return check_fail(giver, i, "comes in another order than it is received in");
        k++;
    }
    return STATUS_OK;
}

/* ---- running ---- */

static void advance(struct rendezvous *r, int s, int u)
{
    const struct program *p = r->w->programs[u];
    int *next = &r->next[s][u];
    do
        ++*next;
    while (*next < p->n_instrs && (int)p->instrs[*next].stream != s);
}

static bool may_start(const struct rendezvous *r, int u, int number)
{
    const struct instr *instr = &r->w->programs[u]->instrs[number];
    for (int k = 0; k < instr->n_waits; k++)
        if (!r->done[u][instr->waits[k]])
            return false;
    return true;
}

/* A side has started: if all that belong to it have, they end. */
static enum status start_side(struct rendezvous *r, int k)
{
    struct side *s = &r->sides[r->sides[k].first];
    int *numbers;
    r->sides[k].started = true;
    for (int i = 0; i < s->n; i++)
        if (!s[i].started)
            return STATUS_OK;
    for (int i = 0; i < s->n; i++)
        r->done[s[i].worker][s[i].number] = true;
    if (!is_reduction(s)) {
        int send = s[0].worker == s->from ? 0 : 1;
        const struct side *from = &s[send], *to = &s[1 - send];
        return meaning_message(r->w, from->worker, from->number, to->worker, to->number);
    }
    TRY(arena_alloc_array(r->w->scratch, (size_t)s->n, sizeof *numbers, &numbers));
    for (int i = 0; i < s->n; i++)
        numbers[i] = s[i].number;
    return meaning_reduce(r->w, reduction_of(r, s), numbers);
}

/* Runs worker u as far as it gets. */
static enum status run_worker(struct rendezvous *r, int u, bool *moved)
{
    const struct program *p = r->w->programs[u];
    int *compute = &r->next[STREAM_COMPUTE][u], *talk = &r->next[STREAM_COMMUNICATE][u];
    for (bool again = true; again;) {
        again = false;
        if (*compute < p->n_instrs && may_start(r, u, *compute)) {
            TRY(meaning_apply(r->w, u, *compute));
            r->done[u][*compute] = true;
            advance(r, STREAM_COMPUTE, u);
            again = true;
        }
        if (*talk < p->n_instrs && may_start(r, u, *talk)) {
            TRY(start_side(r, r->side_of[u][*talk]));
            advance(r, STREAM_COMMUNICATE, u);
            again = true;
        }
        *moved |= again;
    }
    return STATUS_OK;
}

/* The first instruction that is not done, and what it waits for. */
static enum status fail_stuck(const struct rendezvous *r, int u, int number)
{
    const struct program *p = r->w->programs[u];
    const struct instr *instr = &p->instrs[number];
    char text[160];
    for (int k = 0; k < instr->n_waits; k++)
        if (!r->done[u][instr->waits[k]])
            return check_fail(p, number, "waits for ever, for instruction %d (%s)", instr->waits[k],
                              program_instr_text(p, instr->waits[k], text, sizeof text));
    return check_fail(p, number, "waits for ever, for its other side");
}

/* Of the instructions of all workers, the share that the run has passed. */
static double share_run(const struct rendezvous *r)
{
    double done = 0, all = 0;
    for (int u = 0; u < r->w->n_workers; u++) {
        int n = r->w->programs[u]->n_instrs;
        done += r->next[0][u] < 0 ? 0 : r->next[0][u] < n ? r->next[0][u] : n;
        all += n;
    }
    return all > 0 ? done / all : 0;
}

static enum status run_all(struct rendezvous *r)
{
    struct world *w = r->w;
    for (int u = 0; u < w->n_workers; u++)
        for (int s = 0; s < 2; s++) {
            r->next[s][u] = -1;
            advance(r, s, u);
        }
    struct progress progress = {0};
    for (bool moved = true; moved;) {
        moved = false;
        progress_show(&progress, share_run(r), "running the programs on symbols");
        for (int u = 0; u < w->n_workers; u++)
            TRY(run_worker(r, u, &moved));
    }
    for (int u = 0; u < w->n_workers; u++)
        for (int i = 0; i < w->programs[u]->n_instrs; i++)
            if (!r->done[u][i])
                return fail_stuck(r, u, i);
    return STATUS_OK;
}

/* ---- samples ---- */

static enum status check_samples(const struct world *w)
{
    int64_t batch = w->graph->batch;
    int *seen;
    TRY(arena_alloc_array(w->scratch, (size_t)(batch * w->n_steps), sizeof *seen, &seen));
    for (int u = 0; u < w->n_workers; u++)
        for (int i = 0; i < w->programs[u]->n_results; i++) {
            const struct program_result *r = &w->programs[u]->results[i];
            for (int64_t k = r->samples.begin; k < r->samples.end; k++)
                seen[r->micro / w->n_micros * batch + k]++;
        }
    for (int64_t k = 0; k < batch * w->n_steps; k++)
        if (seen[k] != world_has_loss(w))
            return status_fail(STATUS_FAILED,
                               "program check: sample %lld of step %lld has %d losses",
                               (long long)(k % batch), (long long)(k / batch), seen[k]);
    return STATUS_OK;
}

/* ---- the whole ---- */

static enum status create(struct rendezvous *r)
{
    struct world *w = r->w;
    size_t n = (size_t)w->n_workers;
    TRY(arena_alloc_array(w->scratch, n, sizeof(int *), &r->side_of));
    TRY(arena_alloc_array(w->scratch, n, sizeof(bool *), &r->done));
    for (int s = 0; s < 2; s++)
        TRY(arena_alloc_array(w->scratch, n, sizeof *r->next[s], &r->next[s]));
    for (int u = 0; u < w->n_workers; u++) {
        size_t n_instrs = (size_t)w->programs[u]->n_instrs;
        TRY(arena_alloc_array(w->scratch, n_instrs, sizeof **r->side_of, &r->side_of[u]));
        TRY(arena_alloc_array(w->scratch, n_instrs, sizeof **r->done, &r->done[u]));
    }
    return gather_sides(r);
}

static enum status check_together(struct world *w)
{
    struct rendezvous r = {.w = w};
    TRY(create(&r));
    for (int k = 0; k < r.n_sides; k += r.sides[k].n)
        TRY(is_reduction(&r.sides[k]) ? check_reduction(&r, &r.sides[k])
                                      : check_message(&r, &r.sides[k]));
    struct progress progress = {0};
    for (int a = 0; a < w->n_workers; a++) {
        progress_show(&progress, (double)a / w->n_workers, "checking workers two by two");
        for (int b = 0; b < w->n_workers; b++)
            if (a != b)
                TRY(check_pair_order(&r, a, b));
    }
    TRY(world_create(w));
    for (int u = 0; u < w->n_workers; u++)
        TRY(meaning_begin(w, u));
    TRY(run_all(&r));
    for (int u = 0; u < w->n_workers; u++)
        TRY(meaning_end(w, u));
    return check_samples(w);
}

/* Programs of one step of one plan. */
static enum status check_kinship(const struct program *const *programs, int n_programs)
{
    const struct program *first = programs[0];
    if (n_programs != first->plan->n_workers)
        return status_fail(STATUS_FAILED, "program check: %d programs for a plan of %d workers",
                           n_programs, first->plan->n_workers);
    for (int u = 0; u < n_programs; u++) {
        const struct program *p = programs[u];
        if (p->worker != u || p->plan != first->plan || p->graph->batch != first->graph->batch ||
            p->graph->n_nodes != first->graph->n_nodes || p->training != first->training ||
            p->n_micros != first->n_micros || p->n_steps != first->n_steps)
            return status_fail(STATUS_FAILED,
                               "program check: program %d is not worker %d's part of this step", u,
                               u);
    }
    return STATUS_OK;
}

static enum status check_all(const struct program *const *programs, int n_programs,
                             struct holdings *holdings, arena *scratch)
{
    struct progress progress = {0};
    for (int u = 0; u < n_programs; u++) {
        progress_show(&progress, (double)u / n_programs, "checking the workers' programs");
        TRY(check_program(programs[u], holdings));
    }
    struct world w = {.graph = programs[0]->graph,
                      .plan = programs[0]->plan,
                      .training = programs[0]->training,
                      .n_micros = programs[0]->n_micros,
                      .n_steps = programs[0]->n_steps,
                      .n_workers = n_programs,
                      .programs = programs,
                      .holdings = holdings,
                      .scratch = scratch};
    return check_together(&w);
}

enum status verify_programs(const struct program *const *programs, int n_programs)
{
    struct holdings holdings;
    arena *scratch;
    TRY(check_kinship(programs, n_programs));
    TRY(arena_create(&scratch));
    enum status st = holdings_create(programs[0]->graph, programs[0]->plan, scratch, &holdings);
    if (st == STATUS_OK)
        st = check_all(programs, n_programs, &holdings, scratch);
    arena_destroy(scratch);
    return st;
}
