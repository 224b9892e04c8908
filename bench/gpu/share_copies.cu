/* share_copies.cu: what a copy between shares of one GPU's multiprocessors costs.
 *
 *     share_copies
 *
 * For shares of 16, 32 and 64 multiprocessors and the whole GPU: a copy in device memory by
 * cudaMemcpyAsync and by an own kernel, on the share's stream, alone and with all other shares
 * copying, too; what handing over from share to share costs inside a captured graph (a small kernel
 * here, an event, a small kernel there), against the same chain on one share.
 */
#include <cuda.h>
#include <cuda_runtime.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(call)                                                          \
    do {                                                                     \
        cudaError_t e_ = (call);                                             \
        if (e_ != cudaSuccess) {                                             \
            printf("ERROR line %d: %s\n", __LINE__, cudaGetErrorString(e_)); \
            exit(1);                                                         \
        }                                                                    \
    } while (0)
#define CHECK_DRIVER(call)                                                 \
    do {                                                                   \
        CUresult e_ = (call);                                              \
        if (e_ != CUDA_SUCCESS) {                                          \
            printf("ERROR line %d: driver error %d\n", __LINE__, (int)e_); \
            exit(1);                                                       \
        }                                                                  \
    } while (0)

__global__ void copy_kernel(const int4 *from, int4 *to, size_t n)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
         i += (size_t)gridDim.x * blockDim.x)
        to[i] = from[i];
}
__global__ void small_kernel(float *x)
{
    x[threadIdx.x] = x[threadIdx.x] * 0.5f + 1.0f;
}

static float best_us(cudaStream_t s, cudaGraphExec_t exec, int repeats)
{
    cudaEvent_t a, b;
    float best = 1e30f;
    CHECK(cudaEventCreate(&a));
    CHECK(cudaEventCreate(&b));
    for (int i = 0; i < 7; i++) {
        CHECK(cudaEventRecord(a, s));
        CHECK(cudaGraphLaunch(exec, s));
        CHECK(cudaEventRecord(b, s));
        CHECK(cudaStreamSynchronize(s));
        float ms;
        CHECK(cudaEventElapsedTime(&ms, a, b));
        best = ms < best ? ms : best;
    }
    return best * 1e3f / repeats;
}

enum { MAX_SHARES = 16 };

int main()
{
    CHECK(cudaFree(NULL));
    CUdevice device;
    CHECK_DRIVER(cuDeviceGet(&device, 0));
    const size_t most = (size_t)256 << 20;
    char *from[MAX_SHARES], *to[MAX_SHARES];
    for (int i = 0; i < 8; i++) {
        CHECK(cudaMalloc(&from[i], most));
        CHECK(cudaMalloc(&to[i], most));
        CHECK(cudaMemset(from[i], i + 1, most));
    }
    float *small;
    CHECK(cudaMalloc(&small, 4096));
    CHECK(cudaMemset(small, 0, 4096));
    const int sizes[4] = {16, 32, 64, 132};
    for (int k = 0; k < 4; k++) {
        int n = sizes[k];
        cudaStream_t stream[MAX_SHARES];
        unsigned int n_shares = 1;
        if (n < 132) {
            CUdevResource all, parts[MAX_SHARES];
            n_shares = MAX_SHARES;
            CHECK_DRIVER(cuDeviceGetDevResource(device, &all, CU_DEV_RESOURCE_TYPE_SM));
            CHECK_DRIVER(cuDevSmResourceSplitByCount(parts, &n_shares, &all, NULL, 0, (unsigned)n));
            for (unsigned i = 0; i < n_shares; i++) {
                CUdevResourceDesc description;
                CUgreenCtx context;
                CHECK_DRIVER(cuDevResourceGenerateDesc(&description, &parts[i], 1));
                CHECK_DRIVER(
                    cuGreenCtxCreate(&context, description, device, CU_GREEN_CTX_DEFAULT_STREAM));
                CHECK_DRIVER(cuGreenCtxStreamCreate((CUstream *)&stream[i], context,
                                                    CU_STREAM_NON_BLOCKING, 0));
            }
        } else {
            CHECK(cudaStreamCreateWithFlags(&stream[0], cudaStreamNonBlocking));
        }
        if (n_shares > 8)
            n_shares = 8;
        printf("\n%d multiprocessors, %u shares\n", n, n_shares);
        for (size_t bytes = 4096; bytes <= most; bytes *= 4) {
            float us[4];
            for (int form = 0; form < 4; form++) { /* memcpy, kernel; alone, all shares at once */
                bool kernel = form & 1, all = form >= 2;
                unsigned m = all ? n_shares : 1;
                cudaGraph_t graph;
                cudaGraphExec_t exec;
                cudaEvent_t fork, join[MAX_SHARES];
                CHECK(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
                CHECK(cudaStreamBeginCapture(stream[0], cudaStreamCaptureModeThreadLocal));
                CHECK(cudaEventRecord(fork, stream[0]));
                for (unsigned i = 0; i < m; i++) {
                    if (i > 0)
                        CHECK(cudaStreamWaitEvent(stream[i], fork, 0));
                    for (int r = 0; r < 10; r++) {
                        if (kernel) {
                            size_t count = bytes / 16;
                            unsigned blocks = (unsigned)((count + 511) / 512);
                            blocks = blocks > 4u * n ? 4u * n : blocks;
                            copy_kernel<<<blocks, 512, 0, stream[i]>>>((const int4 *)from[i],
                                                                       (int4 *)to[i], count);
                        } else {
                            CHECK(cudaMemcpyAsync(to[i], from[i], bytes, cudaMemcpyDeviceToDevice,
                                                  stream[i]));
                        }
                    }
                    if (i > 0) {
                        CHECK(cudaEventCreateWithFlags(&join[i], cudaEventDisableTiming));
                        CHECK(cudaEventRecord(join[i], stream[i]));
                        CHECK(cudaStreamWaitEvent(stream[0], join[i], 0));
                    }
                }
                CHECK(cudaStreamEndCapture(stream[0], &graph));
                CHECK(cudaGraphInstantiate(&exec, graph, 0));
                us[form] = best_us(stream[0], exec, 10);
                CHECK(cudaGraphExecDestroy(exec));
                CHECK(cudaGraphDestroy(graph));
            }
            printf("%9zu bytes: memcpy %8.2f us, kernel %8.2f us; all at once %8.2f %8.2f us "
                   "(kernel: %.2f TB/s each alone, %.2f all together)\n",
                   bytes, us[0], us[1], us[2], us[3], 2.0 * bytes / us[1] * 1e-6,
                   2.0 * bytes * n_shares / us[3] * 1e-6);
        }
        /* Handing over: 100 small kernels in a chain, on one share or alternating between two. */
        for (int two = 0; two < (n_shares > 1 ? 2 : 1); two++) {
            cudaGraph_t graph;
            cudaGraphExec_t exec;
            CHECK(cudaStreamBeginCapture(stream[0], cudaStreamCaptureModeThreadLocal));
            for (int r = 0; r < 100; r++) {
                int at = two ? r % 2 : 0;
                small_kernel<<<1, 128, 0, stream[at]>>>(small);
                if (two) {
                    cudaEvent_t e;
                    CHECK(cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
                    CHECK(cudaEventRecord(e, stream[at]));
                    CHECK(cudaStreamWaitEvent(stream[1 - at], e, 0));
                }
            }
            CHECK(cudaStreamEndCapture(stream[0], &graph));
            CHECK(cudaGraphInstantiate(&exec, graph, 0));
            printf("chain of 100 small kernels %s: %.2f us each\n",
                   two ? "alternating between two shares" : "on one share",
                   best_us(stream[0], exec, 100));
        }
    }
    return 0;
}
