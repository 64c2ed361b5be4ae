// SPDX-License-Identifier: Apache-2.0
// Products of matrices over Z_2^n on the int8 tensor cores: words as balanced limbs of eight bits,
// the product of two words modulo 2^n as the limb products that still count. A block keeps one
// accumulator tile per power of 2^8, so every limb is read once and nothing is written between.
// Sums stay below 2^31: each limb product is at most 2^14, and k is cut accordingly.
#include "cuda/context.cuh"

enum { TILE_M = 64, TILE_N = 32, GEMM_THREADS = 128, STAGES = 4 };

// A thread splits four neighbours along k, for all limbs.
__global__ void split_kernel(const __grid_constant__ cuda_split s)
{
    uint64_t blocks = (s.k + CUDA_BLOCK_K - 1) / CUDA_BLOCK_K, quads = blocks * 8;
    uint64_t pitch = (s.rows + 63) / 64 * 64, total = s.batch * s.rows * quads;
    GRID_LOOP(i, total)
    {
        uint64_t t = i / (s.rows * quads), rest = i % (s.rows * quads);
        uint64_t row = s.transposed ? rest % s.rows : rest / quads;
        uint64_t quad = s.transposed ? rest / s.rows : rest % quads;
        uint64_t v[4];
#pragma unroll
        for (unsigned q = 0; q < 4; q++) {
            uint64_t k = quad * 4 + q;
            uint64_t at = t * s.rows * s.k + (s.transposed ? k * s.rows + row : row * s.k + k);
            v[q] = k < s.k ? s.cx * s.x[at] + (s.r ? s.cr * s.r[at] : 0) : 0;
        }
        uint32_t *out = (uint32_t *)(s.out + ((t * pitch + row) * blocks + quad / 8) * s.limbs *
                                                 CUDA_BLOCK_K) +
                        quad % 8;
        for (unsigned limb = 0; limb < s.limbs; limb++) {
            uint32_t word = 0;
#pragma unroll
            for (unsigned q = 0; q < 4; q++) {
                int8_t digit = (int8_t)(v[q] & 255);
                word |= (uint32_t)(uint8_t)digit << (8 * q);
                v[q] = (v[q] - (uint64_t)(int64_t)digit) >> 8;
            }
            out[limb * (CUDA_BLOCK_K / 4)] = word;
        }
    }
}

extern "C" void launch_split(cuda_context *c, const cuda_split *s)
{
    uint64_t n = s->batch * s->rows * ((s->k + CUDA_BLOCK_K - 1) / CUDA_BLOCK_K) * 8;
    if (!n)
        return;
    split_kernel<<<launch_blocks(c, n, 256, 16), 256, 0, c->stream>>>(*s);
    launch_check(c);
}

__device__ static inline void copy16(uint32_t to, const void *from)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from));
}
__device__ static inline void matrices(uint32_t r[4], uint32_t from)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(from));
}
__device__ static inline void multiply(int c[4], const uint32_t a[4], const uint32_t *b)
{
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
                 "{%8,%9}, {%0,%1,%2,%3};"
                 : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Where half a line (16 bytes of k) of a row lies: swizzled so that eight rows hit all banks.
__device__ static inline uint32_t line(unsigned row, unsigned half)
{
    return row * 32 + ((half ^ (row >> 2 & 1)) * 16);
}

struct gemm_args {
    cuda_gemm g;
    uint64_t blocks, a_rows, b_rows; // of k; of a matrix with its padding
    unsigned splits, per_split;
};

template <int L>
__global__ void __launch_bounds__(GEMM_THREADS, 2) gemm_kernel(const __grid_constant__ gemm_args p)
{
    extern __shared__ __align__(128) unsigned char tiles[];
    const uint32_t base = (uint32_t)__cvta_generic_to_shared(tiles);
    constexpr unsigned A_BYTES = L * TILE_M * 32, STAGE = A_BYTES + L * TILE_N * 32;
    const cuda_gemm &g = p.g;
    const unsigned split = blockIdx.z % p.splits, t = blockIdx.z / p.splits;
    const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const uint64_t row0 = (uint64_t)blockIdx.y * TILE_M, col0 = (uint64_t)blockIdx.x * TILE_N;
    const uint64_t first = (uint64_t)split * p.per_split;
    const unsigned count =
        (unsigned)(p.blocks - first < p.per_split ? p.blocks - first : p.per_split);
    const int8_t *a = g.a + ((g.a_at ? g.a_at[t] : t) * p.a_rows + row0) * p.blocks * L * 32;
    const int8_t *b = g.b + ((g.b_at ? g.b_at[t] : t) * p.b_rows + col0) * p.blocks * L * 32;
    int acc[L][2][2][4] = {};

    auto fetch = [&](unsigned kb) {
        uint32_t to = base + kb % STAGES * STAGE;
        for (unsigned c = threadIdx.x; c < (TILE_M + TILE_N) * L * 2; c += GEMM_THREADS) {
            unsigned row = c / (2 * L), rest = c % (2 * L), limb = rest / 2, half = rest & 1;
            bool second = row >= TILE_M;
            unsigned r = second ? row - TILE_M : row;
            const int8_t *from = (second ? b : a) + (r * p.blocks + first + kb) * L * 32 + rest * 16;
            uint32_t at = second ? A_BYTES + limb * (TILE_N * 32) : limb * (TILE_M * 32);
            copy16(to + at + line(r, half), from);
        }
    };
#pragma unroll
    for (unsigned s = 0; s < STAGES - 1; s++) {
        if (s < count)
            fetch(s);
        asm volatile("cp.async.commit_group;");
    }
    const unsigned wm = warp & 1, wn = warp >> 1, q = lane >> 3, r8 = lane & 7;
    const uint32_t a_line[2] = {line(wm * 32 + (q & 1) * 8 + r8, q >> 1),
                                line(wm * 32 + 16 + (q & 1) * 8 + r8, q >> 1)};
    const uint32_t b_line = line(wn * 16 + (q >> 1) * 8 + r8, q & 1);
    for (unsigned kb = 0; kb < count; kb++) {
        asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2));
        __syncthreads();
        if (kb + STAGES - 1 < count)
            fetch(kb + STAGES - 1);
        asm volatile("cp.async.commit_group;");
        uint32_t from = base + kb % STAGES * STAGE, bf[L][4];
#pragma unroll
        for (int j = 0; j < L; j++)
            matrices(bf[j], from + A_BYTES + j * (TILE_N * 32) + b_line);
#pragma unroll
        for (int i = 0; i < L; i++) {
            uint32_t af[2][4];
            matrices(af[0], from + i * (TILE_M * 32) + a_line[0]);
            matrices(af[1], from + i * (TILE_M * 32) + a_line[1]);
#pragma unroll
            for (int j = 0; j < L - i; j++)
#pragma unroll
                for (int m = 0; m < 2; m++)
#pragma unroll
                    for (int n = 0; n < 2; n++)
                        multiply(acc[i + j][m][n], af[m], bf[j] + 2 * n);
        }
    }
    uint64_t *z = g.z + (uint64_t)t * g.m * g.n;
#pragma unroll
    for (int m = 0; m < 2; m++)
#pragma unroll
        for (int n = 0; n < 2; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                uint64_t row = row0 + wm * 32 + m * 16 + lane / 4 + (e >> 1) * 8;
                uint64_t col = col0 + wn * 16 + n * 8 + lane % 4 * 2 + (e & 1), sum = 0;
#pragma unroll
                for (int d = 0; d < L; d++)
                    sum += (uint64_t)(int64_t)acc[d][m][n][e] << (8 * d);
                if (row >= g.m || col >= g.n)
                    continue;
                if (p.splits > 1)
                    atomicAdd((unsigned long long *)&z[row * g.n + col], sum);
                else
                    z[row * g.n + col] += sum;
            }
}

template <int L> static void gemm_start(cuda_context *c, const gemm_args &p, dim3 grid)
{
    size_t bytes = (size_t)STAGES * L * (TILE_M + TILE_N) * 32;
    cudaFuncSetAttribute(gemm_kernel<L>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
    gemm_kernel<L><<<grid, GEMM_THREADS, bytes, c->stream>>>(p);
}

extern "C" void launch_gemm(cuda_context *c, const cuda_gemm *g)
{
    gemm_args p = {*g, (g->k + CUDA_BLOCK_K - 1) / CUDA_BLOCK_K, cuda_split_rows(g->m),
                   cuda_split_rows(g->n), 1, 1};
    uint64_t across = (g->n + TILE_N - 1) / TILE_N, down = (g->m + TILE_M - 1) / TILE_M;
    uint64_t tiles = across * down * g->batch, wanted = 2 * (uint64_t)c->processors;
    if (!tiles || !p.blocks || launch_large(c, g))
        return;
    uint64_t least = (p.blocks * CUDA_BLOCK_K * g->limbs + 131071) / 131072;
    uint64_t splits = tiles < wanted ? wanted / tiles : 1;
    if (splits > (p.blocks + 3) / 4)
        splits = (p.blocks + 3) / 4;
    if (splits < least)
        splits = least;
    p.per_split = (unsigned)((p.blocks + splits - 1) / splits);
    p.splits = (unsigned)((p.blocks + p.per_split - 1) / p.per_split);
    dim3 grid((unsigned)across, (unsigned)down, (unsigned)(p.splits * g->batch));
    switch (g->limbs) {
    case 1:
        gemm_start<1>(c, p, grid);
        break;
    case 2:
        gemm_start<2>(c, p, grid);
        break;
    case 3:
        gemm_start<3>(c, p, grid);
        break;
    case 4:
        gemm_start<4>(c, p, grid);
        break;
    case 5:
        gemm_start<5>(c, p, grid);
        break;
    case 6:
        gemm_start<6>(c, p, grid);
        break;
    case 7:
        gemm_start<7>(c, p, grid);
        break;
    default:
        gemm_start<8>(c, p, grid);
        break;
    }
    launch_check(c);
}
