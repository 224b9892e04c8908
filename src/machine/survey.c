/* Measures curves: messages and sums at several sizes, over several numbers of members.
 *
 * A repeat of a case: the members synchronise (a tiny sum), each takes the time, the operation
 * runs, each takes the time again. The repeat lasts from the last member's begin to the last
 * member's end. Clocks of different hosts do not agree: there the time of a sum is that of the
 * member with the shortest time, which began last, and the time of a message is its receiver's. A
 * message that both ends copy is measured once more while the sender is busy.
 *
 * If a node has workers for several groups of members, each group has its share of the repeats, one
 * group after the other:
 *
 *     repeats 0, 3, 6  [0 1] 2 3 4 5    1, 4, 7  0 1 [2 3] 4 5    2, 5, 8  0 1 2 3 [4 5]
 *
 * Pairs of cores differ: on virtual machines some share a cache, or are slow, and this changes by
 * the second. */
#include "machine/survey.h"

#include "base/memory.h"
#include "base/numbers.h"
#include "base/thread.h"
#include "base/timer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MEET_TAG = 1, CASE_TAG = 2, TRIALS = 2, LEAST_REPEATS = 3, EXCHANGES = 21 };
static const double usual_case_s = 0.06, longest_s = 0.5, pause_s = 0.001, late_s = 5e-6;
static const int64_t sizes[SURVEY_SIZES] = {1 << 10, 1 << 14, 1 << 18, 1 << 22, 1 << 25};
/* The bytes that the members of a case cycle through together: more than caches hold, but at most
 * this share of the memory. */
static const int64_t usual_area_bytes = 1 << 29, area_share = 16;

struct survey_case {
    bool reduces;
    enum comm_method method;
    int n_members; /* of a group; the groups stand one behind the other in s->members */
    int n_groups;
    int nodes;
    int64_t bytes;
    double lone_s; /* of a message: for so long the sender stays busy and leaves the copying to the
                      receiver */
};

/* ---- small things ---- */

static int node_of(const struct survey *s, int worker)
{
    return s->node_of ? s->node_of[worker] : 0;
}

int survey_first_worker(const struct survey *s, int node)
{
    for (int i = 0; i < s->end->size; i++)
        if (node_of(s, i) == node)
            return i;
    return -1;
}

/* The members of the group whose turn this repeat is. */
static const int *members_of(const struct survey *s, const struct survey_case *c, int repeat)
{
    return s->members + repeat % c->n_groups * c->n_members;
}

static int position_of(const struct survey *s, const int *members, int n)
{
    for (int i = 0; i < n; i++)
        if (members[i] == s->end->rank)
            return i;
    return -1;
}

static int64_t largest(const struct survey *s)
{
    int64_t asked = s->options->largest_bytes, most = sizes[SURVEY_SIZES - 1];
    return asked > 0 ? int64_min(asked, most) : most;
}

static void look_elsewhere(double seconds)
{
    int64_t until_ns = timer_now_ns() + (int64_t)(seconds * 1e9);
    while (timer_now_ns() < until_ns)
        thread_relax();
}

/* ---- one operation ---- */

enum status survey_finish(comm *end, comm_op *op)
{
    int64_t limit_ns = timer_now_ns() + (int64_t)(end->timeout_s * 1e9);
    for (bool done = false; !done;) {
        TRY(end->table->poll(end, op, &done));
        if (done)
            break;
        if (timer_now_ns() > limit_ns)
            return status_fail(STATUS_TIMEOUT,
                               "measuring: worker %d waited for the others for %g s", end->rank,
                               end->timeout_s);
        TRY(end->table->pause(end, pause_s));
    }
    return STATUS_OK;
}

static struct comm_reduction reduction(const struct survey_case *c, const int *members)
{
    return (struct comm_reduction){.method = c->method,
                                   .type = ELEMENT_F32,
                                   .n_members = c->n_members,
                                   .members = members,
                                   .node_size = c->n_members,
                                   .count = c->bytes / (int64_t)sizeof(float),
                                   .tag = CASE_TAG};
}

static enum status run_operation(struct survey *s, const struct survey_case *c, const int *members,
                                 char *data)
{
    const struct comm_table *table = s->end->table;
    int position = position_of(s, members, c->n_members);
    comm_op op;
    struct comm_reduction r = reduction(c, members);
    if (c->reduces)
        TRY(table->start_reduce(s->end, &r, data, s->workspace, &op));
    else if (position == 0)
        TRY(table->start_send(s->end, members[1], CASE_TAG, data, c->bytes, &op));
    else
        TRY(table->start_receive(s->end, members[0], CASE_TAG, data, c->bytes, &op));
    if (position == 0)
        look_elsewhere(c->lone_s);
    return survey_finish(s->end, &op);
}

/* Returns when all members are here and awake. */
static enum status meet(struct survey *s, const struct survey_case *c, const int *members)
{
    comm_op op;
    float one = 0;
    struct comm_reduction r = reduction(c, members);
    r.method = COMM_GATHER;
    r.count = 1;
    r.tag = MEET_TAG;
    TRY(s->end->table->start_reduce(s->end, &r, &one, s->workspace, &op));
    return survey_finish(s->end, &op);
}

/* ---- one case ---- */

/* A member's part of the area: room for two of the largest at least. */
static int64_t part_bytes(const struct survey *s, int n_members)
{
    return int64_max(s->area_bytes / n_members, 2 * s->data_bytes);
}

/* The bytes of the next repeat. A step uses each of its many buffers once, when the caches no
 * longer hold it. */
static char *move_on(struct survey *s, const struct survey_case *c)
{
    if (s->next_byte + c->bytes > part_bytes(s, c->n_groups * c->n_members))
        s->next_byte = 0;
    char *data = s->data + s->next_byte;
    s->next_byte += c->bytes;
    return data;
}

static enum status run_repeat(struct survey *s, const struct survey_case *c, int repeat)
{
    struct survey_time *t = &s->mine[repeat];
    const int *members = members_of(s, c, repeat);
    char *data = move_on(s, c);
    /* As in a step, each member has just written its own data, and no cache holds the other's. */
    memset(data, repeat, (size_t)c->bytes);
    TRY(meet(s, c, members));
    if (c->lone_s > 0 && members[0] != s->end->rank)
        look_elsewhere(
            late_s); /* the late receiver finds the message offered and may begin to copy */
    int64_t cpu_ns = timer_thread_ns();
    t->begin_ns = timer_now_ns();
    TRY(run_operation(s, c, members, data));
    t->end_ns = timer_now_ns();
    t->cpu_ns = timer_thread_ns() - cpu_ns;
    return STATUS_OK;
}

/* Runs the repeats and exchanges the times: s->all has them by worker and repeat. The other groups
 * wait meanwhile, as idle workers of a step would. */
static enum status run_repeats(struct survey *s, const struct survey_case *c, int repeats)
{
    memset(s->mine, 0, SURVEY_REPEATS_MAX * sizeof *s->mine);
    for (int group = 0; group < c->n_groups; group++) {
        bool mine = position_of(s, members_of(s, c, group), c->n_members) >= 0;
        for (int i = group; i < repeats && mine; i += c->n_groups)
            TRY(run_repeat(s, c, i));
        TRY(s->end->table->exchange(s->end, s->mine, SURVEY_REPEATS_MAX * (int64_t)sizeof *s->mine,
                                    s->all));
    }
    return STATUS_OK;
}

/* The time of repeat `i`, and the members' mean CPU time in it. */
static struct machine_point combine(const struct survey *s, const struct survey_case *c, int i)
{
    int64_t begin = INT64_MIN, end = INT64_MIN, least = INT64_MAX, received = 0;
    int64_t cpu = 0, sent = 0;
    for (int k = 0; k < c->n_members; k++) {
        const struct survey_time *t = &s->all[members_of(s, c, i)[k] * SURVEY_REPEATS_MAX + i];
        int64_t own = t->end_ns - t->begin_ns;
        begin = int64_max(begin, t->begin_ns);
        end = int64_max(end, t->end_ns);
        least = int64_min(least, own);
        received = own; /* a message's last member is its receiver, its first the sender */
        sent = k == 0 ? own : sent;
        cpu += t->cpu_ns;
    }
    int64_t took = end - begin;
    if (c->lone_s > 0)
        took = received;
    else if (c->nodes > 1)
        took = c->reduces ? least : received;
    struct machine_point p = {.bytes = (double)c->bytes,
                              .seconds = (double)int64_max(took, 1) / 1e9,
                              .cpu_s = (double)cpu / 1e9 / c->n_members};
    if (c->nodes > 1 && !c->reduces)
        p.sent_s = (double)sent / 1e9;
    p.cpu_s = fmin(p.cpu_s, p.seconds);
    return p;
}

static struct machine_point find_medians(const struct survey *s, const struct survey_case *c,
                                         int repeats)
{
    double seconds[SURVEY_REPEATS_MAX], cpu_s[SURVEY_REPEATS_MAX], sent_s[SURVEY_REPEATS_MAX];
    for (int i = 0; i < repeats; i++) {
        struct machine_point p = combine(s, c, i);
        seconds[i] = p.seconds;
        cpu_s[i] = p.cpu_s;
        sent_s[i] = p.sent_s;
    }
    struct machine_point p = {.bytes = (double)c->bytes,
                              .seconds = numbers_median(seconds, repeats),
                              .cpu_s = numbers_median(cpu_s, repeats),
                              .sent_s = numbers_median(sent_s, repeats)};
    p.cpu_s = fmin(p.cpu_s, p.seconds);
    p.sent_s = fmin(p.sent_s, p.seconds);
    return p;
}

/* As many as fit into the time of a case. */
static int count_repeats(const struct survey *s, double seconds)
{
    double case_s = s->options->case_s > 0 ? s->options->case_s : usual_case_s;
    return int_max((int)fmin(case_s / seconds, SURVEY_REPEATS_MAX), LEAST_REPEATS);
}

static enum status measure_case(struct survey *s, const struct survey_case *c,
                                struct machine_point *out)
{
    TRY(run_repeats(s, c, TRIALS));
    int n = count_repeats(s, find_medians(s, c, TRIALS).seconds);
    TRY(run_repeats(s, c, n));
    *out = find_medians(s, c, n);
    s->done_cases++;
    if (s->end->rank == 0 && s->options->progress)
        s->options->progress((double)s->done_cases / s->n_cases, s->options->user);
    return STATUS_OK;
}

/* If sender and receiver each copy a half, memory bandwidth limits both: one of them alone would
 * not need twice the time. So the receiver's time alone is measured. The first point, the fixed
 * cost of taking part, stays as it is; *first_s is its time alone. */
static enum status measure_lone(struct survey *s, const struct survey_case *c, double *first_s,
                                const struct machine_point *first, struct machine_point *p)
{
    struct survey_case lone = *c;
    int n = count_repeats(s, p->seconds);
    lone.lone_s = 3 * p->seconds + 2 * late_s;
    TRY(run_repeats(s, &lone, n));
    double seconds = find_medians(s, &lone, n).seconds;
    if (p == first)
        *first_s = seconds;
    else
        p->cpu_s = fmin(p->seconds, first->cpu_s + fmax(0, seconds - *first_s) / 2);
    return STATUS_OK;
}

/* ---- curves ---- */

static enum status measure_curve(struct survey *s, struct survey_case c)
{
    struct machine_curve *curve = &s->curves[s->n_curves];
    struct machine_point *points;
    bool both_work = !c.reduces && s->end->table->shared_work;
    double first_lone_s = 0;
    TRY(arena_alloc_array(s->memory, SURVEY_SIZES, sizeof *points, &points));
    *curve = (struct machine_curve){.transport = s->end->table->name,
                                    .reduces = c.reduces,
                                    .method = c.method,
                                    .members = c.n_members,
                                    .nodes = c.nodes,
                                    .points = points};
    for (int i = 0; i < SURVEY_SIZES && sizes[i] <= largest(s); i++) {
        const struct machine_point *last = curve->n_points ? &points[curve->n_points - 1] : NULL;
        if (last && last->seconds * (double)sizes[i] / last->bytes > longest_s) {
            s->done_cases += SURVEY_SIZES - i;
            break;
        }
        c.bytes = sizes[i];
        struct machine_point *p = &points[curve->n_points++];
        TRY(measure_case(s, &c, p));
        if (both_work)
            TRY(measure_lone(s, &c, &first_lone_s, &points[0], p));
    }
    s->n_curves += curve->n_points > 0;
    return STATUS_OK;
}

static enum status measure_sums(struct survey *s, int n_members, int n_groups, int nodes)
{
    static const enum comm_method methods[] = {COMM_GATHER, COMM_RING, COMM_TREE};
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        TRY(measure_curve(s, (struct survey_case){.reduces = true,
                                                  .method = methods[i],
                                                  .n_members = n_members,
                                                  .n_groups = n_groups,
                                                  .nodes = nodes}));
    return STATUS_OK;
}

/* The workers of a node into s->members; returns how many. */
static int list_members(struct survey *s, int node)
{
    int n = 0;
    for (int i = 0; i < s->end->size; i++)
        if (node_of(s, i) == node)
            s->members[n++] = i;
    return n;
}

/* The node with most workers: 0 unless another has more. */
static int find_fullest(struct survey *s)
{
    int best = 0, most = list_members(s, 0);
    for (int i = 1; i < s->n_nodes; i++) {
        int n = list_members(s, i);
        if (n > most) {
            most = n;
            best = i;
        }
    }
    return best;
}

static enum status measure_node(struct survey *s)
{
    int n = list_members(s, find_fullest(s));
    if (n < 2)
        return STATUS_OK;
    TRY(measure_curve(s, (struct survey_case){.n_members = 2, .n_groups = n / 2, .nodes = 1}));
    for (int members = 2; members < n; members *= 2)
        TRY(measure_sums(s, members, n / members, 1));
    return measure_sums(s, n, 1, 1);
}

static enum status measure_network(struct survey *s)
{
    if (s->n_nodes < 2)
        return STATUS_OK;
    s->members[0] = survey_first_worker(s, 0);
    s->members[1] = survey_first_worker(s, 1);
    TRY(measure_curve(s, (struct survey_case){.n_members = 2, .n_groups = 1, .nodes = 2}));
    for (int i = 0; i < s->end->size; i++)
        s->members[i] = i;
    TRY(measure_sums(s, s->end->size, 1, s->n_nodes));
    TRY(survey_measure_links(s));
    TRY(survey_measure_wait(s));
    return survey_measure_streams(s);
}

/* ---- all of it ---- */

/* Counts the curves of 2, 4, 8, .. and n members, and of messages. */
static int count_curves(int n)
{
    int curves = 1 + 3;
    for (int members = 2; members < n; members *= 2)
        curves += 3;
    return curves;
}

static enum status make_room(struct survey *s)
{
    size_t size = (size_t)s->end->size;
    const struct comm_table *table = s->end->table;
    int64_t most = 0, limit;
    int n_curves = count_curves(s->end->size) + (s->n_nodes > 1 ? 4 : 0);
    s->data_bytes = largest(s);
    TRY(memory_find_limit(&limit));
    s->area_bytes = int64_min(limit / area_share, usual_area_bytes);
    TRY(arena_alloc_array(s->memory, size, sizeof *s->members, &s->members));
    TRY(arena_alloc_array(s->memory, SURVEY_REPEATS_MAX, sizeof *s->mine, &s->mine));
    TRY(arena_alloc_array(s->memory, size * SURVEY_REPEATS_MAX, sizeof *s->all, &s->all));
    TRY(arena_alloc_array(s->memory, (size_t)n_curves, sizeof *s->curves, &s->curves));
    for (int i = 0; i < s->end->size; i++)
        s->members[i] = i;
    s->n_cases = n_curves * SURVEY_SIZES;
    for (int method = 0; method < COMM_HIERARCHICAL; method++)
        for (int n = 1; n <= s->end->size; n++) {
            struct survey_case c = {
                .method = (enum comm_method)method, .n_members = n, .bytes = s->data_bytes};
            struct comm_reduction r = reduction(&c, s->members);
            most = int64_max(most, table->reduce_workspace_bytes(&r));
        }
    int64_t part = part_bytes(s, 2); /* no pages yet: most machines touch far fewer bytes */
    s->data = malloc((size_t)part);
    s->workspace = malloc((size_t)most + 1);
    if (!s->data || !s->workspace)
        return status_no_memory((size_t)(part + most));
    memset(s->data, 0, (size_t)s->data_bytes); /* first touch by the thread that will use it */
    memset(s->workspace, 0, (size_t)most + 1);
    return STATUS_OK;
}

static enum status measure_exchange(struct survey *s)
{
    double times[EXCHANGES];
    for (int i = 0; i < EXCHANGES; i++) {
        struct survey_time nothing = {0};
        if (s->n_nodes > 1) /* as after a step: no worker has polled for a while */
            (void)nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
        int64_t begin_ns = timer_now_ns();
        TRY(s->end->table->exchange(s->end, &nothing, sizeof nothing, s->all));
        times[i] = (double)(timer_now_ns() - begin_ns) / 1e9;
    }
    s->exchange_s = numbers_median(times, EXCHANGES);
    return s->end->table->broadcast(s->end, 0, &s->exchange_s, sizeof s->exchange_s);
}

static enum status measure_all(struct survey *s)
{
    TRY(make_room(s));
    TRY(measure_exchange(s));
    TRY(measure_node(s));
    return measure_network(s);
}

enum status survey_run(struct survey *s)
{
    s->n_nodes = 1;
    for (int i = 0; i < s->end->size; i++)
        s->n_nodes = int_max(s->n_nodes, node_of(s, i) + 1);
    enum status st = measure_all(s);
    if (st != STATUS_OK)
        s->end->table->abort(s->end, st, status_message());
    free(s->data);
    free(s->workspace);
    s->data = s->workspace = NULL;
    return st;
}
