#include "machines.h"

struct machine *parse(const char *text)
{
    struct machine *m = NULL;
    assert_ok(machine_parse(text, &m));
    assert_ok(machine_check(m));
    return m;
}

char *write_text(const struct machine *m)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    assert_non_null(f);
    assert_ok(machine_write(m, f));
    assert_int_equal(fclose(f), 0);
    return text;
}

void assert_same_parts(const struct machine *a, const struct machine *b)
{
    for (int i = 0; i < a->n_devices; i++) {
        assert_int_equal(a->devices[i].kind, b->devices[i].kind);
        assert_int_equal(a->devices[i].node, b->devices[i].node);
        assert_int_equal(a->device_out[i], b->device_out[i]);
        assert_int_equal(a->device_in[i], b->device_in[i]);
    }
    for (int i = 0; i < a->n_nodes; i++) {
        assert_string_equal(a->nodes[i].name, b->nodes[i].name);
        assert_string_equal(a->nodes[i].about, b->nodes[i].about);
        assert_int_equal(a->nodes[i].first_device, b->nodes[i].first_device);
        assert_int_equal(a->nodes[i].n_devices, b->nodes[i].n_devices);
        assert_true(a->nodes[i].memory_bytes == b->nodes[i].memory_bytes);
        assert_int_equal(a->nodes[i].cores, b->nodes[i].cores);
        assert_int_equal(a->nodes[i].own_cores, b->nodes[i].own_cores);
        assert_string_equal(a->nodes[i].host, b->nodes[i].host);
        assert_int_equal(a->node_out[i], b->node_out[i]);
        assert_int_equal(a->node_in[i], b->node_in[i]);
    }
    for (int i = 0; i < a->n_links; i++) {
        assert_string_equal(a->links[i].name, b->links[i].name);
        assert_true(a->links[i].bytes_per_s == b->links[i].bytes_per_s);
        assert_true(a->links[i].latency_s == b->links[i].latency_s);
        assert_true(a->links[i].burst_bytes == b->links[i].burst_bytes);
    }
    for (int i = 0; i < a->n_pairs; i++)
        assert_memory_equal(&a->pairs[i], &b->pairs[i], sizeof a->pairs[i]);
}

void assert_same_kinds(const struct machine *a, const struct machine *b)
{
    for (int i = 0; i < a->n_kinds; i++) {
        const struct machine_kind *x = &a->kinds[i], *y = &b->kinds[i];
        assert_string_equal(x->name, y->name);
        assert_string_equal(x->about, y->about);
        assert_string_equal(x->note, y->note);
        assert_int_equal(x->class, y->class);
        assert_int_equal(x->cores, y->cores);
        assert_true(x->memory_bytes == y->memory_bytes && x->launch_s == y->launch_s);
        for (int k = 0; k < ARITHMETIC_COUNT; k++) {
            assert_true(x->rates[k].peak == y->rates[k].peak);
            assert_true(x->rates[k].reached == y->rates[k].reached);
        }
        assert_true(x->peak_bytes_per_s == y->peak_bytes_per_s);
        assert_true(x->reached_bytes_per_s == y->reached_bytes_per_s);
        assert_true(x->link_bytes_per_s == y->link_bytes_per_s);
        assert_true(x->link_latency_s == y->link_latency_s);
    }
}

void assert_same(const struct machine *a, const struct machine *b)
{
    assert_string_equal(a->name, b->name);
    assert_string_equal(a->source, b->source);
    assert_int_equal(a->n_kinds, b->n_kinds);
    assert_int_equal(a->n_nodes, b->n_nodes);
    assert_int_equal(a->n_devices, b->n_devices);
    assert_int_equal(a->n_links, b->n_links);
    assert_int_equal(a->n_pairs, b->n_pairs);
    assert_int_equal(a->n_curves, b->n_curves);
    assert_true(a->wake_s == b->wake_s && a->deep_wake_s == b->deep_wake_s);
    assert_true(a->ring_s == b->ring_s && a->step_s == b->step_s);
    assert_true(a->wait_share == b->wait_share && a->far_byte_s == b->far_byte_s);
    assert_same_kinds(a, b);
    assert_same_parts(a, b);
    for (int i = 0; i < a->n_curves; i++) {
        const struct machine_curve *x = &a->curves[i], *y = &b->curves[i];
        assert_string_equal(x->transport, y->transport);
        assert_int_equal(x->reduces, y->reduces);
        assert_int_equal(x->method, y->method);
        assert_int_equal(x->members, y->members);
        assert_int_equal(x->nodes, y->nodes);
        assert_int_equal(x->n_points, y->n_points);
        assert_memory_equal(x->points, y->points, (size_t)x->n_points * sizeof *x->points);
    }
}

void assert_round_trip(const struct machine *m)
{
    char *text = write_text(m);
    struct machine *back = NULL;
    assert_ok(machine_parse_json(text, strlen(text), "back", &back));
    assert_same(m, back);
    machine_destroy(back);
    free(text);
}

struct machine *parse_json(const char *text)
{
    struct machine *m = NULL;
    assert_ok(machine_parse_json(text, strlen(text), "m.json", &m));
    return m;
}
