/* The public interface's training: results, callbacks, checkpoints, stopping, misuse. */
#include "api_cases.h"

#include <pthread.h>
#include <sched.h>

struct run {
    int steps, epochs, stop_at_step, stop_at_epoch;
    double losses[64];
    cleave_trainer *trainer;
    enum cleave_status from_callback;
};

static int on_step(void *user, const struct cleave_step *step)
{
    struct run *r = user;
    assert_in_range(step->step, 1, 64);
    r->losses[step->step - 1] = step->loss;
    r->steps++;
    if (r->trainer && step->step == 1) {
        r->from_callback = cleave_trainer_save(r->trainer);
        cleave_trainer_destroy(r->trainer); /* refused without a word */
    }
    return step->step == r->stop_at_step;
}

static int on_epoch(void *user, const struct cleave_epoch *epoch)
{
    struct run *r = user;
    r->epochs++;
    assert_true(epoch->evaluated && epoch->test_accuracy >= 0 && epoch->test_accuracy <= 1);
    return epoch->epoch == r->stop_at_epoch;
}

static struct cleave_train_options options_of(struct run *r)
{
    struct cleave_train_options o = cleave_train_defaults();
    o.epochs = 2;
    o.on_step = on_step;
    o.on_epoch = on_epoch;
    o.user = r;
    o.threads = 1;
    return o;
}

static void train(cleave_trainer *t, enum cleave_status expected)
{
    enum cleave_status st = cleave_trainer_run(t);
    if (expected == CLEAVE_OK)
        assert_api_ok(st);
    else
        assert_api_fails(st, expected, "stopped by the caller");
}

static void train_small(const cleave_model *model, const char *strategy, int workers, struct run *r)
{
    struct cleave_train_options o = options_of(r);
    cleave_plan *plan = make_plan(model, strategy, workers);
    cleave_trainer *t;
    assert_api_ok(cleave_trainer_create(plan, &o, &t));
    cleave_plan_destroy(plan);
    train(t, CLEAVE_OK);
    cleave_trainer_destroy(t);
}

static void test_train(void **state)
{
    (void)state;
    cleave_model *model = open_small();
    struct run serial = {0}, data = {0}, half = {.stop_at_step = 7, .stop_at_epoch = 1};
    train_small(model, "serial", 1, &serial);
    train_small(model, "data", 2, &data);
    assert_int_equal(serial.steps, 20);
    assert_int_equal(serial.epochs, 2);
    for (int i = 0; i < 20; i++)
        assert_near(data.losses[i], serial.losses[i], 1e-3);
    /* stopped twice, by a step and by an epoch, and run on: the same bits */
    struct cleave_train_options o = options_of(&half);
    cleave_plan *plan = make_plan(model, "data", 2);
    cleave_model_destroy(model);
    cleave_trainer *t;
    assert_api_ok(cleave_trainer_create(plan, &o, &t));
    cleave_plan_destroy(plan);
    train(t, CLEAVE_STOPPED);
    assert_int_equal(cleave_trainer_get_info(t)->steps, 7);
    train(t, CLEAVE_STOPPED);
    assert_int_equal(cleave_trainer_get_info(t)->steps, 10);
    assert_int_equal(half.steps, 10);
    train(t, CLEAVE_OK);
    const struct cleave_trainer_info *i = cleave_trainer_get_info(t);
    assert_int_equal(i->steps, 20);
    assert_true(i->median_step_s > 0 && i->evaluated && i->workers == 2 && i->threads == 1);
    assert_memory_equal(half.losses, data.losses, sizeof half.losses);
    double loss = 0;
    assert_api_ok(cleave_trainer_evaluate(t, &loss, NULL));
    assert_true(loss == i->test_loss); /* NOLINT: the same number */
    train(t, CLEAVE_OK);               /* nothing is left to do */
    assert_int_equal(half.steps, 20);
    cleave_trainer_destroy(t);
}

static void test_checkpoint(void **state)
{
    (void)state;
    cleave_model *model = open_small();
    struct run whole = {0}, half = {.stop_at_step = 13}, rest = {0};
    char path[PATH_MAX], weights[PATH_MAX];
    double before, after;
    train_small(model, "serial", 1, &whole);
    struct cleave_train_options o = options_of(&half);
    o.checkpoint = test_path(path, "half");
    cleave_plan *serial = make_plan(model, "serial", 1), *other = make_plan(model, "model", 2);
    cleave_trainer *t;
    assert_api_ok(cleave_trainer_create(serial, &o, &t));
    half.trainer = t;
    train(t, CLEAVE_STOPPED);
    assert_int_equal(half.from_callback, CLEAVE_USAGE);
    assert_api_ok(cleave_trainer_save(t));
    assert_api_ok(cleave_trainer_save_weights(t, test_path(weights, "weights.safetensors")));
    assert_api_ok(cleave_trainer_evaluate(t, &before, NULL));
    cleave_trainer_destroy(t);
    /* under another plan */
    o = options_of(&rest);
    o.checkpoint = path;
    o.resume = true;
    assert_api_ok(cleave_trainer_create(other, &o, &t));
    path[0] = '\0'; /* it was copied */
    assert_true(cleave_trainer_get_info(t)->resumed);
    assert_int_equal(cleave_trainer_get_info(t)->first_step, 13);
    train(t, CLEAVE_OK);
    assert_int_equal(rest.steps, 7);
    assert_near(rest.losses[19], whole.losses[19], 1e-3);
    cleave_trainer_destroy(t);
    /* the weights alone give the same test */
    o = cleave_train_defaults();
    o.weights = weights;
    o.threads = 1;
    assert_api_ok(cleave_trainer_create(serial, &o, &t));
    assert_api_ok(cleave_trainer_evaluate(t, &after, NULL));
    assert_near(after, before, 1e-6);
    assert_api_fails(cleave_trainer_save(t), CLEAVE_USAGE, "checkpoint");
    cleave_trainer_destroy(t);
    cleave_plan_destroy(serial);
    cleave_plan_destroy(other);
    cleave_model_destroy(model);
}

static void *stop_soon(void *trainer)
{
    (void)usleep(100000);
    cleave_trainer_stop(trainer);
    return NULL;
}

static void test_stop_from_elsewhere(void **state)
{
    (void)state;
    cleave_model *model = open_small();
    cleave_plan *plan = make_plan(model, "data", 2);
    cleave_trainer *t;
    pthread_t thread;
    struct cleave_train_options o = cleave_train_defaults();
    o.epochs = 1000000;
    o.threads = 1;
    assert_api_ok(cleave_trainer_create(plan, &o, &t));
    assert_int_equal(pthread_create(&thread, NULL, stop_soon, t), 0);
    train(t, CLEAVE_STOPPED);
    (void)pthread_join(thread, NULL);
    cleave_trainer_destroy(t);
    cleave_trainer_stop(NULL);
    cleave_plan_destroy(plan);
    cleave_model_destroy(model);
}

static void test_train_misuse(void **state)
{
    (void)state;
    cleave_model *model = open_small(), *shape;
    cleave_plan *plan = make_plan(model, "serial", 1);
    cleave_trainer *t;
    struct cleave_train_options o = cleave_train_defaults();
    o.optimizer = "adam";
    assert_api_fails(cleave_trainer_create(plan, &o, &t), CLEAVE_USAGE, "adamw");
    assert_null(t);
    o = cleave_train_defaults();
    o.schedule = "sine";
    assert_api_fails(cleave_trainer_create(plan, &o, &t), CLEAVE_USAGE, "cosine");
    o = cleave_train_defaults();
    o.backend = "gpu";
    assert_api_fails(cleave_trainer_create(plan, &o, &t), CLEAVE_USAGE, "GPUs");
    o = cleave_train_defaults();
    o.resume = true;
    assert_api_fails(cleave_trainer_create(plan, &o, &t), CLEAVE_USAGE, "checkpoint");
    o = cleave_train_defaults(); /* those of `cleave train` */
    o.n_samples = 64;
    assert_api_ok(cleave_trainer_create(plan, &o, &t));
    assert_int_equal(cleave_trainer_get_info(t)->steps_total,
                     5 * cleave_trainer_get_info(t)->steps_per_epoch);
    cleave_trainer_destroy(t);
    t = NULL;
    o = cleave_train_defaults();
    o.learning_rate = NAN;
    assert_api_fails(cleave_trainer_create(plan, &o, &t), CLEAVE_USAGE, "learning rate");
    o = cleave_train_defaults();
    o.threads = 1000000;
    assert_api_fails(cleave_trainer_create(plan, &o, &t), CLEAVE_USAGE, "threads is 1000000");
    o = cleave_train_defaults();
    o.evaluate = false;
    assert_api_ok(cleave_trainer_create(plan, &o, &t));
    assert_api_fails(cleave_trainer_evaluate(t, NULL, NULL), CLEAVE_USAGE, "evaluate");
    assert_api_fails(cleave_trainer_save_weights(t, NULL), CLEAVE_USAGE, "path is NULL");
    assert_api_fails(cleave_trainer_save_weights(t, "/dev/null/w"), CLEAVE_FAILED, "/dev/null/w");
    cleave_trainer_destroy(t);
    assert_api_fails(cleave_trainer_create(NULL, NULL, &t), CLEAVE_USAGE, "plan is NULL");
    assert_api_fails(cleave_trainer_run(NULL), CLEAVE_USAGE, "training is NULL");
    assert_null(cleave_trainer_get_info(NULL));
    cleave_trainer_destroy(NULL);
    cleave_plan_destroy(plan);
    /* a shape without data can be predicted, not trained */
    assert_api_ok(cleave_model_open("lenet5", "mnist", 10, &shape));
    plan = make_plan(shape, "serial", 1);
    assert_api_fails(cleave_trainer_create(plan, NULL, &t), CLEAVE_USAGE, "mnist");
    cleave_plan_destroy(plan);
    cleave_model_destroy(shape);
    cleave_model_destroy(model);
}

/* A thread may run where it could before it made trainers, in whatever order they are destroyed. */
static void test_trainers_leave_their_thread_unbound(void **state)
{
    (void)state;
    cleave_model *model = open_small();
    cleave_plan *plan = make_plan(model, "data", 2);
    struct cleave_train_options o = cleave_train_defaults();
    cleave_trainer *first, *second;
    cpu_set_t before, now;
    o.threads = 1;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    assert_api_ok(cleave_trainer_create(plan, &o, &first));
    assert_int_equal(sched_getaffinity(0, sizeof now, &now), 0);
    assert_true(CPU_EQUAL(&before, &now));
    assert_api_ok(cleave_trainer_create(plan, &o, &second));
    cleave_trainer_destroy(first);
    cleave_trainer_destroy(second);
    assert_int_equal(sched_getaffinity(0, sizeof now, &now), 0);
    assert_true(CPU_EQUAL(&before, &now));
    cleave_plan_destroy(plan);
    cleave_model_destroy(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_train),
        cmocka_unit_test(test_checkpoint),
        cmocka_unit_test(test_stop_from_elsewhere),
        cmocka_unit_test(test_train_misuse),
        cmocka_unit_test(test_trainers_leave_their_thread_unbound),
    };
    return test_run(tests);
}
