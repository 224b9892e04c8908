/* Runs a fuzz target on mutated inputs, the same ones every time.
 *
 *     fuzz_idx RUNS [FIRST]      runs FIRST .. FIRST + RUNS - 1 (FIRST defaults to 0)
 *     fuzz_idx FILE...           these files instead
 *
 * Run r is a function of r alone: a crash names its number, and `fuzz_idx 1 r` repeats it.
 */
#include "fuzz.h"

#include "base/random.h"

#include <signal.h>
#include <unistd.h>

enum { INPUT_BYTES_MAX = 1 << 16, MUTATIONS_MAX = 6 };

static volatile long long current_run;

/* Present in sanitized builds only. */
extern void __sanitizer_set_death_callback(void (*callback)(void)) __attribute__((weak));

static void say_where(void)
{
    char line[64];
    int n = snprintf(line, sizeof line, "fuzz: in run %lld\n", current_run);
    ssize_t written = write(STDERR_FILENO, line, (size_t)n);
    (void)written;
}

static void on_signal(int number)
{
    say_where();
    (void)signal(number, SIG_DFL);
    (void)raise(number);
}

struct dice {
    struct random_key key;
    uint64_t next;
};

static uint32_t roll(struct dice *d, size_t sides)
{
    return (uint32_t)(random_word(d->key, 0, d->next++) % sides);
}

struct input {
    uint8_t bytes[INPUT_BYTES_MAX];
    size_t n;
};

static void put_number(struct dice *d, struct input *in)
{
    static const uint32_t telling[] = {0,      1,      0x7f,    0x80,       0xff,       0x7fff,
                                       0x8000, 0xffff, 0x10000, 0x7fffffff, 0x80000000, 0xffffffff};
    uint32_t value = telling[roll(d, 12)];
    size_t width = (size_t)1 << roll(d, 3), at = roll(d, in->n);
    bool big_endian = roll(d, 2);
    for (size_t i = 0; i < width && at + i < in->n; i++)
        in->bytes[at + i] = (uint8_t)(value >> 8 * (big_endian ? width - 1 - i : i));
}

static void erase(struct dice *d, struct input *in)
{
    size_t at = roll(d, in->n), n = 1 + roll(d, in->n - at);
    if (roll(d, 2))
        n = n < 8 ? n : 1 + n % 8;
    memmove(in->bytes + at, in->bytes + at + n, in->n - at - n);
    in->n -= n;
}

static void repeat(struct dice *d, struct input *in)
{
    size_t at = roll(d, in->n), n = 1 + roll(d, in->n - at);
    if (in->n + n > INPUT_BYTES_MAX)
        return;
    memmove(in->bytes + at + n, in->bytes + at, in->n - at);
    in->n += n;
}

static void splice(struct dice *d, struct input *in, const struct file_bytes *other)
{
    size_t from = roll(d, other->n), n = 1 + roll(d, other->n - from), at = roll(d, in->n);
    n = n < INPUT_BYTES_MAX - at ? n : INPUT_BYTES_MAX - at;
    memcpy(in->bytes + at, other->bytes + from, n);
    in->n = at + n > in->n ? at + n : in->n;
}

static void mutate(struct dice *d, struct input *in, const struct file_bytes *other)
{
    if (in->n == 0)
        return;
    size_t at = roll(d, in->n);
    switch (roll(d, 8)) {
    case 0:
    case 1:
        in->bytes[at] ^= (uint8_t)(1u << roll(d, 8));
        break;
    case 2:
        in->bytes[at] = (uint8_t)roll(d, 256);
        break;
    case 3:
    case 4:
        put_number(d, in);
        break;
    case 5:
        erase(d, in);
        break;
    case 6:
        repeat(d, in);
        break;
    default:
        splice(d, in, other);
        break;
    }
}

static void run_one(const uint8_t *bytes, size_t n)
{
    uint8_t *exact = malloc(n ? n : 1); /* so that a read past the end is seen */
    assert(exact);
    memcpy(exact, bytes, n);
    (void)LLVMFuzzerTestOneInput(exact, n);
    free(exact);
}

static void run_mutated(long long first, long long n_runs)
{
    static struct input in;
    struct file_bytes seeds[FUZZ_SEEDS_MAX];
    size_t n_seeds = (size_t)fuzz_seeds(seeds);
    for (size_t i = 0; i < n_seeds; i++)
        assert(seeds[i].n <= INPUT_BYTES_MAX);
    for (current_run = first; current_run < first + n_runs; current_run++) {
        struct dice d = {{(uint64_t)current_run, RANDOM_TEST, 0}, 0};
        const struct file_bytes *seed = &seeds[roll(&d, n_seeds)];
        memcpy(in.bytes, seed->bytes, seed->n);
        in.n = seed->n;
        for (uint32_t n = 1 + roll(&d, MUTATIONS_MAX); n > 0; n--)
            mutate(&d, &in, &seeds[roll(&d, n_seeds)]);
        run_one(in.bytes, in.n);
    }
    for (size_t i = 0; i < n_seeds; i++)
        free(seeds[i].bytes);
}

static int run_file(const char *path)
{
    static struct input in;
    FILE *f = fopen(path, "rb");
    if (!f) {
        perror(path);
        return 2;
    }
    in.n = fread(in.bytes, 1, sizeof in.bytes, f);
    (void)fclose(f);
    run_one(in.bytes, in.n);
    return 0;
}

int main(int argc, char **argv)
{
    if (__sanitizer_set_death_callback)
        __sanitizer_set_death_callback(say_where);
    else
        for (int i = 0; i < 3; i++)
            (void)signal((int[]){SIGSEGV, SIGABRT, SIGBUS}[i], on_signal);
    char *end = NULL;
    long long n_runs = argc > 1 ? strtoll(argv[1], &end, 10) : 0;
    if (argc > 1 && *end == '\0') {
        run_mutated(argc > 2 ? strtoll(argv[2], NULL, 10) : 0, n_runs);
        return 0;
    }
    for (int i = 1; i < argc; i++)
        if (run_file(argv[i]) != 0)
            return 2;
    if (argc > 1)
        return 0;
    (void)fprintf(stderr, "usage: %s RUNS [FIRST] | FILE...\n", argv[0]);
    return 2;
}
