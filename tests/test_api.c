/* The public interface (include/cleave/cleave.h): what it gives, and what it does with misuse.
 * Training is in test_api_train. */
#include "api_cases.h"

#include <pthread.h>

/* ---- names ---- */

static void test_version_and_names(void **state)
{
    (void)state;
    char version[32];
    (void)snprintf(version, sizeof version, "%d.%d.%d", CLEAVE_VERSION_MAJOR, CLEAVE_VERSION_MINOR,
                   CLEAVE_VERSION_PATCH);
    assert_string_equal(cleave_version(), version);
    assert_string_equal(cleave_status_name(CLEAVE_NO_FIT), "does not fit");
    assert_string_equal(cleave_status_name((enum cleave_status)77), "unknown");
    bool data = false, lenet = false;
    for (const char *const *name = cleave_strategy_names(); *name; name++)
        data = data || !strcmp(*name, "data");
    for (const char *const *name = cleave_network_names(); *name; name++)
        lenet = lenet || !strcmp(*name, "lenet5");
    assert_true(data && lenet);
}

/* ---- models ---- */

static void test_model(void **state)
{
    (void)state;
    cleave_model *model;
    assert_api_ok(cleave_model_open("lenet5", "fashion-mnist", 128, &model));
    const struct cleave_model_info *info = cleave_model_get_info(model);
    assert_int_equal(info->parameters, 61706);
    assert_int_equal(info->n_layers, 13);
    assert_int_equal(info->n_train, 60000);
    assert_int_equal(info->classes, 10);
    int64_t parameters = 0;
    double flops = 0;
    for (int i = 0; i < info->n_layers; i++) {
        parameters += cleave_model_get_layer(model, i)->parameters;
        flops += cleave_model_get_layer(model, i)->forward_flops;
    }
    assert_int_equal(parameters, info->parameters);
    assert_near(flops, info->forward_flops, 1e-12);
    const struct cleave_layer *conv2 = cleave_model_get_layer(model, 3);
    assert_string_equal(conv2->name, "conv2");
    assert_string_equal(conv2->op, "conv2d");
    assert_string_equal(conv2->output, "128x16x10x10");
    assert_string_equal(conv2->loops, "n=128 g=1 k=16 p=10 q=10 | c=6 r=5 s=5");
    assert_string_equal(conv2->cuts, "n g k p q c r s");
    assert_null(cleave_model_get_layer(model, -1));
    assert_null(cleave_model_get_layer(model, info->n_layers));
    cleave_model_destroy(model);
}

static void test_model_misuse(void **state)
{
    (void)state;
    cleave_model *model = (cleave_model *)&model;
    assert_api_fails(cleave_model_open("lenet", small_data, 1, &model), CLEAVE_USAGE, "lenet5");
    assert_null(model);
    assert_api_fails(cleave_model_open("lenet5", "mnits", 1, &model), CLEAVE_USAGE, "mnist");
    assert_api_fails(cleave_model_open("lenet5", small_data, 0, &model), CLEAVE_USAGE,
                     "batch is 0");
    assert_api_fails(cleave_model_open("lenet5", "synthetic:3x6x6/10", 1, &model), CLEAVE_USAGE,
                     "conv2");
    assert_api_fails(cleave_model_open(NULL, small_data, 1, &model), CLEAVE_USAGE,
                     "cleave_model_open: network is NULL");
    assert_api_fails(cleave_model_open("lenet5", NULL, 1, &model), CLEAVE_USAGE, "data is NULL");
    assert_api_fails(cleave_model_open("lenet5", small_data, 1, NULL), CLEAVE_USAGE, "out is NULL");
    assert_null(cleave_model_get_info(NULL));
    assert_null(cleave_model_get_layer(NULL, 0));
    cleave_model_destroy(NULL);
}

/* ---- machines ---- */

static void test_machine(void **state)
{
    (void)state;
    cleave_machine *machine, *again;
    char path[PATH_MAX];
    assert_api_ok(cleave_machine_open("4x4:p100,intra=15GB/s", &machine));
    assert_int_equal(cleave_machine_get_info(machine)->n_devices, 16);
    assert_int_equal(cleave_machine_get_info(machine)->n_nodes, 4);
    assert_false(cleave_machine_get_info(machine)->local);
    assert_string_equal(cleave_machine_get_device(machine, 15)->kind, "p100");
    assert_int_equal(cleave_machine_get_device(machine, 15)->node, 3);
    assert_null(cleave_machine_get_device(machine, 16));
    assert_api_ok(cleave_machine_save(machine, test_path(path, "machine.json")));
    assert_api_ok(cleave_machine_open(path, &again));
    assert_int_equal(cleave_machine_get_info(again)->n_links,
                     cleave_machine_get_info(machine)->n_links);
    cleave_machine_destroy(again);
    char *text = test_read_file(path, NULL);
    assert_api_ok(cleave_machine_open(text, &again));
    free(text);
    assert_int_equal(cleave_machine_get_info(again)->n_devices, 16);
    cleave_machine_destroy(again);
    assert_api_fails(cleave_machine_save(machine, "/dev/null/machine.json"), CLEAVE_FAILED,
                     "/dev/null/machine.json");
    cleave_machine_destroy(machine);
    assert_api_ok(cleave_machine_open("local", &machine));
    assert_true(cleave_machine_get_info(machine)->local);
    cleave_machine_destroy(machine);
}

static void test_machine_misuse(void **state)
{
    (void)state;
    cleave_machine *machine;
    assert_api_fails(cleave_machine_open("4x4:p10", &machine), CLEAVE_USAGE, "p100");
    assert_null(machine);
    assert_api_fails(cleave_machine_open("", &machine), CLEAVE_USAGE, "");
    assert_api_fails(cleave_machine_open("{\"cleave_machine\": 1", &machine), CLEAVE_USAGE, "");
    assert_api_fails(cleave_machine_open("no/such.json", &machine), CLEAVE_FAILED, "no/such.json");
    assert_api_fails(cleave_machine_open(NULL, &machine), CLEAVE_USAGE, "text is NULL");
    assert_api_fails(cleave_machine_save(NULL, "x"), CLEAVE_USAGE, "machine is NULL");
    assert_null(cleave_machine_get_info(NULL));
    cleave_machine_destroy(NULL);
}

/* ---- plans ---- */

static void test_plan(void **state)
{
    (void)state;
    cleave_model *model = open_small();
    cleave_plan *plan = make_plan(model, "data", 3), *again;
    char path[PATH_MAX];
    assert_string_equal(cleave_plan_get_info(plan)->name, "data");
    assert_int_equal(cleave_plan_get_info(plan)->workers, 3);
    assert_false(cleave_plan_get_info(plan)->stale);
    assert_api_ok(cleave_plan_check(plan));
    assert_api_ok(cleave_plan_save(plan, test_path(path, "plan.json")));
    assert_api_ok(cleave_plan_load(model, path, &again));
    assert_string_equal(cleave_plan_get_info(plan)->text, cleave_plan_get_info(again)->text);
    cleave_plan_destroy(again);
    assert_api_ok(cleave_plan_parse(model, cleave_plan_get_info(plan)->text, &again));
    cleave_plan_destroy(plan);
    cleave_model_destroy(model); /* the plan keeps it */
    assert_api_ok(cleave_plan_check(again));
    assert_api_ok(cleave_plan_save(again, path));
    cleave_plan_destroy(again);
}

/* A plan's file is enough to open it with its model. */
static void test_plan_file(void **state)
{
    (void)state;
    cleave_model *model;
    cleave_machine *machine;
    cleave_search *search;
    cleave_plan *plan, *again;
    char path[PATH_MAX];
    struct cleave_search_options o = cleave_search_defaults();
    struct cleave_predict_options p = cleave_predict_defaults();
    p.calibrate_images_per_s = 5000;
    o.predict = &p;
    assert_api_ok(cleave_model_open("LeNet5", "MNIST", 48, &model));
    assert_string_equal(cleave_model_get_info(model)->network, "lenet5");
    assert_api_ok(cleave_machine_open("1x2:p100", &machine));
    assert_api_ok(cleave_search_run(model, machine, &o, &search));
    int best = cleave_search_get_info(search)->best;
    assert_true(strlen(cleave_search_get_candidate(search, best)->title) > 0);
    assert_api_ok(cleave_search_get_plan(search, best, &plan));
    assert_api_ok(cleave_plan_save(plan, test_path(path, "made.json")));
    cleave_search_destroy(search);
    cleave_machine_destroy(machine);
    cleave_model_destroy(model);
    assert_api_ok(cleave_plan_open(path, &again));
    assert_string_equal(cleave_plan_get_info(plan)->text, cleave_plan_get_info(again)->text);
    const struct cleave_plan_info *i = cleave_plan_get_info(again);
    assert_string_equal(i->machine, "1x2:p100");
    assert_string_equal(i->optimizer, "sgd");
    assert_true(i->calibrate_images_per_s == 5000 && i->calibrate_batch == 48);
    assert_int_equal(cleave_model_get_info(cleave_plan_get_model(again))->batch, 48);
    assert_string_equal(cleave_model_get_info(cleave_plan_get_model(again))->data, "MNIST");
    assert_null(cleave_plan_get_model(NULL));
    cleave_plan_destroy(again);
    cleave_plan_destroy(plan);
    FILE *old = fopen(path, "w");
    assert_non_null(old);
    (void)fputs("{\"cleave_plan\": 1, \"model\": \"lenet5\", \"workers\": 1, "
                "\"stages\": [{\"workers\": [0]}]}",
                old);
    assert_int_equal(fclose(old), 0);
    assert_api_fails(cleave_plan_open(path, &again), CLEAVE_USAGE, "cleave_plan_load");
    assert_api_fails(cleave_plan_open("no.json", &again), CLEAVE_FAILED, "no.json");
    assert_api_fails(cleave_plan_open(NULL, &again), CLEAVE_USAGE, "NULL");
}

static void test_plan_options(void **state)
{
    (void)state;
    cleave_model *model = open_small();
    cleave_plan *plan;
    const int replicas[] = {3, 1};
    struct cleave_plan_options o = cleave_plan_defaults();
    o.micro_batches = 2;
    o.replicas = replicas;
    o.n_stages = 2;
    assert_api_ok(cleave_plan_make(model, "1f1b", 4, &o, &plan));
    assert_int_equal(cleave_plan_get_info(plan)->stages, 2);
    assert_int_equal(cleave_plan_get_info(plan)->micro_batches, 2);
    cleave_plan_destroy(plan);
    plan = make_plan(model, "pipedream", 2);
    assert_true(cleave_plan_get_info(plan)->stale);
    cleave_plan_destroy(plan);
    o = cleave_plan_defaults();
    o.sync = "tree";
    assert_api_ok(cleave_plan_make(model, "data", 4, &o, &plan));
    assert_non_null(strstr(cleave_plan_get_info(plan)->text, "\"tree\""));
    cleave_plan_destroy(plan);
    /* A program of an older header knows fewer members: what it does not know is not read. */
    o.size = offsetof(struct cleave_plan_options, sync);
    o.sync = (const char *)1;
    assert_api_ok(cleave_plan_make(model, "data", 4, &o, &plan));
    assert_non_null(strstr(cleave_plan_get_info(plan)->text, "\"ring\""));
    cleave_plan_destroy(plan);
    cleave_model_destroy(model);
}

static void test_plan_misuse(void **state)
{
    (void)state;
    cleave_model *model = open_small(), *other;
    cleave_plan *plan;
    struct cleave_plan_options o;
    memset(&o, 0, sizeof o);
    assert_api_fails(cleave_plan_make(model, "date", 2, NULL, &plan), CLEAVE_USAGE, "data");
    assert_null(plan);
    assert_api_fails(cleave_plan_make(model, "data", 0, NULL, &plan), CLEAVE_USAGE, "workers is 0");
    assert_api_fails(cleave_plan_make(model, "layers", 999, NULL, &plan), CLEAVE_USAGE, "");
    assert_api_fails(cleave_plan_make(model, "data", 2, &o, &plan), CLEAVE_USAGE,
                     "cleave_plan_defaults()");
    o = cleave_plan_defaults();
    o.sync = "rings";
    assert_api_fails(cleave_plan_make(model, "data", 2, &o, &plan), CLEAVE_USAGE, "hierarchical");
    o = cleave_plan_defaults();
    o.window = -1;
    assert_api_fails(cleave_plan_make(model, "data", 2, &o, &plan), CLEAVE_USAGE, "window is -1");
    assert_api_fails(cleave_plan_make(NULL, "data", 2, NULL, &plan), CLEAVE_USAGE, "model is NULL");
    assert_api_fails(cleave_plan_load(model, "no.json", &plan), CLEAVE_FAILED, "no.json");
    assert_api_fails(cleave_plan_parse(model, "{", &plan), CLEAVE_FAILED, "the plan:1");
    assert_api_fails(cleave_plan_check(NULL), CLEAVE_USAGE, "plan is NULL");
    assert_null(cleave_plan_get_info(NULL));
    cleave_plan_destroy(NULL);
    /* a plan of another network */
    assert_api_ok(cleave_model_open("alexnet", "imagenet", 4, &other));
    cleave_plan *foreign = make_plan(other, "owt", 2);
    assert_api_fails(cleave_plan_parse(model, cleave_plan_get_info(foreign)->text, &plan),
                     CLEAVE_USAGE, "alexnet");
    cleave_plan_destroy(foreign);
    cleave_model_destroy(other);
    cleave_model_destroy(model);
}

/* ---- predictions ---- */

static void test_predict(void **state)
{
    (void)state;
    cleave_model *model;
    cleave_machine *machine;
    cleave_prediction *p;
    assert_api_ok(cleave_model_open("alexnet", "imagenet", 128, &model));
    assert_api_ok(cleave_machine_open("1x4:p100,intra=15GB/s", &machine));
    cleave_plan *plan = make_plan(model, "data", 4);
    cleave_model_destroy(model);
    assert_api_ok(cleave_predict(plan, machine, NULL, &p));
    cleave_plan_destroy(plan);
    cleave_machine_destroy(machine);
    const struct cleave_prediction_info *i = cleave_prediction_get_info(p);
    assert_int_equal(i->workers, 4);
    assert_true(i->step_s > i->free_step_s && i->free_step_s > 0 && i->error_s > 0);
    assert_near(i->images_per_s, 128 / i->step_s, 1e-9);
    assert_near(i->epoch_s, i->step_s * 10010, 1e-9); /* 1281167 images */
    assert_true(i->fits && i->limit_bytes > 0 && i->measured_share == 0);
    int64_t sent = 0, most = 0;
    for (int k = 0; k < 4; k++) {
        const struct cleave_worker *w = cleave_prediction_get_worker(p, k);
        sent += w->sent_bytes;
        most = w->memory_bytes > most ? w->memory_bytes : most;
        assert_int_equal(w->memory_bytes, w->weights_bytes + w->weight_versions_bytes +
                                              w->optimizer_bytes + w->gradients_bytes +
                                              w->activations_bytes + w->transfer_bytes +
                                              w->workspace_bytes);
        assert_true(w->weights_bytes >= 61100840 * 4);
    }
    assert_int_equal(sent, i->bytes_moved);
    assert_int_equal(most, i->memory_bytes);
    assert_null(cleave_prediction_get_worker(p, 4));
    cleave_prediction_destroy(p);
}

static int64_t state_bytes(const cleave_plan *plan, const cleave_machine *machine,
                           const struct cleave_predict_options *o)
{
    cleave_prediction *p;
    assert_api_ok(cleave_predict(plan, machine, o, &p));
    int64_t n_bytes = cleave_prediction_get_worker(p, 0)->optimizer_bytes;
    cleave_prediction_destroy(p);
    return n_bytes;
}

static void test_predict_optimizers(void **state)
{
    (void)state;
    cleave_model *model = open_small();
    cleave_machine *machine;
    struct cleave_predict_options o = cleave_predict_defaults();
    assert_api_ok(cleave_machine_open("1x2:p100", &machine));
    cleave_plan *plan = make_plan(model, "data", 2);
    int64_t usual = state_bytes(plan, machine, NULL);
    assert_true(usual > 0);
    o.optimizer = "adamw";
    assert_int_equal(state_bytes(plan, machine, &o), 2 * usual);
    o.optimizer = "sgd";
    assert_int_equal(state_bytes(plan, machine, &o), usual);
    o.momentum = 0;
    assert_int_equal(state_bytes(plan, machine, &o), 0);
    cleave_plan_destroy(plan);
    cleave_machine_destroy(machine);
    cleave_model_destroy(model);
}

static void test_predict_misuse(void **state)
{
    (void)state;
    cleave_model *model = open_small();
    cleave_machine *machine;
    cleave_prediction *p;
    struct cleave_predict_options o = cleave_predict_defaults();
    assert_api_ok(cleave_machine_open("1x2:p100", &machine));
    cleave_plan *plan = make_plan(model, "data", 3), *two = make_plan(model, "data", 2);
    assert_api_fails(cleave_predict(plan, machine, NULL, &p), CLEAVE_USAGE, "2 devices");
    assert_null(p);
    assert_api_fails(cleave_predict(NULL, machine, NULL, &p), CLEAVE_USAGE, "plan is NULL");
    assert_api_fails(cleave_predict(two, NULL, NULL, &p), CLEAVE_USAGE, "machine is NULL");
    assert_api_fails(cleave_predict(two, machine, NULL, NULL), CLEAVE_USAGE, "out is NULL");
    o.threads = -1;
    assert_api_fails(cleave_predict(two, machine, &o, &p), CLEAVE_USAGE, "threads is -1");
    o = cleave_predict_defaults();
    o.calibrate_images_per_s = NAN;
    assert_api_fails(cleave_predict(two, machine, &o, &p), CLEAVE_USAGE, "calibrate_images_per_s");
    o = cleave_predict_defaults();
    o.optimizer = "adam";
    assert_api_fails(cleave_predict(two, machine, &o, &p), CLEAVE_USAGE,
                     "optimizer 'adam' is none");
    o = cleave_predict_defaults();
    o.momentum = 2;
    assert_api_fails(cleave_predict(two, machine, &o, &p), CLEAVE_USAGE, "momentum is 2");
    assert_null(cleave_prediction_get_info(NULL));
    cleave_prediction_destroy(NULL);
    cleave_plan_destroy(plan);
    cleave_plan_destroy(two);
    cleave_machine_destroy(machine);
    cleave_model_destroy(model);
}

struct counter {
    int calls, stop_at;
};

static int count_progress(void *user, double share, const char *what)
{
    struct counter *c = user;
    assert_true(share >= 0 && share <= 1 && what && *what);
    return ++c->calls == c->stop_at;
}

struct caller {
    pthread_t thread;
    int calls, elsewhere;
};

static int note_thread(void *user, double share, const char *what)
{
    struct caller *c = user;
    (void)share;
    (void)what;
    c->calls++;
    c->elsewhere += !pthread_equal(c->thread, pthread_self());
    return 0;
}

/* On this host it measures, once, into the file it is told. */
static void test_predict_here(void **state)
{
    (void)state;
    cleave_model *model = open_small();
    cleave_machine *machine;
    cleave_prediction *p;
    char path[PATH_MAX];
    struct counter counter = {.stop_at = 1};
    struct cleave_predict_options o = cleave_predict_defaults();
    o.profile = test_path(path, "profile.db");
    o.threads = 1;
    o.on_progress = count_progress;
    o.user = &counter;
    assert_api_ok(cleave_machine_open("local", &machine));
    cleave_plan *plan = make_plan(model, "serial", 1);
    assert_api_fails(cleave_predict(plan, machine, &o, &p), CLEAVE_STOPPED,
                     "stopped by the caller");
    counter = (struct counter){0};
    assert_api_ok(cleave_predict(plan, machine, &o, &p));
    assert_true(counter.calls > 0);
    assert_true(cleave_prediction_get_info(p)->measured_share > 0.9);
    double step_s = cleave_prediction_get_info(p)->step_s;
    cleave_prediction_destroy(p);
    o.measure = false; /* all of it is in the profile now */
    assert_api_ok(cleave_predict(plan, machine, &o, &p));
    assert_true(cleave_prediction_get_info(p)->measured_share > 0.9);
    assert_near(cleave_prediction_get_info(p)->step_s / step_s, 1, 0.3);
    cleave_prediction_destroy(p);
    o.profile = "/dev/null/all.db";
    assert_api_fails(cleave_predict(plan, machine, &o, &p), CLEAVE_FAILED, "/dev/null");
    cleave_plan_destroy(plan);
    /* With two workers links are measured as well, by other threads. */
    struct caller caller = {.thread = pthread_self()};
    plan = make_plan(model, "data", 2);
    o.profile = test_path(path, "links.db");
    o.measure = true;
    o.on_progress = note_thread;
    o.user = &caller;
    assert_api_ok(cleave_predict(plan, machine, &o, &p));
    assert_true(caller.calls > 0);
    assert_int_equal(caller.elsewhere, 0);
    cleave_prediction_destroy(p);
    cleave_plan_destroy(plan);
    cleave_machine_destroy(machine);
    cleave_model_destroy(model);
}

/* ---- search ---- */

static void test_search(void **state)
{
    (void)state;
    cleave_model *model;
    cleave_machine *machine;
    cleave_search *s;
    cleave_plan *plan;
    cleave_prediction *p;
    assert_api_ok(cleave_model_open("alexnet", "imagenet", 128, &model));
    assert_api_ok(cleave_machine_open("1x4:p100,intra=15GB/s", &machine));
    assert_api_ok(cleave_search_run(model, machine, NULL, &s));
    const struct cleave_search_info *i = cleave_search_get_info(s);
    assert_true(i->best >= 0 && i->data >= 0 && i->complete && i->n_parts > 0);
    const struct cleave_candidate *best = cleave_search_get_candidate(s, i->best);
    assert_true(best->predicted && best->fits && !best->stale);
    assert_true(best->step_s <= cleave_search_get_candidate(s, i->data)->step_s);
    int layers = 0;
    for (int k = 0; k < i->n_parts; k++)
        layers += cleave_search_get_part(s, k)->n_layers;
    assert_int_equal(layers, cleave_model_get_info(model)->n_layers);
    assert_string_equal(cleave_search_get_part(s, 0)->first, "features.0");
    assert_null(cleave_search_get_part(s, i->n_parts));
    assert_null(cleave_search_get_candidate(s, i->n_candidates));
    assert_api_fails(cleave_search_get_plan(s, i->n_candidates, &plan), CLEAVE_USAGE, "index");
    assert_api_ok(cleave_search_get_plan(s, i->best, &plan));
    double step_s = best->step_s;
    cleave_model_destroy(model);
    cleave_search_destroy(s);
    assert_api_ok(cleave_plan_check(plan));
    assert_api_ok(cleave_predict(plan, machine, NULL, &p));
    assert_near(cleave_prediction_get_info(p)->step_s, step_s, 1e-6);
    cleave_prediction_destroy(p);
    cleave_machine_destroy(machine);
    cleave_plan_destroy(plan);
}

/* On this host the best few are tried, too. */
static void test_search_here(void **state)
{
    (void)state;
    cleave_model *model = open_small();
    cleave_machine *machine;
    cleave_search *s;
    char path[PATH_MAX];
    struct cleave_predict_options predict = cleave_predict_defaults();
    struct cleave_search_options o = cleave_search_defaults();
    predict.profile = test_path(path, "profile.db");
    predict.threads = 1;
    o.predict = &predict;
    o.workers = 2;
    o.named_only = true;
    o.limit_s = 20;
    o.try_s = 0.2;
    assert_api_ok(cleave_machine_open("local", &machine));
    assert_api_ok(cleave_search_run(model, machine, &o, &s));
    const struct cleave_search_info *i = cleave_search_get_info(s);
    const struct cleave_candidate *best = cleave_search_get_candidate(s, i->best);
    assert_true(best->measured_share > 0.5);
    int tried = 0;
    for (int k = 0; k < i->n_candidates; k++)
        tried += cleave_search_get_candidate(s, k)->tried_s > 0;
    assert_true(tried > 1 && best->tried_s > 0); /* one worker and plain data at the least */
    cleave_search_destroy(s);
    o.try_s = -1;
    assert_api_fails(cleave_search_run(model, machine, &o, &s), CLEAVE_USAGE, "try_s is -1");
    cleave_machine_destroy(machine);
    cleave_model_destroy(model);
}

static void test_search_ends(void **state)
{
    (void)state;
    cleave_model *model = open_small(), *large;
    cleave_machine *machine, *small;
    cleave_search *s;
    struct counter counter = {.stop_at = 2};
    struct cleave_search_options o = cleave_search_defaults();
    struct cleave_predict_options predict = cleave_predict_defaults();
    assert_api_ok(cleave_machine_open("1x4:p100", &machine));
    predict.on_progress = count_progress;
    predict.user = &counter;
    o.predict = &predict;
    assert_api_ok(cleave_search_run(model, machine, &o, &s));
    assert_int_equal(counter.calls, 2);
    assert_false(cleave_search_get_info(s)->complete);
    assert_true(cleave_search_get_info(s)->best >= 0);
    cleave_search_destroy(s);
    o = cleave_search_defaults();
    o.workers = 5;
    assert_api_fails(cleave_search_run(model, machine, &o, &s), CLEAVE_USAGE, "workers is 5");
    assert_null(s);
    assert_api_fails(cleave_search_run(NULL, machine, &o, &s), CLEAVE_USAGE, "model is NULL");
    memset(&predict, 0, sizeof predict);
    o = cleave_search_defaults();
    o.predict = &predict;
    assert_api_fails(cleave_search_run(model, machine, &o, &s), CLEAVE_USAGE,
                     "cleave_predict_defaults()");
    assert_api_ok(cleave_model_open("alexnet", "imagenet", 64, &large));
    assert_api_ok(cleave_machine_open("1x1:p100,memory=100MB", &small));
    assert_api_fails(cleave_search_run(large, small, NULL, &s), CLEAVE_NO_FIT, "smaller batch");
    cleave_machine_destroy(small);
    cleave_machine_destroy(machine);
    cleave_model_destroy(large);
    cleave_model_destroy(model);
    cleave_search_destroy(NULL);
}

/* ---- groups of weights ---- */

static void test_groups_come_before_plans(void **state)
{
    (void)state;
    cleave_model *model = open_small();
    cleave_plan *plan;
    assert_api_ok(cleave_model_freeze(model, "conv1.*"));
    assert_api_ok(cleave_model_skip_decay(model, "*.bias"));
    assert_api_ok(cleave_model_scale_rates(model, "fc*=2"));
    assert_api_fails(cleave_model_freeze(model, "fc9.*"), CLEAVE_USAGE, "fc9.*");
    assert_api_fails(cleave_model_scale_rates(model, "fc1.*"), CLEAVE_USAGE, "GLOB=FACTOR");
    assert_api_fails(cleave_model_skip_decay(NULL, "*"), CLEAVE_USAGE, "model is NULL");
    assert_api_fails(cleave_model_freeze(model, NULL), CLEAVE_USAGE, "globs is NULL");
    assert_api_ok(cleave_plan_make(model, "data", 2, NULL, &plan));
    assert_api_fails(cleave_model_freeze(model, "fc*"), CLEAVE_USAGE, "a plan has been made");
    cleave_plan_destroy(plan);
    cleave_model_destroy(model);
}

/* ---- threads and warnings ---- */

static void *fail_elsewhere(void *user)
{
    cleave_model *model;
    (void)user;
    assert_api_fails(cleave_model_open("nonesuch", "x", 1, &model), CLEAVE_USAGE, "nonesuch");
    return NULL;
}

static void test_errors_are_per_thread(void **state)
{
    (void)state;
    cleave_model *model;
    pthread_t thread;
    assert_int_equal(cleave_model_open(NULL, "x", 1, &model), CLEAVE_USAGE);
    assert_int_equal(pthread_create(&thread, NULL, fail_elsewhere, NULL), 0);
    (void)pthread_join(thread, NULL);
    assert_non_null(strstr(cleave_error_message(), "network is NULL"));
    model = open_small(); /* success forgets it */
    assert_string_equal(cleave_error_message(), "");
    cleave_model_destroy(model);
}

struct shared {
    const cleave_model *model;
    const cleave_machine *machine;
    const cleave_plan *plan;
    double step_s;
};

static void *use_shared(void *user)
{
    struct shared *s = user;
    cleave_plan *plan;
    cleave_prediction *p;
    assert_api_ok(cleave_plan_make(s->model, "owt", 2, NULL, &plan));
    assert_api_ok(cleave_predict(s->plan, s->machine, NULL, &p));
    s->step_s = cleave_prediction_get_info(p)->step_s;
    cleave_plan_destroy(plan);
    cleave_prediction_destroy(p);
    return NULL;
}

static void test_threads_share_handles(void **state)
{
    (void)state;
    enum { N = 4 };
    cleave_model *model = open_small();
    cleave_machine *machine;
    cleave_plan *plan = make_plan(model, "data", 2);
    pthread_t threads[N];
    struct shared shared[N];
    assert_api_ok(cleave_machine_open("1x2:p100", &machine));
    for (int i = 0; i < N; i++) {
        shared[i] = (struct shared){model, machine, plan, 0};
        assert_int_equal(pthread_create(&threads[i], NULL, use_shared, &shared[i]), 0);
    }
    for (int i = 0; i < N; i++)
        (void)pthread_join(threads[i], NULL);
    for (int i = 0; i < N; i++)
        assert_true(shared[i].step_s > 0 && shared[i].step_s == shared[0].step_s);
    cleave_machine_destroy(machine);
    cleave_model_destroy(model);
    cleave_plan_destroy(plan);
}

static void keep_line(void *user, const char *line)
{
    (void)snprintf(user, 256, "%s", line);
}

static void test_log(void **state)
{
    (void)state;
    char line[256] = "";
    cleave_model *model;
    cleave_trainer *t;
    assert_api_ok(cleave_model_open("lenet5", small_data, 1000, &model));
    cleave_plan *plan = make_plan(model, "serial", 1);
    cleave_set_log(keep_line, line);
    assert_api_ok(cleave_trainer_create(plan, NULL, &t));
    assert_non_null(strstr(line, "only 100 samples"));
    cleave_set_log(NULL, NULL);
    cleave_trainer_destroy(t);
    cleave_plan_destroy(plan);
    cleave_model_destroy(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_version_and_names),
        cmocka_unit_test(test_model),
        cmocka_unit_test(test_model_misuse),
        cmocka_unit_test(test_machine),
        cmocka_unit_test(test_machine_misuse),
        cmocka_unit_test(test_plan),
        cmocka_unit_test(test_plan_file),
        cmocka_unit_test(test_plan_options),
        cmocka_unit_test(test_plan_misuse),
        cmocka_unit_test(test_predict),
        cmocka_unit_test(test_predict_optimizers),
        cmocka_unit_test(test_predict_misuse),
        cmocka_unit_test(test_predict_here),
        cmocka_unit_test(test_search),
        cmocka_unit_test(test_search_here),
        cmocka_unit_test(test_search_ends),
        cmocka_unit_test(test_groups_come_before_plans),
        cmocka_unit_test(test_errors_are_per_thread),
        cmocka_unit_test(test_threads_share_handles),
        cmocka_unit_test(test_log),
    };
    return test_run(tests);
}
