#include "profile/measure.h"

#include "base/arena.h"
#include "base/numbers.h"
#include "base/timer.h"
#include "profile/pace.h"
#include "profile/rehearsal.h"
#include "profile/wander.h"
#include "program/work.h"
#include "runtime/pin.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LEAST_ROUNDS = 3, MOST_ROUNDS = 1000, PACE_ENTRIES = 3 };
static const double BUDGET_S = 1, MOST_S = 4;

/* A key of the plan that is not in the profile. */
struct wanted {
    const char *key;
    struct instr_work work;
};

/* A time of a wanted key: of one round, or the middle of one instruction's rounds. */
struct sample {
    int wanted;
    double seconds;
};

struct samples {
    int n, capacity;
    struct sample *of; /* for free() */
};

/* What a worker that rehearsed did in a round. */
struct part {
    int *counts;   /* by wanted key: of how many instructions */
    double rest_s; /* what the other instructions took */
};

/* One way to measure: a setting, and what is missing in it. */
struct session {
    profile *profile;
    const struct measure_request *request;
    const struct program *const *programs; /* by worker */
    arena *memory;
    int threads, at_once; /* of a worker; workers at the same time */
    struct profile_setting setting;
    int n_wanted;
    struct wanted *wanted; /* sorted by key */
    struct samples rounds, middles;
    struct rehearsal_result last; /* of the last rehearsal */
    /* What was measured earlier and now again: in all. */
    double again_s, then_s;
    double disturbed; /* the largest share of a rehearsal's rounds */
    int n_paces;
    struct pace_row *paces; /* [all who rehearse] */
    struct part *parts;     /* [all who rehearse] */
    double *scratch;        /* room for the rounds of an instruction */
    /* of the rehearsals to do, which one this is */
    int n_turns, turn;
    char what[96];
};

/* ---- devices ---- */

const char *profile_describe_processor(char *text, size_t size)
{
    char line[256];
    FILE *f = fopen("/proc/cpuinfo", "r");
    (void)snprintf(text, size, "an unknown processor");
    while (f && fgets(line, sizeof line, f)) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || !colon)
            continue;
        line[strcspn(line, "\n")] = '\0';
        (void)snprintf(text, size, "%s", colon + 1 + (colon[1] == ' '));
        break;
    }
    if (f)
        (void)fclose(f);
    return text;
}

/* The number of threads, which a backend names last, is a field of its own in a setting. */
const char *profile_describe_device(const struct backend *backend, const device *d, char *text,
                                    size_t size)
{
    char processor[128];
    const char *about = backend->device_describe(d), *threads = strstr(about, ", threads ");
    (void)snprintf(text, size, "%s %.*s on %s", backend->name,
                   threads ? (int)(threads - about) : (int)strlen(about), about,
                   profile_describe_processor(processor, sizeof processor));
    return text;
}

static int threads_of(const struct measure_request *r)
{
    int share = pin_count_cores() / r->plan->n_workers;
    return r->threads ? r->threads : r->plan->n_workers == 1 ? 0 : share > 1 ? share : 1;
}

static int smaller(int a, int b)
{
    return a < b ? a : b;
}

static int workers_at_once(const struct measure_request *r, int threads)
{
    int fit = threads ? pin_count_cores() / threads : 1;
    int most = r->most_at_once ? r->most_at_once : r->plan->n_workers;
    most = smaller(most, r->plan->n_workers);
    return fit < 1 ? 1 : smaller(fit, most);
}

/* ---- what is missing ---- */

static int compare_wanted(const void *a, const void *b)
{
    return strcmp(((const struct wanted *)a)->key, ((const struct wanted *)b)->key);
}

static const uint64_t HASH_START = 0xCBF29CE484222325u;

/* FNV-1a; the zero at the end counts, so that texts one after the other stay apart. */
static uint64_t hash_text(uint64_t hash, const char *text)
{
    for (;; text++) {
        hash = (hash ^ (unsigned char)*text) * 0x100000001B3u;
        if (!*text)
            return hash;
    }
}

/* The keys met so far, by their hashes: programs repeat them many times over. */
struct seen {
    size_t capacity; /* a power of two, more than twice what comes */
    uint64_t *slots; /* 0: free */
};

static enum status make_seen(arena *memory, int n, struct seen *out)
{
    out->capacity = 64;
    while (out->capacity < 2 * (size_t)n)
        out->capacity *= 2;
    return arena_alloc_array(memory, out->capacity, sizeof *out->slots, &out->slots);
}

/* Whether the key is new. */
static bool see(struct seen *s, const char *key)
{
    uint64_t hash = hash_text(HASH_START, key);
    size_t at = (hash ^ hash >> 32) & (s->capacity - 1);
    while (s->slots[at] && s->slots[at] != hash)
        at = (at + 1) & (s->capacity - 1);
    if (s->slots[at])
        return false;
    s->slots[at] = hash;
    return true;
}

static bool is_twin(const struct session *s, int worker)
{
    for (int w = 0; w < worker; w++)
        if (s->programs[w] == s->programs[worker])
            return true;
    return false;
}

static bool computes(const struct program *p, int i)
{
    return p->instrs[i].stream == STREAM_COMPUTE;
}

static int count_computing(const struct session *s)
{
    int n = 0;
    for (int w = 0; w < s->request->plan->n_workers; w++) {
        int n_instrs = is_twin(s, w) ? 0 : s->programs[w]->n_instrs;
        for (int i = 0; i < n_instrs; i++)
            n += computes(s->programs[w], i);
    }
    return n;
}

static enum status note_key(struct session *s, const struct program *p, int i, struct seen *seen,
                            int *n_keys)
{
    char key[WORK_KEY_BYTES];
    struct profile_cost cost;
    if (!program_instr_key(p, i, key, sizeof key)[0] || !see(seen, key))
        return STATUS_OK;
    ++*n_keys;
    if (profile_find(s->profile, &s->setting, key, &cost))
        return STATUS_OK;
    struct wanted *to = &s->wanted[s->n_wanted++];
    program_instr_work(p, i, &to->work);
    return arena_copy_text(s->memory, key, &to->key);
}

/* Keys that the profile lacks, sorted; *n_keys counts all. */
static enum status gather_keys(struct session *s, int *n_keys)
{
    int n = count_computing(s);
    struct seen seen;
    TRY(make_seen(s->memory, n, &seen));
    TRY(arena_alloc_array(s->memory, (size_t)n, sizeof *s->wanted, &s->wanted));
    *n_keys = s->n_wanted = 0;
    for (int w = 0; w < s->request->plan->n_workers; w++) {
        const struct program *p = s->programs[w];
        int n_instrs = is_twin(s, w) ? 0 : p->n_instrs;
        for (int i = 0; i < n_instrs; i++)
            if (computes(p, i))
                TRY(note_key(s, p, i, &seen, n_keys));
    }
    qsort(s->wanted, (size_t)s->n_wanted, sizeof *s->wanted, compare_wanted);
    return STATUS_OK;
}

static int find_wanted(const struct session *s, const char *key)
{
    const struct wanted looked_for = {.key = key};
    const struct wanted *found =
        bsearch(&looked_for, s->wanted, (size_t)s->n_wanted, sizeof looked_for, compare_wanted);
    return found ? (int)(found - s->wanted) : -1;
}

/* ---- times ---- */

static enum status add_sample(struct samples *to, int wanted, double seconds)
{
    if (to->n == to->capacity) {
        int capacity = to->capacity ? 2 * to->capacity : 4096;
        struct sample *larger = realloc(to->of, (size_t)capacity * sizeof *larger);
        if (!larger)
            return status_no_memory((size_t)capacity * sizeof *larger);
        to->of = larger;
        to->capacity = capacity;
    }
    to->of[to->n++] = (struct sample){wanted, seconds};
    return STATUS_OK;
}

static int compare_numbers(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int compare_samples(const void *a, const void *b)
{
    const struct sample *x = a, *y = b;
    if (x->wanted != y->wanted)
        return (x->wanted > y->wanted) - (x->wanted < y->wanted);
    return compare_numbers(&x->seconds, &y->seconds);
}

/* What a program computes, in a number: two with the same do the same. */
static uint64_t identify(const struct program *p)
{
    char key[WORK_KEY_BYTES];
    uint64_t hash = HASH_START;
    for (int i = 0; i < p->n_instrs; i++)
        if (computes(p, i))
            hash = hash_text(hash, program_instr_key(p, i, key, sizeof key));
    return hash;
}

/* Of numbers in s->scratch. */
static double middle_of(struct session *s, int n)
{
    numbers_sort(s->scratch, n);
    return numbers_middle(s->scratch, n);
}

/* What one worker's rounds were. */
struct take {
    const struct program *program;
    int n_rounds;
    const double *seconds; /* [round][instruction] */
};

static double time_of(const struct take *t, int round, int instr)
{
    return t->seconds[(size_t)round * (size_t)t->program->n_instrs + (size_t)instr];
}

static double middle_instr(struct session *s, const struct take *t, int instr)
{
    for (int round = 0; round < t->n_rounds; round++)
        s->scratch[round] = time_of(t, round, instr);
    return middle_of(s, t->n_rounds);
}

static double sum_round(const struct take *t, int round)
{
    double sum = 0;
    for (int i = 0; i < t->program->n_instrs; i++)
        sum += time_of(t, round, i);
    return sum;
}

/* The middle round over the sum of all middles, which leave out an interrupt or a neighbour's
 * burst; but over a whole program it strikes somewhere every time, so that they alone sum up to too
 * little.
 */
static double find_scale(struct session *s, const struct take *t)
{
    double middles = 0;
    for (int i = 0; i < t->program->n_instrs; i++)
        middles += middle_instr(s, t, i);
    for (int round = 0; round < t->n_rounds; round++)
        s->scratch[round] = sum_round(t, round);
    return middles > 0 ? middle_of(s, t->n_rounds) / middles : 1;
}

/* Adds up instructions until they usually take as long as a block: to each one's block. */
static enum status cut_into_blocks(struct session *s, const struct take *t, int **block_of, int *n)
{
    double usual_s = 0;
    *n = 1;
    TRY(arena_alloc_array(s->memory, (size_t)t->program->n_instrs + 1, sizeof **block_of,
                          block_of));
    for (int i = 0; i < t->program->n_instrs; i++) {
        if (usual_s >= PACE_BLOCK_S) {
            usual_s = 0;
            ++*n;
        }
        (*block_of)[i] = *n - 1;
        usual_s += middle_instr(s, t, i);
    }
    return STATUS_OK;
}

static enum status keep_pace(struct session *s, const struct take *t)
{
    int *block_of, n_blocks;
    double *seconds;
    TRY(cut_into_blocks(s, t, &block_of, &n_blocks));
    TRY(arena_alloc_array(s->memory, (size_t)t->n_rounds * (size_t)n_blocks, sizeof *seconds,
                          &seconds));
    for (int round = 0; round < t->n_rounds; round++)
        for (int i = 0; i < t->program->n_instrs; i++)
            seconds[round * n_blocks + block_of[i]] += time_of(t, round, i);
    s->paces[s->n_paces] = (struct pace_row){
        .rehearsal = s->turn, .n_rounds = t->n_rounds, .n_blocks = n_blocks, .seconds = seconds};
    struct part *part = &s->parts[s->n_paces++];
    *part = (struct part){0};
    return arena_alloc_array(s->memory, (size_t)s->n_wanted + 1, sizeof *part->counts,
                             &part->counts);
}

static enum status take_instr(struct session *s, const struct take *t, int instr, double seconds)
{
    char key[WORK_KEY_BYTES];
    struct part *part = &s->parts[s->n_paces - 1];
    int wanted = find_wanted(s, program_instr_key(t->program, instr, key, sizeof key));
    if (wanted < 0) {
        struct profile_cost then;
        part->rest_s += seconds;
        if (profile_find(s->profile, &s->setting, key, &then)) {
            s->again_s += seconds;
            s->then_s += then.seconds;
        }
        return STATUS_OK;
    }
    part->counts[wanted]++;
    for (int round = 0; round < t->n_rounds; round++)
        TRY(add_sample(&s->rounds, wanted, time_of(t, round, instr)));
    return add_sample(&s->middles, wanted, seconds);
}

static enum status take_worker(void *user, const struct program *p, int n_rounds,
                               const double *seconds)
{
    struct session *s = user;
    struct take t = {p, n_rounds, seconds};
    double scale = find_scale(s, &t);
    TRY(keep_pace(s, &t));
    for (int i = 0; i < p->n_instrs; i++)
        if (computes(p, i))
            TRY(take_instr(s, &t, i, scale * middle_instr(s, &t, i)));
    return STATUS_OK;
}

/* ---- from times to costs ---- */

/* The samples of one key, sorted: [first, end). */
static struct range range_of(const struct samples *s, int wanted, int first)
{
    int end = first;
    while (end < s->n && s->of[end].wanted == wanted)
        end++;
    return (struct range){first, end};
}

/* At `share` of the way through sorted samples, between the two nearest. */
static double quantile(const struct samples *s, struct range r, double share)
{
    double at = share * (double)(r.end - r.begin - 1);
    int64_t low = r.begin + (int64_t)at, high = low + 1 < r.end ? low + 1 : low;
    double part = at - (double)(int64_t)at;
    return s->of[low].seconds * (1 - part) + s->of[high].seconds * part;
}

static double mean_of(const struct samples *s, struct range r)
{
    double sum = 0;
    for (int64_t i = r.begin; i < r.end; i++)
        sum += s->of[i].seconds;
    return sum / (double)(r.end - r.begin);
}

/* The mean over instructions and workers, whose cores may differ; how far the rounds scatter. */
static struct profile_cost cost_of(const struct session *s, struct range middles,
                                   struct range rounds)
{
    double middle = mean_of(&s->middles, middles);
    double scatter = quantile(&s->rounds, rounds, 0.75) - quantile(&s->rounds, rounds, 0.25);
    return (struct profile_cost){.seconds = middle,
                                 .spread = middle > 0 ? scatter / 2 / middle : 0,
                                 .count = (int)(rounds.end - rounds.begin)};
}

/* What the worker's program will be predicted to take. */
static double usual_round_s(const struct session *s, const struct part *part, const double *costs_s)
{
    double sum = part->rest_s;
    for (int i = 0; i < s->n_wanted; i++)
        sum += part->counts[i] * costs_s[i];
    return sum;
}

const char *measure_plan_key(const char *what, const struct graph *graph, const struct plan *plan,
                             char *text, size_t size)
{
    (void)snprintf(text, size, "%s of %.60s %lld, %.60s %d", what, graph->name,
                   (long long)graph->batch, plan->name, plan->n_workers);
    return text;
}

/* Up to twice PACE_ENTRIES of them. costs_s: by wanted key. */
static enum status describe_pace(struct session *s, const double *costs_s,
                                 struct profile_entry *out, int *n)
{
    struct pace pace;
    for (int i = 0; i < s->n_paces; i++)
        s->paces[i].usual_s = usual_round_s(s, &s->parts[i], costs_s);
    TRY(pace_find(s->paces, s->n_paces, s->memory, &pace));
    const struct {
        const char *key;
        double seconds, spread;
    } known[PACE_ENTRIES] = {{MEASURE_START_KEY, s->last.start_s, 0},
                             {MEASURE_DRIFT_KEY, 0, pace.drift},
                             {MEASURE_JITTER_KEY, 0, pace.jitter}};
    *n = 0;
    for (int i = 0; i < PACE_ENTRIES; i++) {
        char own[MEASURE_KEY_BYTES];
        if (known[i].spread < 0)
            continue;
        struct profile_entry e = {.key = known[i].key,
                                  .work = {.family = known[i].key},
                                  .cost = {known[i].seconds, known[i].spread, .count = s->n_paces}};
        out[(*n)++] = e;
        (void)measure_plan_key(known[i].key, s->request->graph, s->request->plan, own, sizeof own);
        TRY(arena_copy_text(s->memory, own, &e.key));
        out[(*n)++] = e;
    }
    return STATUS_OK;
}

/* Turns all samples into entries, and forgets them. */
static enum status add_entries(struct session *s, int *n_added)
{
    struct profile_entry *entries;
    double *costs_s;
    int n = 0, n_more = 0, in_middles = 0, in_rounds = 0;
    TRY(arena_alloc_array(s->memory, (size_t)s->n_wanted + 1, sizeof *costs_s, &costs_s));
    TRY(arena_alloc_array(s->memory, (size_t)s->n_wanted + 2 * PACE_ENTRIES, sizeof *entries,
                          &entries));
    qsort(s->middles.of, (size_t)s->middles.n, sizeof *s->middles.of, compare_samples);
    qsort(s->rounds.of, (size_t)s->rounds.n, sizeof *s->rounds.of, compare_samples);
    for (int i = 0; i < s->n_wanted; i++) {
        const struct wanted *w = &s->wanted[i];
        struct range middles = range_of(&s->middles, i, in_middles);
        struct range rounds = range_of(&s->rounds, i, in_rounds);
        in_middles = (int)middles.end;
        in_rounds = (int)rounds.end;
        if (middles.begin == middles.end)
            continue;
        entries[n] = (struct profile_entry){.key = w->key,
                                            .work = {w->work.family, w->work.flops, w->work.bytes},
                                            .cost = cost_of(s, middles, rounds)};
        costs_s[i] = entries[n++].cost.seconds;
    }
    *n_added += n;
    if (s->n_paces > 1)
        TRY(describe_pace(s, costs_s, entries + n, &n_more));
    s->middles.n = s->rounds.n = s->n_paces = 0;
    return profile_add(s->profile, &s->setting, entries, n + n_more);
}

/* ---- rehearsing ---- */

static enum status look_up(void *user, double share)
{
    const struct session *s = user;
    const struct measure_callbacks *c = &s->request->callbacks;
    if (c->stops && c->stops(c->user))
        return status_fail(STATUS_STOPPED, "stopped while measuring %s", s->what);
    if (!c->on_progress)
        return STATUS_OK;
    return c->on_progress(c->user, (s->turn + share) / s->n_turns, s->what);
}

/* `workers` at the same time. */
static enum status rehearse(struct session *s, int n, const int *workers, bool takes_turns)
{
    const struct measure_request *q = s->request;
    struct rehearsal_request r = {.graph = q->graph,
                                  .plan = q->plan,
                                  .backend = q->backend,
                                  .precision = q->precision,
                                  .threads = s->threads,
                                  .n_states = q->n_states,
                                  .n = n,
                                  .workers = workers,
                                  .takes_turns = takes_turns,
                                  .pins = q->plan->n_workers > 1,
                                  .n_places = s->at_once,
                                  .budget_s = q->budget_s > 0 ? q->budget_s : BUDGET_S,
                                  .most_s = q->budget_s > 0 ? 0 : MOST_S,
                                  .least_rounds = q->least_rounds ? q->least_rounds : LEAST_ROUNDS,
                                  .most_rounds = q->most_rounds ? q->most_rounds : MOST_ROUNDS,
                                  .between = look_up,
                                  .user = s};
    r.most_rounds = r.most_rounds > r.least_rounds ? r.most_rounds : r.least_rounds;
    TRY(arena_alloc_array(s->memory, (size_t)r.most_rounds, sizeof *s->scratch, &s->scratch));
    (void)snprintf(s->what, sizeof s->what, "%.40s %.20s, %d of %d workers at a time",
                   q->graph->name, q->plan->name, n, q->plan->n_workers);
    TRY(rehearsal_run(&r, take_worker, s, &s->last));
    s->turn++;
    s->disturbed = fmax(s->disturbed, s->last.disturbed);
    return wander_note(s->profile, &s->setting, s->last.wander);
}

static bool lacks_any(const struct session *s, const struct program *p)
{
    char key[WORK_KEY_BYTES];
    for (int i = 0; i < p->n_instrs; i++)
        if (computes(p, i) && find_wanted(s, program_instr_key(p, i, key, sizeof key)) >= 0)
            return true;
    return false;
}

/* One worker for each program that has a wanted key. */
static enum status choose_workers(struct session *s, int **workers, int *n)
{
    int n_workers = s->request->plan->n_workers;
    uint64_t *seen;
    TRY(arena_alloc_array(s->memory, (size_t)n_workers, sizeof *seen, &seen));
    TRY(arena_alloc_array(s->memory, (size_t)n_workers, sizeof **workers, workers));
    *n = 0;
    for (int w = 0; w < n_workers; w++) {
        uint64_t mine;
        bool known = is_twin(s, w);
        if (known || !lacks_any(s, s->programs[w]))
            continue;
        mine = identify(s->programs[w]);
        for (int k = 0; k < *n; k++)
            known |= seen[k] == mine;
        if (known)
            continue;
        seen[*n] = mine;
        (*workers)[(*n)++] = w;
    }
    return STATUS_OK;
}

/* All workers at once where they fit; else one worker for each different program, as many at a time
 * as fit, the last ones together with some again. */
static enum status rehearse_all(struct session *s, bool takes_turns, int *n_added)
{
    int n_workers = s->request->plan->n_workers, n = n_workers, *workers, *now;
    TRY(choose_workers(s, &workers, &n));
    if (n_workers <= s->at_once)
        for (n = 0; n < n_workers; n++)
            workers[n] = n;
    TRY(arena_alloc_array(s->memory, (size_t)s->at_once, sizeof *now, &now));
    s->n_turns = (n + s->at_once - 1) / s->at_once;
    size_t n_actors = (size_t)s->n_turns * (size_t)s->at_once;
    TRY(arena_alloc_array(s->memory, n_actors, sizeof *s->paces, &s->paces));
    TRY(arena_alloc_array(s->memory, n_actors, sizeof *s->parts, &s->parts));
    for (int first = 0; first < n; first += s->at_once) {
        for (int k = 0; k < s->at_once; k++)
            now[k] = workers[(first + k) % n];
        TRY(rehearse(s, s->at_once, now, takes_turns));
    }
    if (s->then_s > 0)
        TRY(wander_note(s->profile, &s->setting, wander_between(s->again_s, s->then_s)));
    return add_entries(s, n_added);
}

/* ---- all of it ---- */

static enum status measure_setting(struct session *s, bool alone, struct measure_result *result)
{
    s->setting = alone ? result->alone : result->setting;
    TRY(gather_keys(s, &result->n_keys));
    result->n_missing += s->n_wanted;
    s->turn = 0;
    s->again_s = s->then_s = 0;
    if (s->n_wanted == 0 || s->request->look_only)
        return STATUS_OK;
    return rehearse_all(s, alone, &result->n_measured);
}

static enum status measure_all(struct session *s, struct measure_result *result)
{
    TRY(measure_setting(s, false, result));
    if (s->request->alone && s->at_once > 1)
        TRY(measure_setting(s, true, result));
    return STATUS_OK;
}

static enum status measure_lowered(struct session *s, device *d, struct measure_result *result)
{
    const struct measure_request *r = s->request;
    int threads = r->backend->device_threads(d);
    (void)profile_describe_device(r->backend, d, result->device, sizeof result->device);
    result->setting = (struct profile_setting){result->device, threads, s->at_once};
    result->alone = (struct profile_setting){result->device, threads, 1};
    s->programs = r->programs;
    if (r->programs)
        return measure_all(s, result);
    struct program_options o = {.backend = r->backend,
                                .device = d,
                                .training = true,
                                .n_states = r->n_states,
                                .plan = r->plan};
    struct program_set set;
    TRY(program_create_all(r->graph, &o, NULL, true, &set));
    s->programs = (const struct program *const *)set.programs;
    enum status st = measure_all(s, result);
    program_destroy_all(&set);
    return st;
}

enum status profile_measure(profile *p, const struct measure_request *request,
                            struct measure_result *result)
{
    struct session s = {.profile = p, .request = request, .threads = threads_of(request)};
    struct device_options wanted = {
        .precision = request->precision, .threads = s.threads, .describe_only = true};
    device *d;
    int64_t start_ns = timer_now_ns();
    *result = (struct measure_result){.n_keys = 0};
    s.at_once = workers_at_once(request, s.threads);
    TRY(arena_create(&s.memory));
    enum status st = request->backend->device_open(&wanted, &d);
    if (st == STATUS_OK) {
        st = measure_lowered(&s, d, result);
        request->backend->device_close(d);
    }
    free(s.rounds.of);
    free(s.middles.of);
    arena_destroy(s.memory);
    result->disturbed = s.disturbed;
    result->seconds = (double)(timer_now_ns() - start_ns) * 1e-9;
    return st;
}
