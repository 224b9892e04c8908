#include "fuzz.h"

#include "runtime/safetensors.h"

enum { LENGTH_BYTES = 8 };

/* Whatever a header says, a file that was accepted can be read whole. */
static void use(safetensors *f, size_t n_bytes)
{
    int64_t covered = 0;
    for (int i = 0; i < safetensors_count(f); i++) {
        const struct safetensors_tensor *t = safetensors_get(f, i);
        assert(t->offset == covered && t->n_bytes >= 0 && t->rank <= SAFETENSORS_MAX_RANK);
        assert(safetensors_find(f, t->name) == t);
        covered += t->n_bytes;
        float *values = malloc((size_t)t->n_bytes + 1);
        assert(values);
        enum status st = safetensors_read_floats(f, t, values);
        assert((st == STATUS_OK) == (t->type == SAFETENSORS_F32));
        status_clear();
        free(values);
    }
    assert(covered <= (int64_t)n_bytes);
    struct safetensors_sum sum;
    assert(safetensors_get_sum(f, &sum) == STATUS_OK && sum.n_bytes == (int64_t)n_bytes);
    const char *format = safetensors_metadata(f, "format");
    assert(!format || strlen(format) < n_bytes);
}

static void open_and_use(const uint8_t *bytes, size_t n_bytes)
{
    safetensors *f = NULL;
    if (safetensors_open_memory("input", bytes, n_bytes, &f) == STATUS_OK)
        use(f, n_bytes);
    else
        assert(status_message()[0] != '\0');
    status_clear();
    safetensors_close(f);
}

/* Makes the header end behind its last brace, so that more than its length is looked at. */
static void mend(uint8_t *bytes, size_t n_bytes)
{
    size_t end = n_bytes;
    while (end > LENGTH_BYTES && bytes[end - 1] != '}')
        end--;
    for (size_t i = 0; end > LENGTH_BYTES && i < LENGTH_BYTES; i++)
        bytes[i] = (uint8_t)((uint64_t)(end - LENGTH_BYTES) >> 8 * i);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
    open_and_use(bytes, n_bytes);
    uint8_t *mended = malloc(n_bytes ? n_bytes : 1);
    assert(mended);
    memcpy(mended, bytes, n_bytes);
    mend(mended, n_bytes);
    open_and_use(mended, n_bytes);
    free(mended);
    return 0;
}

static struct file_bytes make_file(const char *header, size_t n_data)
{
    size_t length = strlen(header);
    struct file_bytes f = {calloc(1, LENGTH_BYTES + length + n_data + 1),
                           LENGTH_BYTES + length + n_data};
    assert(f.bytes);
    for (size_t i = 0; i < LENGTH_BYTES; i++)
        f.bytes[i] = (uint8_t)(length >> 8 * i);
    memcpy(f.bytes + LENGTH_BYTES, header, length + 1);
    return f;
}

#define TENSOR(name, dtype, shape, offsets) \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"

int fuzz_seeds(struct file_bytes seeds[FUZZ_SEEDS_MAX])
{
    seeds[0] = make_file("{}", 0);
    seeds[1] = make_file("{\"__metadata__\":{\"format\":\"pt\"}}  ", 0);
    seeds[2] = make_file("{" TENSOR("a", "F32", "[2,2]", "[0,16]") "}", 16);
    seeds[3] = make_file(
        "{\"__metadata__\":{\"format\":\"pt\"}," TENSOR(
            "fc.weight", "F32", "[2,3]",
            "[0,24]") "," TENSOR("n", "I64", "[]", "[24,32]") "," TENSOR("e", "BF16", "[0,4]",
                                                                         "[32,32]") "}",
        32);
    seeds[4] = make_file(
        "{" TENSOR("b", "U8", "[4]", "[4,8]") "," TENSOR("a", "U8", "[1,2,2,1]", "[0,4]") "}", 8);
    return 5;
}
