/* Communication in machines: looking up curves, interpolating them, and measuring them among
 * threads and processes. */
#include "base/timer.h"
#include "machine/machine_measure.h"
#include "machine/survey.h"
#include "machines.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

/* ---- curves ---- */

static struct machine *machine_with_curves(void)
{
    return parse_json(
        "{\"cleave_machine\": 1, " NODES ", \"wake_s\": \"5us\", \"curves\": ["
        "{\"transport\": \"threads\", \"operation\": \"message\","
        " \"points\": [[1024, 1e-6, 0], [4096, 4e-6, 2e-6], [65536, 16e-6, 8e-6]]},"
        "{\"transport\": \"threads\", \"operation\": \"ring\", \"members\": 2,"
        " \"points\": [[1024, 1e-6, 1e-6]]},"
        "{\"transport\": \"threads\", \"operation\": \"ring\", \"members\": 8,"
        " \"points\": [[1024, 2e-6, 1e-6]]},"
        "{\"transport\": \"threads\", \"operation\": \"tree\", \"members\": 4,"
        " \"points\": [[1024, 3e-6, 1e-6]]},"
        "{\"transport\": \"mpi\", \"operation\": \"gather\", \"members\": 4,"
        " \"points\": [[1024, 4e-6, 1e-6]]},"
        "{\"transport\": \"mpi\", \"operation\": \"gather\", \"members\": 4, \"nodes\": 2,"
        " \"points\": [[1024, 5e-6, 1e-6]]}]}");
}

static void test_find_curve(void **state)
{
    (void)state;
    struct machine *m = machine_with_curves();
    assert_ptr_equal(machine_find_curve(m, "threads", false, COMM_RING, 2), &m->curves[0]);
    assert_ptr_equal(machine_find_curve(m, "threads", true, COMM_RING, 2), &m->curves[1]);
    assert_ptr_equal(machine_find_curve(m, "threads", true, COMM_RING, 3), &m->curves[1]);
    assert_ptr_equal(machine_find_curve(m, "threads", true, COMM_RING, 5), &m->curves[2]);
    assert_ptr_equal(machine_find_curve(m, "threads", true, COMM_RING, 64), &m->curves[2]);
    assert_ptr_equal(machine_find_curve(m, "threads", true, COMM_TREE, 64), &m->curves[3]);
    assert_ptr_equal(machine_find_curve(m, "threads", true, COMM_GATHER, 4), &m->curves[1]);
    assert_ptr_equal(machine_find_curve(m, "mpi", true, COMM_RING, 4), &m->curves[4]);
    assert_null(machine_find_curve(m, "mpi", false, COMM_RING, 4));
    assert_null(machine_find_curve(m, "carrier pigeon", true, COMM_RING, 4));
    assert_ptr_equal(machine_find_network_curve(m, "mpi", true, COMM_RING, 4, 3), &m->curves[5]);
    assert_null(machine_find_network_curve(m, "threads", true, COMM_RING, 4, 2));
    assert_round_trip(m);
    machine_destroy(m);
}

static void test_curve_at(void **state)
{
    (void)state;
    struct machine *m = machine_with_curves();
    const struct machine_curve *c = &m->curves[0];
    assert_near(machine_curve_at(c, 1024).seconds * 1e6, 1, 1e-12);
    assert_near(machine_curve_at(c, 4096).seconds * 1e6, 4, 1e-12);
    assert_near(machine_curve_at(c, 2048).seconds * 1e6, 2, 1e-12);    /* half way, on logarithms */
    assert_near(machine_curve_at(c, 16384).seconds * 1e6, 8, 1e-12);   /* 4 to 16 */
    assert_near(machine_curve_at(c, 16384).cpu_s * 1e6, 4, 1e-12);     /* 2 to 8 */
    assert_near(machine_curve_at(c, 2048).cpu_s * 1e6, 1, 1e-12);      /* 0 to 2: even */
    assert_near(machine_curve_at(c, 1).seconds * 1e6, 1, 1e-12);       /* not below the first */
    assert_near(machine_curve_at(c, 655360).seconds * 1e6, 160, 1e-9); /* the last bandwidth */
    assert_near(machine_curve_at(c, 655360).cpu_s * 1e6, 80, 1e-9);
    assert_near(machine_curve_at(&m->curves[1], 2048).seconds * 1e6, 2, 1e-12);
    assert_near(machine_curve_at(&m->curves[1], 512).seconds * 1e6, 1, 1e-12);
    machine_destroy(m);
}

/* ---- measuring ---- */

struct seen {
    atomic_int bound[4];
    double share;
};

static void note_bind(int worker, int n_workers, void *user)
{
    struct seen *s = user;
    assert_int_equal(n_workers, 3);
    atomic_fetch_add(&s->bound[worker], 1);
}

static void note_progress(double share, void *user)
{
    struct seen *s = user;
    s->share = share;
}

static void check_measured(const struct machine *m, const char *transport)
{
    for (int i = 0; i < m->n_curves; i++) {
        const struct machine_curve *c = &m->curves[i];
        assert_string_equal(c->transport, transport);
        assert_int_equal(c->n_points, 2); /* 1 KiB and 16 KiB */
        assert_true(c->points[0].bytes == 1024 && c->points[1].bytes == 16384);
    }
}

static void test_measure_threads(void **state)
{
    (void)state;
    struct machine *m = parse("1x3:cpu");
    struct seen seen = {0};
    struct machine_measure_options o = {.workers = 3,
                                        .case_s = 1e-4,
                                        .largest_bytes = 1 << 14,
                                        .bind = note_bind,
                                        .progress = note_progress,
                                        .user = &seen};
    for (int again = 0; again < 2; again++) { /* the second measurement replaces the first */
        assert_ok(machine_measure_threads(m, &o));
        assert_int_equal(m->n_curves, 1 + 3 + 3); /* message; sums over 2 and over 3 */
        check_measured(m, "threads");
    }
    const struct machine_curve *c = machine_find_curve(m, "threads", true, COMM_TREE, 3);
    assert_int_equal(c->members, 3);
    assert_int_equal(c->method, COMM_TREE);
    assert_true(m->wake_s > 0 && m->wake_s < 1);
    assert_true(m->step_s > 0 && m->step_s < 1);
    assert_true(m->kinds[0].reached_bytes_per_s > 1e6);
    assert_true(seen.share > 0.3 && seen.share <= 1);
    for (int i = 0; i < 3; i++)
        assert_true(atomic_load(&seen.bound[i]) > 0);
    assert_round_trip(m);
    o.workers = 1;
    o.bind = NULL;
    assert_ok(machine_measure_threads(m, &o));
    assert_int_equal(m->n_curves, 7); /* no second worker: the old curves stay */
    o.workers = 0;
    assert_fails(machine_measure_threads(m, &o), STATUS_USAGE, "0 workers");
    machine_destroy(m);
}

/* ---- how messages are measured ---- */

enum { WATCHED_BYTES = 1 << 22, MOST_WATCHED = 128 };
/* The wall time of a large message, so long that other programs may have the core for a few
 * milliseconds. */
static const int64_t WATCHED_NS = 40000000;

/* The threads' table, with an eye on the large messages, of which each end waits for one at most.
 */
static struct {
    struct comm_table table;
    const struct comm_table *real;
    const char *sent[MOST_WATCHED]; /* where their bytes lay */
    bool helped[MOST_WATCHED];      /* the sender worked on it before it had arrived */
    int n;
    struct {
        const comm_op *op; /* NULL: none */
        int64_t start_ns;
    } ends[2];
    atomic_bool arrived;
} watch;

static void begin_watching(const comm *end, int64_t n_bytes, const comm_op *op)
{
    watch.ends[end->rank].op = n_bytes == WATCHED_BYTES ? op : NULL;
    watch.ends[end->rank].start_ns = timer_now_ns();
}

static enum status watch_send(comm *end, int peer, int64_t tag, const void *data, int64_t n_bytes,
                              comm_op *op)
{
    begin_watching(end, n_bytes, op);
    if (n_bytes == WATCHED_BYTES) {
        assert_in_range(watch.n, 0, MOST_WATCHED - 1);
        watch.helped[watch.n] = false;
        watch.sent[watch.n++] = data;
        atomic_store(&watch.arrived, false);
    }
    return watch.real->start_send(end, peer, tag, data, n_bytes, op);
}

static enum status watch_receive(comm *end, int peer, int64_t tag, void *data, int64_t n_bytes,
                                 comm_op *op)
{
    begin_watching(end, n_bytes, op);
    return watch.real->start_receive(end, peer, tag, data, n_bytes, op);
}

static enum status watch_poll(comm *end, comm_op *op, bool *done)
{
    bool watched = watch.ends[end->rank].op == op;
    if (watched && end->rank == 0)
        watch.helped[watch.n - 1] |= !atomic_load(&watch.arrived);
    if (watched && timer_now_ns() - watch.ends[end->rank].start_ns < WATCHED_NS) {
        *done = false;
        return STATUS_OK;
    }
    TRY(watch.real->poll(end, op, done));
    if (watched && *done && end->rank == 1)
        atomic_store(&watch.arrived, true);
    if (watched && *done)
        watch.ends[end->rank].op = NULL;
    return STATUS_OK;
}

static void *run_survey(void *user)
{
    struct survey *s = user;
    assert_ok(arena_create(&s->memory));
    assert_ok(survey_run(s));
    return NULL;
}

/* In a step no cache holds a message's buffer, so repeats do not use the same bytes again soon. And
 * mostly one end copies while the other computes, so that is measured, too: here one end takes as
 * long as both. */
static void test_messages_are_measured_as_in_a_step(void **state)
{
    (void)state;
    const struct machine_measure_options o = {
        .workers = 2, .case_s = 1e-4, .largest_bytes = WATCHED_BYTES};
    comm *ends[2];
    pthread_t threads[2];
    struct survey surveys[2];
    watch.n = 0;
    assert_ok(comm_threads_create(2, 60, ends));
    watch.real = ends[0]->table;
    watch.table = *watch.real;
    watch.table.start_send = watch_send;
    watch.table.start_receive = watch_receive;
    watch.table.poll = watch_poll;
    for (int i = 0; i < 2; i++) {
        ends[i]->table = &watch.table;
        surveys[i] = (struct survey){.end = ends[i], .options = &o};
        assert_int_equal(pthread_create(&threads[i], NULL, run_survey, &surveys[i]), 0);
    }
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(watch.n, 2 + 3 + 3);
    for (int i = 0; i < watch.n; i++) {
        assert_int_equal(watch.helped[i], i < 2 + 3);
        for (int k = 0; k < i; k++)
            assert_true(llabs(watch.sent[i] - watch.sent[k]) >= WATCHED_BYTES);
    }
    const struct machine_curve *message = &surveys[0].curves[0];
    const struct machine_point *largest = &message->points[message->n_points - 1];
    assert_false(message->reduces);
    assert_true(largest->bytes == WATCHED_BYTES);
    assert_true(largest->seconds > 0.9e-9 * (double)WATCHED_NS);
    assert_true(largest->cpu_s < 0.75 * largest->seconds);
    for (int i = 0; i < 2; i++) {
        arena_destroy(surveys[i].memory);
        ends[i]->table->destroy(ends[i]);
    }
}

/* ---- the groups that measure ---- */

enum { CROWD = 5, GROUP_BYTES = 1 << 14 };

/* The threads' table, which counts the senders of messages and the sums over two. */
static struct {
    struct comm_table table;
    const struct comm_table *real;
    atomic_int sends[CROWD], sums[CROWD]; /* by sender, and by first member */
    atomic_int under_way;                 /* messages, from the start of sending to arrival */
    atomic_int most_under_way;
    const comm_op *receives[CROWD]; /* each its own */
} crowd;

static enum status crowd_send(comm *end, int peer, int64_t tag, const void *data, int64_t n_bytes,
                              comm_op *op)
{
    assert_int_equal(peer, end->rank + 1);
    atomic_fetch_add(&crowd.sends[end->rank], 1);
    int now = atomic_fetch_add(&crowd.under_way, 1) + 1, most = atomic_load(&crowd.most_under_way);
    while (now > most && !atomic_compare_exchange_weak(&crowd.most_under_way, &most, now))
        ;
    return crowd.real->start_send(end, peer, tag, data, n_bytes, op);
}

static enum status crowd_receive(comm *end, int peer, int64_t tag, void *data, int64_t n_bytes,
                                 comm_op *op)
{
    crowd.receives[end->rank] = op;
    return crowd.real->start_receive(end, peer, tag, data, n_bytes, op);
}

static enum status crowd_reduce(comm *end, const struct comm_reduction *r, void *data,
                                void *workspace, comm_op *op)
{
    if (r->n_members == 2 && r->count > 1 && end->rank == r->members[0])
        atomic_fetch_add(&crowd.sums[end->rank], 1);
    return crowd.real->start_reduce(end, r, data, workspace, op);
}

static enum status crowd_poll(comm *end, comm_op *op, bool *done)
{
    TRY(crowd.real->poll(end, op, done));
    if (*done && crowd.receives[end->rank] == op) {
        crowd.receives[end->rank] = NULL;
        atomic_fetch_sub(&crowd.under_way, 1);
    }
    return STATUS_OK;
}

/* Two cores may be unlike all others, so every pair has its repeats, one at a time. */
static void test_all_pairs_of_cores_are_measured(void **state)
{
    (void)state;
    const struct machine_measure_options o = {
        .workers = CROWD, .case_s = 1, .largest_bytes = GROUP_BYTES};
    comm *ends[CROWD];
    pthread_t threads[CROWD];
    struct survey surveys[CROWD];
    assert_ok(comm_threads_create(CROWD, 60, ends));
    crowd.real = ends[0]->table;
    crowd.table = *crowd.real;
    crowd.table.start_send = crowd_send;
    crowd.table.start_receive = crowd_receive;
    crowd.table.start_reduce = crowd_reduce;
    crowd.table.poll = crowd_poll;
    for (int i = 0; i < CROWD; i++) {
        ends[i]->table = &crowd.table;
        surveys[i] = (struct survey){.end = ends[i], .options = &o};
        assert_int_equal(pthread_create(&threads[i], NULL, run_survey, &surveys[i]), 0);
    }
    for (int i = 0; i < CROWD; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    for (int i = 0; i < CROWD; i++) {
        /* 2 sizes, messages by both ends and by one, sums by 3 methods; the fifth has no partner */
        bool first = i == 0 || i == 2;
        assert_in_range(atomic_load(&crowd.sends[i]), first ? 2 * 2 : 0, first ? 999 : 0);
        assert_in_range(atomic_load(&crowd.sums[i]), first ? 2 * 3 : 0, first ? 999 : 0);
    }
    assert_int_equal(atomic_load(&crowd.most_under_way), 1);
    for (int i = 0; i < CROWD; i++) {
        const struct machine_curve *message = &surveys[i].curves[0];
        assert_true(message->points[0].seconds > 1e-9); /* of the right member's times */
        arena_destroy(surveys[i].memory);
        ends[i]->table->destroy(ends[i]);
    }
}

/* Processes, played by threads: five ranks on three nodes. */
enum { RANKS = 5 };
static const int node_of_rank[RANKS] = {0, 0, 1, 1, 2};

struct rank {
    comm *end;
    pthread_t thread;
    enum status status;
    char *text; /* of its machine */
    struct status_error error;
};

static enum status measure_rank(struct rank *r)
{
    struct machine *own, *joined = NULL;
    struct machine_measure_options o = {.case_s = 1e-4, .largest_bytes = 1 << 14};
    size_t size;
    TRY(machine_parse(r->end->rank < 4 ? "1x2:cpu" : "1x1:cpu,memory=1GiB", &own));
    own->kinds[0].launch_s = 1e-6;
    if (r->end->rank == 2) /* another kind of the same name */
        own->kinds[0].rates[ARITHMETIC_F32].reached /= 2;
    enum status st = machine_join(r->end, own, node_of_rank, &joined);
    machine_destroy(own);
    TRY(st);
    st = machine_measure_processes(joined, r->end, node_of_rank, &o);
    FILE *f = st == STATUS_OK ? open_memstream(&r->text, &size) : NULL;
    if (f) {
        st = machine_write(joined, f);
        (void)fclose(f);
    }
    machine_destroy(joined);
    return st;
}

static void *run_rank(void *user)
{
    struct rank *r = user;
    r->status = measure_rank(r);
    if (r->status != STATUS_OK) {
        r->end->table->abort(r->end, r->status, status_message());
        status_take(r->status, &r->error);
    }
    return NULL;
}

static void check_joined(const struct machine *m)
{
    assert_int_equal(m->n_nodes, 3);
    assert_int_equal(m->n_devices, 5);
    assert_int_equal(m->n_kinds, 2);
    assert_string_equal(m->kinds[1].name, "cpu-2");
    assert_int_equal(m->devices[2].kind, 1);
    assert_int_equal(m->devices[4].kind, 0);
    assert_true(m->nodes[2].memory_bytes == INT64_C(1) << 30);
    /* one node: message, sums over 2; network: message, sums over all */
    assert_int_equal(m->n_curves, 1 + 3 + 1 + 3);
    check_measured(m, "threads");
    assert_int_equal(machine_find_network_curve(m, "threads", true, COMM_RING, 5, 3)->members, 5);
    for (int i = 0; i < 3; i++) {
        const struct machine_link *out = &m->links[m->node_out[i]], *in = &m->links[m->node_in[i]];
        assert_true(out->bytes_per_s != 12.5e9 && in->bytes_per_s != 12.5e9); /* measured */
        assert_true(out->latency_s > 0 && out->latency_s < 1);
    }
}

static void test_measure_processes(void **state)
{
    (void)state;
    struct rank ranks[RANKS] = {0};
    comm *ends[RANKS];
    assert_ok(comm_threads_create(RANKS, 20, ends));
    for (int i = 0; i < RANKS; i++) {
        ranks[i].end = ends[i];
        assert_int_equal(pthread_create(&ranks[i].thread, NULL, run_rank, &ranks[i]), 0);
    }
    for (int i = 0; i < RANKS; i++)
        assert_int_equal(pthread_join(ranks[i].thread, NULL), 0);
    for (int i = 0; i < RANKS; i++) {
        assert_that(ranks[i].status == STATUS_OK, "rank %d: %s", i, ranks[i].error.message);
        assert_string_equal(ranks[i].text, ranks[0].text); /* all come to the same */
    }
    struct machine *m = parse_json(ranks[0].text);
    check_joined(m);
    machine_destroy(m);
    for (int i = 0; i < RANKS; i++) {
        free(ranks[i].text);
        ends[i]->table->destroy(ends[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_find_curve),
        cmocka_unit_test(test_curve_at),
        cmocka_unit_test(test_measure_threads),
        cmocka_unit_test(test_messages_are_measured_as_in_a_step),
        cmocka_unit_test(test_all_pairs_of_cores_are_measured),
        cmocka_unit_test(test_measure_processes),
    };
    return test_run(tests);
}
