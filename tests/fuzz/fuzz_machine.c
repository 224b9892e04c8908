#include "fuzz.h"

#include "machine/machine.h"

/* An accepted machine passes the check, and comes back from its own text. */
static void use(const struct machine *m)
{
    char *text = NULL;
    size_t size = 0;
    struct machine *back = NULL;
    int hops[MACHINE_MAX_HOPS];
    FILE *f = open_memstream(&text, &size);
    assert(f);
    enum status st = machine_check(m);
    assert(st == STATUS_OK);
    st = machine_write(m, f);
    assert(st == STATUS_OK);
    (void)fclose(f);
    st = machine_parse_json(text, size, "again", &back);
    assert(st == STATUS_OK);
    assert(back->n_devices == m->n_devices && back->n_links == m->n_links);
    assert(back->n_pairs == m->n_pairs && back->n_curves == m->n_curves);
    (void)machine_route(m, 0, m->n_devices - 1, hops);
    (void)machine_device_memory(m, 0);
    for (int i = 0; i < m->n_curves; i++)
        (void)machine_curve_at(&m->curves[i], 12345);
    machine_destroy(back);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
    struct machine *m = NULL;
    if (machine_parse_json((const char *)bytes, n_bytes, "input", &m) == STATUS_OK)
        use(m);
    else
        assert(!strncmp(status_message(), "input:", 6));
    status_clear();
    machine_destroy(m);
    return 0;
}

int fuzz_seeds(struct file_bytes seeds[FUZZ_SEEDS_MAX])
{
    seeds[0] =
        fuzz_text("{\"cleave_machine\": 1, \"name\": \"a\", \"intra\": \"15GB/s\", \"inter\": 4e9,"
                  "\"latency\": \"5us\", \"nodes\": [{\"count\": 2, \"memory_bytes\": \"8GiB\","
                  "\"devices\": [{\"kind\": \"p100\", \"count\": 3}, \"cpu\"], \"pairs\":"
                  "[{\"between\": [0, 1], \"bytes_per_s\": \"50GB/s\"}]}]}");
    seeds[1] = fuzz_text(
        "{\"cleave_machine\": 1, \"kinds\": [{\"name\": \"x\", \"like\": \"k40\","
        "\"memory_bytes\": 99, \"launch_s\": 1e-6}], \"links\": [{\"name\": \"l\","
        "\"bytes_per_s\": 1e9, \"latency_s\": 0}], \"nodes\": [{\"name\": \"n\", \"out\": \"l\","
        "\"in\": null, \"devices\": [{\"kind\": \"x\", \"out\": \"l\", \"in\": \"l\"}, \"k40\"],"
        "\"pairs\": [{\"from\": 1, \"to\": 0, \"link\": \"l\"}]}],"
        "\"wake_s\": 1e-5, \"step_s\": 0, \"curves\": [{\"transport\": \"threads\","
        "\"operation\": \"ring\", \"members\": 4, \"nodes\": 2, \"points\":"
        "[[1024, 1e-6, 1e-7], [2048, 2e-6, 0]]}]}");
    return 2;
}
