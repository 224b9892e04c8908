/* An executor by itself: its messages when runs fail. */
#include "session.h"

/* Fails with the text at `user`, if there is one. */
struct feed {
    const char *failure;
    struct executor_batch batch;
};

static enum status next_batch(void *user, struct executor_batch *batch)
{
    const struct feed *f = user;
    if (f->failure)
        return status_fail(STATUS_FAILED, "%s", f->failure);
    *batch = f->batch;
    return STATUS_OK;
}

static enum status run(struct session *s, struct feed *data)
{
    struct executor_feed feed = {next_batch, data};
    struct step_state state = {1, 1};
    struct update_rule rule = {.kind = UPDATE_SGD, .learning_rate = 0.01};
    struct executor_result result;
    return executor_run(s->executor, 0, &feed, &state, &rule, &result);
}

/* Each failure has its own message, and a run after it is as any other. */
static void test_every_failure_is_its_own(void **state)
{
    (void)state;
    static float images[2 * 28 * 28];
    static const int32_t labels[2] = {3, 4};
    struct graph_variant v = {.batch = 2,
                              .channels = 1,
                              .height = 28,
                              .width = 28,
                              .classes = 10,
                              .small_form = true,
                              .drop_probability = -1};
    struct feed fine = {.batch = {images, labels, 0}};
    struct feed first = {.failure = "the first sample is broken"};
    struct feed second = {.failure = "the disk is gone"};
    struct session s;
    session_open(&s, "reference", PRECISION_FLOAT);
    session_add(&s, "mlp", &v, true, 0);
    session_start(&s);
    assert_fails(run(&s, &first), STATUS_FAILED, "the first sample is broken");
    assert_fails(run(&s, &second), STATUS_FAILED, "the disk is gone");
    assert_ok(run(&s, &fine));
    assert_fails(run(&s, &first), STATUS_FAILED, "the first sample is broken");
    session_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_failure_is_its_own),
    };
    return test_run(tests);
}
