/* Programs of one worker: lowering makes the expected instructions, verify_program finds faults,
 * and the kernels touch only the memory that the lists name. */
#include "runtime/initialise.h"
#include "session.h"
#include "verify/verify.h"

static const char *const backends[] = {"cpu", "reference"};

/* The smallest images that a network takes here. */
static struct graph_variant small_variant(const char *model, int64_t batch)
{
    struct graph_variant v = {batch, 3, 32, 32, 10, true, -1};
    bool large = strstr(model, "alexnet") || strcmp(model, "googlenet") == 0;
    if (large || strcmp(model, "inceptionv3") == 0) {
        v.height = v.width = large ? 64 : 75;
        v.small_form = false;
    }
    return v;
}

/* ---- meaning: the results of a program, as hashes ---- */

static uint64_t mix(uint64_t hash, uint64_t value)
{
    return fixture_bits(hash, value);
}

static bool lives_always(const struct buffer *b)
{
    return b->class == BUFFER_WEIGHTS || b->class == BUFFER_OPTIMIZER;
}

static bool overlap(const struct buffer *a, const struct buffer *b)
{
    return a->class == b->class && a->offset < b->offset + b->n_bytes &&
           b->offset < a->offset + a->n_bytes;
}

static bool listed(int n, const int *items, int item)
{
    for (int k = 0; k < n; k++)
        if (items[k] == item)
            return true;
    return false;
}

/* The content of every buffer is a number: a hash of the instruction that wrote it and of the
 * contents that this read. A write to an overlapping buffer makes it a number that occurs nowhere
 * else. */
static void run_on_hashes(const struct program *p, const struct instr *instr, uint64_t *content,
                          uint64_t *garbage)
{
    uint64_t hash = mix((uint64_t)instr->kind, (uint64_t)instr->pass);
    hash = mix(mix(hash, (uint64_t)instr->group), (uint64_t)instr->param);
    for (int k = 0; k < instr->n_reads; k++)
        hash = mix(hash, content[instr->reads[k]]);
    for (int k = 0; instr->kind == INSTR_UPDATE && k < instr->n_writes; k++)
        hash = mix(hash, content[instr->writes[k]]); /* an update changes the old contents */
    for (int k = 0; k < instr->n_writes; k++)
        content[instr->writes[k]] = mix(hash, (uint64_t)k);
    bool hurts_itself = false;
    for (int k = 0; k < instr->n_writes; k++)
        for (int i = 0; i < p->n_buffers; i++)
            if (i != instr->writes[k] && overlap(&p->buffers[i], &p->buffers[instr->writes[k]])) {
                content[i] = ++*garbage;
                hurts_itself |= listed(instr->n_reads, instr->reads, i) ||
                                listed(instr->n_writes, instr->writes, i);
            }
    for (int k = 0; hurts_itself && k < instr->n_writes; k++)
        content[instr->writes[k]] = ++*garbage;
}

/* One number for all results of a step. Equal numbers: equal programs. */
static uint64_t meaning(const struct program *p)
{
    uint64_t *content = calloc((size_t)p->n_buffers, sizeof *content), garbage = 1u << 20;
    uint64_t hash = 0;
    assert_true(content);
    for (int i = 0; i < p->n_buffers; i++) /* nothing is known of the others */
        content[i] = lives_always(&p->buffers[i]) ? (uint64_t)i : ++garbage;
    for (int i = 0; i < p->n_instrs; i++)
        run_on_hashes(p, &p->instrs[i], content, &garbage);
    for (int i = 0; i < p->n_buffers; i++)
        if (lives_always(&p->buffers[i]))
            hash = mix(hash, content[i]);
    for (int i = 0; i < p->n_results; i++) {
        hash = mix(hash, content[p->results[i].losses]);
        if (!p->training)
            hash = mix(hash, content[p->results[i].logits]);
    }
    free(content);
    return hash;
}

/* Whether every place is inside its slab and no two buffers that live always overlap. */
static bool places_are_legal(const struct program *p)
{
    for (int i = 0; i < p->n_buffers; i++) {
        const struct buffer *a = &p->buffers[i];
        if (!lives_always(a) && a->first_write < 0)
            continue;
        if (a->offset < 0 || a->offset % BUFFER_ALIGNMENT ||
            a->offset + a->n_bytes > p->slab_bytes[a->class])
            return false;
        for (int k = 0; k < i && lives_always(a); k++)
            if (overlap(a, &p->buffers[k]))
                return false;
    }
    return true;
}

/* ---- mutations ---- */

/* A copy of a program whose instructions and buffers may be changed. */
struct mutant {
    struct program p;
    const struct program *original;
    uint64_t original_meaning;
};

static void mutant_init(struct mutant *m, const struct program *p)
{
    *m = (struct mutant){.p = *p, .original = p, .original_meaning = meaning(p)};
    m->p.instrs = malloc((size_t)(p->n_instrs + 1) * sizeof *p->instrs);
    m->p.buffers = malloc((size_t)p->n_buffers * sizeof *p->buffers);
    assert_true(m->p.instrs && m->p.buffers);
}

static void mutant_reset(struct mutant *m)
{
    struct instr *instrs = m->p.instrs;
    struct buffer *buffers = m->p.buffers;
    memcpy(instrs, m->original->instrs, (size_t)m->original->n_instrs * sizeof *instrs);
    memcpy(buffers, m->original->buffers, (size_t)m->original->n_buffers * sizeof *buffers);
    m->p = *m->original;
    m->p.instrs = instrs;
    m->p.buffers = buffers;
}

static void mutant_deinit(struct mutant *m)
{
    free(m->p.instrs);
    free(m->p.buffers);
}

static bool passes_check(const struct program *p)
{
    enum status st = verify_program(p);
    if (st != STATUS_OK)
        assert_non_null(strstr(status_message(), "program check: "));
    status_clear();
    return st == STATUS_OK;
}

/* A program with another meaning must be caught. */
static bool is_fault(const struct mutant *m)
{
    return !places_are_legal(&m->p) || meaning(&m->p) != m->original_meaning;
}

static bool expect_caught(const struct mutant *m, const char *what, int a, int b)
{
    char first[160], second[160];
    bool fault = is_fault(m);
    if (fault && passes_check(&m->p)) {
        (void)program_instr_text(m->original, a, first, sizeof first);
        (void)program_instr_text(m->original, b, second, sizeof second);
        fail_msg("not caught: %s of instructions %d (%s) and %d (%s)", what, a, first, b, second);
    }
    return fault;
}

/* Each in turn (of long programs, every third) is left out, or comes twice. */
static void drop_and_repeat(struct mutant *m)
{
    int n = m->original->n_instrs;
    for (int i = 0; i<n; i += n> 300 ? 3 : 1) {
        mutant_reset(m);
        memmove(&m->p.instrs[i], &m->p.instrs[i + 1], (size_t)(n - 1 - i) * sizeof *m->p.instrs);
        m->p.n_instrs = n - 1;
        assert_that(expect_caught(m, "dropping", i, i), "instruction %d seems to do nothing", i);
        mutant_reset(m);
        memmove(&m->p.instrs[i + 1], &m->p.instrs[i], (size_t)(n - i) * sizeof *m->p.instrs);
        m->p.n_instrs = n + 1;
        (void)expect_caught(m, "repetition", i, i);
    }
}

/* Every two neighbours, and some that are far from each other; of long programs, every third.
 * Returns how many were faults. */
static int swap_instrs(struct mutant *m)
{
    int n = m->original->n_instrs, faults = 0;
    for (int i = 0; i<2 * n; i += n> 300 ? 3 : 1) {
        int a = i % n, b = i < n ? i + 1 : (int)(fixture_bits(1, (uint64_t)i) % (uint64_t)n);
        if (a == b || b >= n)
            continue;
        mutant_reset(m);
        struct instr moved = m->p.instrs[a];
        m->p.instrs[a] = m->p.instrs[b];
        m->p.instrs[b] = moved;
        faults += expect_caught(m, "swapping", a, b);
    }
    return faults;
}

/* Random buffers to random places of their slab: caught if, and only if, it matters. */
static int move_buffers(struct mutant *m, int n_moves)
{
    int faults = 0;
    for (int i = 0; i < n_moves; i++) {
        mutant_reset(m);
        struct buffer *b = &m->p.buffers[fixture_bits(2, (uint64_t)i) % (uint64_t)m->p.n_buffers];
        int64_t room = (m->p.slab_bytes[b->class] - b->n_bytes) / BUFFER_ALIGNMENT + 1;
        if (!lives_always(b) && b->first_write < 0)
            continue;
        b->offset = (int64_t)(fixture_bits(3, (uint64_t)i) % (uint64_t)room) * BUFFER_ALIGNMENT;
        bool fault = is_fault(m);
        faults += fault;
        assert_that(passes_check(&m->p) != fault, "buffer %d (%s) moved to %lld %s",
                    (int)(b - m->p.buffers), b->name, (long long)b->offset,
                    fault ? "is not caught" : "is harmless");
    }
    return faults;
}

/* Each of these is wrong, whatever the program. */
static void break_places(struct mutant *m)
{
    for (enum buffer_class c = 0; c < BUFFER_CLASS_COUNT; c++) {
        mutant_reset(m);
        if (m->p.slab_bytes[c] == 0)
            continue;
        m->p.slab_bytes[c] -= BUFFER_ALIGNMENT;
        assert_that(!passes_check(&m->p), "a smaller slab of %s", buffer_class_name(c));
    }
    mutant_reset(m);
    m->p.buffers[m->p.loads[0].images].offset += 4;
    assert_false(passes_check(&m->p));
    mutant_reset(m);
    m->p.buffers[m->p.loads[0].images].offset = -BUFFER_ALIGNMENT;
    assert_false(passes_check(&m->p));
    const int nowhere[1] = {m->p.n_buffers};
    mutant_reset(m);
    m->p.instrs[1].reads = nowhere;
    m->p.instrs[1].n_reads = 1;
    assert_false(passes_check(&m->p));
}

static void test_mutations(void **state)
{
    static const char *const models[] = {"lenet5", "vgg11", "resnet18", "googlenet", "mobilenetv2"};
    struct session s;
    session_open(&s, *state, PRECISION_FLOAT);
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        bool training = i != 4; /* one of them evaluates */
        struct graph_variant variant = small_variant(models[i], 1);
        struct program *p = session_add(&s, models[i], &variant, training, training);
        struct mutant m;
        mutant_init(&m, p);
        mutant_reset(&m);
        assert_true(passes_check(&m.p) && !is_fault(&m));
        break_places(&m);
        drop_and_repeat(&m);
        assert_true(swap_instrs(&m) > p->n_instrs / 4);
        int faults = move_buffers(&m, 200);
        assert_that(faults > 20 && faults < 200, "%d faults", faults);
        mutant_deinit(&m);
        program_destroy(p);
        graph_destroy(s.graph[0]);
        s.n_programs = 0;
    }
    session_close(&s);
}

/* ---- the programs that lowering makes ---- */

static int64_t largest_live_bytes(const struct program *p, enum buffer_class class)
{
    int64_t largest = 0;
    for (int t = 0; t <= p->n_instrs; t++) {
        int64_t live = 0;
        for (int i = 0; i < p->n_buffers; i++) {
            const struct buffer *b = &p->buffers[i];
            bool now = b->first_write >= 0 && b->first_write <= t && t <= b->last_use;
            live += b->class == class && (now || lives_always(b)) ? b->n_bytes : 0;
        }
        largest = live > largest ? live : largest;
    }
    return largest;
}

static void check_slabs(const struct program *p, const char *model)
{
    int64_t gradients = 0;
    for (int i = 0; i < p->n_buffers; i++)
        gradients += p->buffers[i].class == BUFFER_GRADIENTS ? p->buffers[i].n_bytes : 0;
    if (p->training)
        assert_that(p->slab_bytes[BUFFER_GRADIENTS] < gradients, "%s: gradients are not reused",
                    model);
    for (enum buffer_class c = 0; c < BUFFER_CLASS_COUNT; c++) {
        int64_t live = largest_live_bytes(p, c), slab = p->slab_bytes[c];
        assert_that(live <= slab, "%s: %s of %lld bytes in a slab of %lld", model,
                    buffer_class_name(c), (long long)live, (long long)slab);
        assert_that((double)slab <= 1.1 * (double)live, "%s: %lld bytes of %s take %lld", model,
                    (long long)live, buffer_class_name(c), (long long)slab);
    }
}

/* Weights where the training program has them, in the same layouts. */
static void check_sharing(const struct program *p, const struct program *with)
{
    for (int i = 0; i < p->graph->n_params; i++) {
        const struct buffer *a = &p->buffers[p->params[i].weight];
        const struct buffer *b = &with->buffers[with->params[i].weight];
        assert_that(a->offset == b->offset && a->layout == b->layout && a->n_bytes == b->n_bytes,
                    "%s lies elsewhere", p->graph->params[i].name);
        for (int k = 0; p->training && k < p->n_states; k++)
            if (p->params[i].state[k] != NO_BUFFER)
                assert_true(p->buffers[p->params[i].state[k]].offset ==
                            with->buffers[with->params[i].state[k]].offset);
    }
}

static void test_networks(void **state)
{
    for (const char *const *model = network_names(); *model; model++) {
        struct session s;
        session_open(&s, *state, PRECISION_FLOAT);
        struct graph_variant whole = small_variant(*model, 2), rest = small_variant(*model, 1);
        session_add(&s, *model, &whole, true, 2);
        session_add(&s, *model, &whole, false, 0);
        session_add(&s, *model, &rest, true, 2);
        for (int i = 0; i < s.n_programs; i++) {
            assert_ok(verify_program(s.program[i]));
            check_slabs(s.program[i], *model);
            check_sharing(s.program[i], s.program[0]);
        }
        session_close(&s);
    }
}

/* Numbers of groups, and of instructions of each kind; -1: depends on the backend. */
struct census {
    int conv, norm, norm_act, norm_add_act, conv_act, linear, linear_act, activation, sum;
    int weights, data, folds, updates;
};

static struct census count(const struct program *p)
{
    struct census n = {0};
    for (int i = 0; i < p->n_groups; i++) {
        const struct group_spec *spec = &p->groups[i].spec;
        bool act = spec->activation != ACTIVATION_NONE, conv = spec->op.op == OP_CONV2D;
        bool norm = spec->op.op == OP_BATCH_NORM, linear = spec->op.op == OP_LINEAR;
        n.conv += conv && !act;
        n.conv_act += conv && act;
        n.norm += norm && !act && !spec->residual;
        n.norm_act += norm && act && !spec->residual;
        n.norm_add_act += norm && act && spec->residual;
        n.linear += linear && !act;
        n.linear_act += linear && act;
        n.activation += op_get_info(spec->op.op)->activation != ACTIVATION_NONE;
        n.sum += spec->op.op == OP_ADD;
    }
    for (int i = 0; i < p->n_instrs; i++) {
        const struct instr *instr = &p->instrs[i];
        bool run = instr->kind == INSTR_RUN;
        n.weights += run && instr->pass == PASS_BACKWARD_WEIGHTS;
        n.data += run && instr->pass == PASS_BACKWARD_DATA;
        n.folds += instr->kind == INSTR_FOLD;
        n.updates += instr->kind == INSTR_UPDATE;
    }
    return n;
}

static void test_groups(void **state)
{
    static const struct {
        const char *model;
        struct census expected;
    } cases[] = {
        {"resnet18",
         {.conv = 20,
          .norm = 3,
          .norm_act = 9,
          .norm_add_act = 8,
          .linear = 1,
          .weights = 21,
          .data = 20,
          .updates = 62}},
        {"resnet50",
         {.conv = 53,
          .norm = 4,
          .norm_act = 33,
          .norm_add_act = 16,
          .linear = 1,
          .weights = 54,
          .data = 53,
          .updates = 161}},
        {"vgg11", {.conv_act = 8, .linear = 1, .weights = 9, .data = 8, .folds = 8, .updates = 18}},
        {"lenet5",
         {.conv_act = 2,
          .linear = 1,
          .linear_act = 2,
          .weights = 5,
          .data = 4,
          .folds = 4,
          .updates = 10}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct session s;
        session_open(&s, *state, PRECISION_FLOAT);
        struct graph_variant variant = small_variant(cases[i].model, 1);
        struct census found = count(session_add(&s, cases[i].model, &variant, true, 1));
        session_close(&s);
        const int *f = (const int *)&found, *e = (const int *)&cases[i].expected;
        for (size_t k = 0; k < sizeof found / sizeof(int); k++)
            assert_that(f[k] == e[k], "%s: entry %zu of the census is %d, not %d", cases[i].model,
                        k, f[k], e[k]);
    }
}

static char *dump(const struct program *p)
{
    char *text = NULL;
    size_t n_bytes;
    FILE *f = open_memstream(&text, &n_bytes);
    assert_true(f);
    program_dump(p, f);
    (void)fclose(f);
    return text;
}

static void test_dump(void **state)
{
    struct session s, again;
    struct graph_variant variant = small_variant("googlenet", 2);
    session_open(&s, *state, PRECISION_FLOAT);
    session_open(&again, *state, PRECISION_FLOAT);
    struct program *p = session_add(&s, "googlenet", &variant, true, 1);
    char *text = dump(p), *twin = dump(session_add(&again, "googlenet", &variant, true, 1));
    assert_string_equal(text, twin);
    const char *at = text;
    for (int i = 0; i < p->n_instrs; i++) {
        char name[160], line[200];
        (void)snprintf(line, sizeof line, "\ninstr %d compute %s ", i,
                       program_instr_text(p, i, name, sizeof name));
        at = strstr(at, line);
        assert_that(at, "the dump lacks '%s'", line + 1);
    }
    for (int i = 0; i < p->n_buffers; i++) {
        char line[64];
        (void)snprintf(line, sizeof line, "\nbuffer %d ", i);
        assert_that(strstr(text, line), "the dump lacks '%s'", line + 1);
    }
    free(text);
    free(twin);
    session_close(&again);
    session_close(&s);
}

/* ---- executors ---- */

static const struct update_rule sgd = {
    .kind = UPDATE_SGD, .learning_rate = 1e-3, .momentum = 0.9, .weight_decay = 1e-4};

/* Every parameter and state comes back with the bits it was written with, also from layouts with
 * blocks and padding, and no write touches another one. */
static void test_round_trip(void **state)
{
    struct session s;
    struct graph_variant variant = small_variant("mobilenetv2", 1);
    session_open(&s, *state, PRECISION_FLOAT);
    session_add(&s, "mobilenetv2", &variant, true, 2);
    session_start(&s);
    const struct graph *g = s.graph[0];
    float *values = malloc(4u << 20);
    assert_true(values);
    for (int pass = 0; pass < 2; pass++) /* all are written before the first is read */
        for (int i = 0; i < 3 * g->n_params; i++) {
            enum executor_tensor which = (enum executor_tensor)(i % 3);
            int64_t n = shape_elements(&g->params[i / 3].spec.shape);
            assert_true((size_t)n * sizeof *values <= 4u << 20);
            if (which != TENSOR_WEIGHT && !g->params[i / 3].spec.trained)
                continue;
            for (int64_t k = 0; k < n && pass == 0; k++)
                values[k] = (float)fixture_number((uint64_t)i, (uint64_t)k);
            if (pass == 0)
                assert_ok(executor_write(s.executor, i / 3, which, values));
            else
                assert_ok(executor_read(s.executor, i / 3, which, values));
            for (int64_t k = 0; k < n; k++)
                assert_that(values[k] == (float)fixture_number((uint64_t)i, (uint64_t)k),
                            "%s, tensor %d, element %lld", g->params[i / 3].name, which,
                            (long long)k);
        }
    int statistic = 0;
    while (g->params[statistic].spec.trained)
        statistic++;
    assert_fails(executor_read(s.executor, statistic, TENSOR_STATE_0, values), STATUS_FAILED,
                 "no optimizer state");
    free(values);
    session_close(&s);
}

/* A short last batch trains the same weights: two samples, the mean loss of which is that of the
 * two alone, through either program. */
static void test_short_batch(void **state)
{
    double losses[2][4];
    for (int order = 0; order < 2; order++) {
        struct session s;
        struct graph_variant whole = small_variant("lenet5", 4), rest = small_variant("lenet5", 2);
        session_open(&s, *state, PRECISION_FLOAT);
        session_add(&s, "lenet5", order ? &rest : &whole, true, 1);
        session_add(&s, "lenet5", order ? &whole : &rest, true, 1);
        session_start(&s);
        assert_ok(initialise_parameters(s.graph[0], s.executor, 7));
        struct fixture_batch batch = fixture_make_batch(s.graph[order], 0);
        for (int i = 0; i < 4; i++) /* whole, rest, whole, rest */
            losses[order][i] = session_step(&s, i % 2 ^ order, &batch, &sgd, (uint32_t)i);
        fixture_free_batch(&batch);
        session_close(&s);
    }
    for (int i = 0; i < 4; i++)
        assert_near(losses[0][i], losses[1][i], 1e-5);
    assert_true(fabs(losses[0][0] - losses[0][2]) > 1e-4); /* it learns */
}

/* ---- poison: a backend that spoils, before each instruction, all dead memory ---- */

static struct {
    struct backend table;
    const struct backend *real;
    const struct program *program;
    char *slab[BUFFER_CLASS_COUNT];
    int next_instr;
} poison;

/* Keeps only memory that was touched before and is touched again from here on; the rest, with the
 * outputs and workspaces of this instruction, becomes NaN. */
static void spoil(void)
{
    const struct program *p = poison.program;
    int now = poison.next_instr++;
    for (int c = BUFFER_GRADIENTS; p && c < BUFFER_CLASS_COUNT; c++) {
        size_t n_lines = (size_t)p->slab_bytes[c] / BUFFER_ALIGNMENT;
        bool *alive = calloc(n_lines + 1, sizeof *alive);
        assert_true(alive);
        for (int i = 0; i < p->n_buffers; i++) {
            const struct buffer *b = &p->buffers[i];
            if ((int)b->class == c && b->first_write >= 0 && b->first_write < now &&
                now <= b->last_use)
                memset(alive + b->offset / BUFFER_ALIGNMENT, true,
                       (size_t)b->n_bytes / BUFFER_ALIGNMENT);
        }
        for (size_t i = 0; i < n_lines; i++)
            if (!alive[i])
                memset(poison.slab[c] + i * BUFFER_ALIGNMENT, 0xff, BUFFER_ALIGNMENT);
        free(alive);
    }
}

static enum status poison_alloc(device *d, int64_t n_bytes, void **out)
{
    const struct program *p = poison.program;
    TRY(poison.real->memory_alloc(d, n_bytes, out));
    for (int c = 0; c < BUFFER_CLASS_COUNT; c++)
        if (!poison.slab[c] && p->slab_bytes[c] == n_bytes) {
            poison.slab[c] = *out;
            break;
        }
    return STATUS_OK;
}

static enum status poison_run(group *g, enum pass pass, stream *s, const struct group_args *args,
                              const struct step_state *step)
{
    spoil();
    return poison.real->group_run(g, pass, s, args, step);
}

static enum status poison_fold(stream *s, const layout *l, int n_addends,
                               const void *const *addends, enum activation activation,
                               const void *output, void *to)
{
    spoil();
    return poison.real->fold(s, l, n_addends, addends, activation, output, to);
}

static enum status poison_update(stream *s, const struct update_rule *rule,
                                 const struct update_args *args)
{
    spoil();
    return poison.real->update(s, rule, args);
}

static void poison_backend(const struct backend *real)
{
    memset(&poison, 0, sizeof poison);
    poison.real = real;
    poison.table = *real;
    poison.table.memory_alloc = poison_alloc;
    poison.table.group_run = poison_run;
    poison.table.fold = poison_fold;
    poison.table.update = poison_update;
}

/* Losses of two steps: the second computes with the updated weights. */
static void train(const char *backend, const char *model, bool poisoned, double losses[2])
{
    struct session s;
    struct graph_variant variant = small_variant(model, 2);
    session_open(&s, backend, PRECISION_FLOAT);
    poison_backend(s.backend);
    if (poisoned)
        s.backend = &poison.table;
    poison.program = session_add(&s, model, &variant, true, 1);
    session_start(&s);
    assert_ok(initialise_parameters(s.graph[0], s.executor, 7));
    struct fixture_batch batch = fixture_make_batch(s.graph[0], 0);
    for (uint32_t i = 0; i < 2; i++) {
        poison.next_instr = 1; /* behind the load */
        losses[i] = session_step(&s, 0, &batch, &sgd, i);
        if (poisoned)
            assert_int_equal(poison.next_instr, s.program[0]->n_instrs);
    }
    fixture_free_batch(&batch);
    session_close(&s);
}

/* The kernels read only what the instructions list, and write all that they list. */
static void test_poison(void **state)
{
    static const char *const models[] = {"mlp",      "lenet5",      "vgg11",
                                         "resnet18", "mobilenetv2", "googlenet"};
    int n_models = strcmp(*state, "reference") == 0 ? 2 : (int)(sizeof models / sizeof models[0]);
    for (int i = 0; i < n_models; i++) {
        double clean[2], poisoned[2];
        train(*state, models[i], false, clean);
        train(*state, models[i], true, poisoned);
        for (int k = 0; k < 2; k++)
            assert_that(clean[k] == poisoned[k], "%s: step %d: %.9g, poisoned %.9g", models[i], k,
                        clean[k], poisoned[k]);
    }
}

int main(void)
{
    static const struct {
        const char *name;
        CMUnitTestFunction run;
    } each[] = {
        {"networks", test_networks},
        {"groups", test_groups},
        {"dump", test_dump},
        {"mutations", test_mutations},
        {"round trip", test_round_trip},
        {"short batch", test_short_batch},
        {"poisoned memory", test_poison},
    };
    enum { N_EACH = sizeof each / sizeof each[0], N_BACKENDS = sizeof backends / sizeof *backends };
    static char names[N_EACH * N_BACKENDS][64];
    struct CMUnitTest tests[N_EACH * N_BACKENDS];
    for (int i = 0; i < N_EACH * N_BACKENDS; i++) {
        const char *backend = backends[i % N_BACKENDS];
        (void)snprintf(names[i], sizeof names[i], "%s on %s", each[i / N_BACKENDS].name, backend);
        tests[i] = (struct CMUnitTest){.name = names[i],
                                       .test_func = each[i / N_BACKENDS].run,
                                       .initial_state = (void *)(uintptr_t)backend};
    }
    return test_run(tests);
}
