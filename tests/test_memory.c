/* A run takes the memory stated before it: the slabs, and a stated constant. Each case runs in
 * a process of its own, because a peak never goes down again. */
#include "session.h"

#include <malloc.h>
#include <sys/wait.h>

/* Besides the slabs, at most: oneDNN's generated code and primitives, graph and program, and up to
 * a huge page behind each slab. Measured with two threads: 5 to 12 MB. */
static const double constant_bytes = 12e6;

static const struct test_case {
    const char *name, *model;
    struct graph_variant variant;
} cases[] = {
    {"vgg11 on 3x32x32, batch 64", "vgg11", {64, 3, 32, 32, 10, true, -1}},
    {"resnet18 on 3x224x224, batch 8", "resnet18", {8, 3, 224, 224, 1000, false, -1}},
    {"mobilenetv2 on 3x32x32, batch 32", "mobilenetv2", {32, 3, 32, 32, 10, true, -1}},
};
enum { N_CASES = sizeof cases / sizeof cases[0] };

/* A field of /proc/self/status in bytes: "VmRSS", "VmHWM" (the peak of VmRSS). */
static double status_bytes(const char *field)
{
    char line[256];
    double kilobytes = -1;
    FILE *f = fopen("/proc/self/status", "r");
    assert_true(f);
    while (kilobytes < 0 && fgets(line, sizeof line, f))
        if (strncmp(line, field, strlen(field)) == 0)
            kilobytes = strtod(line + strlen(field) + 1, NULL);
    (void)fclose(f);
    assert_true(kilobytes >= 0);
    return kilobytes * 1024;
}

static void run_steps(struct session *s, const struct fixture_batch *batch)
{
    const struct update_rule rule = {.kind = UPDATE_SGD, .learning_rate = 1e-4, .momentum = 0.9};
    for (uint32_t i = 0; i < 2; i++) {
        (void)session_step(s, 0, batch, &rule, i);
        (void)session_step(s, 1, batch, NULL, i);
    }
}

/* Loads what any run needs once: the libraries' pages, the threads. */
static void touch_library(void)
{
    struct session s;
    const struct graph_variant variant = {2, 1, 28, 28, 10, true, -1};
    session_open(&s, "cpu", PRECISION_FLOAT);
    session_add(&s, "lenet5", &variant, true, 1);
    session_add(&s, "lenet5", &variant, false, 0);
    session_start(&s);
    struct fixture_batch batch = fixture_make_batch(s.graph[0], 0);
    run_steps(&s, &batch);
    fixture_free_batch(&batch);
    session_close(&s);
}

static int measure(const struct test_case *c)
{
    struct session s;
    touch_library();
    struct graph *images;
    assert_ok(network_build("mlp", &c->variant, &images)); /* any network: same images */
    struct fixture_batch batch = fixture_make_batch(images, 0);
    graph_destroy(images);
    (void)malloc_trim(0);
    double before = status_bytes("VmRSS");
    session_open(&s, "cpu", PRECISION_FLOAT);
    session_add(&s, c->model, &c->variant, true, 1);
    session_add(&s, c->model, &c->variant, false, 0);
    session_start(&s);
    double slabs = (double)executor_memory_bytes(s.executor);
    run_steps(&s, &batch); /* zero weights do as well as any */
    double taken = status_bytes("VmHWM") - before, said = slabs + constant_bytes;
    bool near = 0.95 * slabs <= taken && taken <= 1.05 * said;
    if (!near)
        print_error("slabs %.1f MB, taken %.1f MB\n", slabs * 1e-6, taken * 1e-6);
    fixture_free_batch(&batch);
    session_close(&s);
    return near ? 0 : 1;
}

static void test_peak(void **state)
{
    const struct test_case *c = *state;
    if (TEST_UNDER_SANITIZER)
        skip_because("the sanitizer's own memory is counted, too");
    if (!session_has_backend("cpu"))
        skip_because("this build has no backend 'cpu'");
    (void)fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(measure(c));
    int status;
    assert_true(waitpid(child, &status, 0) == child);
    assert_that(WIFEXITED(status) && WEXITSTATUS(status) == 0,
                "%s: takes other than its slabs and %.0f MB, within 5 %%", c->name,
                constant_bytes * 1e-6);
}

int main(void)
{
    struct CMUnitTest tests[N_CASES];
    for (int i = 0; i < N_CASES; i++)
        tests[i] = (struct CMUnitTest){.name = cases[i].name,
                                       .test_func = test_peak,
                                       .initial_state = (void *)(uintptr_t)&cases[i]};
    return test_run(tests);
}
