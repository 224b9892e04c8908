#include "fuzz.h"

#include "profile/profile_parts.h"

static enum status parse(const char *text, size_t n_bytes, struct store_content *c)
{
    FILE *in = fmemopen((void *)text, n_bytes, "r");
    assert(in);
    enum status st = profile_parse_text(in, "input", c);
    (void)fclose(in);
    return st;
}

static char *print(const struct store_content *c, size_t *n_bytes)
{
    char *text = NULL;
    FILE *out = open_memstream(&text, n_bytes);
    assert(out);
    enum status st = profile_print_text(c, out);
    assert(st == STATUS_OK);
    (void)fclose(out);
    return text;
}

/* Accepted content comes back from its own text. */
static void use(const struct store_content *c)
{
    size_t n, n_again;
    char *text = print(c, &n);
    struct store_content again;
    enum status st = store_content_create(&again);
    assert(st == STATUS_OK);
    st = parse(text, n, &again);
    assert(st == STATUS_OK && again.n_rows == c->n_rows && again.n_texts == c->n_texts);
    char *same = print(&again, &n_again);
    assert(n == n_again && !memcmp(text, same, n));
    for (int64_t i = 0; i < c->n_rows; i++)
        assert(!store_check_row(&c->rows[i]));
    store_content_destroy(&again);
    free(same);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
    struct store_content c;
    enum status st = store_content_create(&c);
    assert(st == STATUS_OK);
    if (parse((const char *)bytes, n_bytes, &c) == STATUS_OK)
        use(&c);
    else
        assert(!strncmp(status_message(), "input:", 6));
    status_clear();
    store_content_destroy(&c);
    return 0;
}

int fuzz_seeds(struct file_bytes seeds[FUZZ_SEEDS_MAX])
{
    seeds[0] = fuzz_text("cleave profile 1\n");
    seeds[1] = fuzz_text("cleave profile 1\n# cost\tdevice\n\n"
                         "cost\tcpu\t2\t1\tconv2d [8,3,8,8]\tconv2d\t1e9\t4096\t0.0012\t0.01\t25\t"
                         "2025-01-31T12:00:00Z\n"
                         "cost\tcpu\t2\t4\tconv2d [8,3,8,8]\tconv2d\t0\t0\t1e-300\t0\t1\t"
                         "2025-01-31T12:00:00Z\n");
    seeds[2] = fuzz_text("cleave profile 1\r\ntext\tlinks\t{\\n\\t\\\\\\r}\r\ntext\t\t\n");
    return 3;
}
