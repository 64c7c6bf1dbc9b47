// The runtime of translated kernels: types, conversions, the threads of a block (which run one after the other, or as
// fibers if they wait for each other), and the counting of 32-byte sectors.
#include <fenv.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef struct { unsigned gx, gy, gz, bx, by, bz, shared; const char *params; long *sectors; } Launch;
typedef union { float f; uint32_t u; } U32; typedef union { double f; uint64_t u; } U64;
static inline float F(uint32_t u) { U32 x; x.u = u; return x.f; }
static inline uint32_t FI(float f) { U32 x; x.f = f; return x.u; }
static inline double D(uint64_t u) { U64 x; x.u = u; return x.f; }
static inline uint64_t DI(double f) { U64 x; x.f = f; return x.u; }
static inline float H(uint16_t u) { _Float16 h; memcpy(&h, &u, 2); return (float)h; }
static inline uint16_t HI(float f) { _Float16 h = (_Float16)f; uint16_t u; memcpy(&u, &h, 2); return u; }
static inline float B(uint16_t u) { return F((uint32_t)u << 16); }
static inline uint16_t BI(float f) { uint32_t u = FI(f); if (f != f) return 0x7fff; u += 0x7fff + ((u >> 16) & 1); return u >> 16; }
static inline uint32_t TF(float f) { uint32_t u = FI(f); if (f != f) return u; return (u + 0x1000) & ~0x1fffu; }
#define PACK(lo, hi) ((uint32_t)(uint16_t)(lo) | (uint32_t)(uint16_t)(hi) << 16)
static inline int64_t to_s64(double x, double lo, double hi) { if (x != x) return 0; if (x <= lo) return (int64_t)lo; if (x >= hi) return hi > 9e18 ? INT64_MAX : (int64_t)hi; return (int64_t)x; }
static inline uint64_t to_u64(double x, double hi) { if (!(x > 0)) return 0; if (x >= hi) return hi > 1.8e19 ? UINT64_MAX : (uint64_t)hi; return (uint64_t)x; }
// A fused multiply-add with a rounding mode other than round-to-nearest. The processor's instruction obeys the mode.
static inline float fma_rounded(float a, float b, float c, int mode) {
    int before = fegetround();
    volatile float x = a, y = b, z = c, result;
    fesetround(mode);
    result = fmaf(x, y, z);
    fesetround(before);
    return result;
}
static inline float sat(float x) { return x != x ? 0 : x < 0 ? 0 : x > 1 ? 1 : x; }
static inline uint32_t prmt(uint32_t a, uint32_t b, uint32_t s) {
    uint64_t all = (uint64_t)b << 32 | a; uint32_t d = 0;
    for (int i = 0; i < 4; i++) { uint32_t n = s >> (4 * i) & 15, v = all >> (8 * (n & 7)) & 255; if (n & 8) v = v & 128 ? 255 : 0; d |= v << (8 * i); }
    return d;
}
static inline uint32_t brev32(uint32_t x) { uint32_t y = 0; for (int i = 0; i < 32; i++) y |= (x >> i & 1) << (31 - i); return y; }

// Appends the error to the file that the stub driver uses for errors, and ends the process.
__attribute__((noreturn)) static void stub_fail(const char *what) {
    char path[600];
    const char *dir = getenv("CUDA_STUB_DIR");
    snprintf(path, sizeof path, "%s/errors", dir ? dir : "cuda-stub");
    FILE *file = fopen(path, "a");
    if (file) { fprintf(file, "pid %d: %s\n", getpid(), what); fclose(file); }
    fprintf(stderr, "cuda stub: %s\n", what);
    _exit(99);
}
// A GPU traps at an access that is not aligned to its width.
#define ALIGNED(at, n) do { if ((at) & ((n) - 1)) stub_fail("an access of " #n " bytes is misaligned in " KERNEL); } while (0)

enum { N_SITES_MAX = 512, N_TIMES = 2048 };
typedef struct { int n[32]; uint64_t *at; unsigned char size; unsigned char is_store; } Site; // at[time * 32 + lane]
struct Block; 
typedef struct {
    unsigned tx, ty, tz, cx, cy, cz, lane; struct Block *block; char *local; char *shared;
    // These fields are used if the thread is a fiber.
    void *stack; void *sp; int state; unsigned in[32], out[32]; int op;
} Thread;
typedef struct Block { Launch *l; Thread *threads; unsigned n; Site *sites; void *main_sp; unsigned waiting; } Block;
enum { RUNS, AT_BARRIER, IN_WARP, ENDED };

static __thread int traces;
#define REC(site, address, n_bytes, store) do { if (__builtin_expect(traces, 0)) record(t, site, (uint64_t)(address), n_bytes, store); } while (0)
static void record(Thread *t, int site, uint64_t address, int n_bytes, int store) {
    Site *s = &t->block->sites[site];
    if (!s->at) s->at = malloc(8ul * 32 * N_TIMES);
    s->size = n_bytes; s->is_store = store;
    int time = s->n[t->lane]++;
    if (time < N_TIMES) s->at[time * 32 + t->lane] = address;
}
static void count_warp(Launch *l, Site *sites) {
    for (int i = 0; i < N_SITES_MAX; i++) {
        Site *s = &sites[i]; if (!s->at) continue;
        int most = 0; for (int lane = 0; lane < 32; lane++) if (s->n[lane] > most) most = s->n[lane];
        if (most > N_TIMES) most = N_TIMES;
        for (int time = 0; time < most; time++) {
            uint64_t seen[128]; int n_seen = 0, lanes = 0;
            for (int lane = 0; lane < 32; lane++) {
                if (time >= s->n[lane]) continue;
                lanes++;
                uint64_t first = s->at[time * 32 + lane] / 32, last = (s->at[time * 32 + lane] + s->size - 1) / 32;
                for (uint64_t sector = first; sector <= last; sector++) {
                    int k = 0; while (k < n_seen && seen[k] != sector) k++;
                    if (k == n_seen && n_seen < 128) seen[n_seen++] = sector;
                }
            }
            long *c = l->sectors + (s->is_store ? 3 : 0);
            c[0]++; c[1] += n_seen; c[2] += (long)lanes * s->size;
        }
        memset(s->n, 0, sizeof s->n);
    }
}

static void body(Launch *l, Thread *t);
static unsigned block_shared, n_sites, needs_fibers, local_bytes;   // set by the kernel

// Switches stacks, for kernels whose threads wait for each other.
__asm__(".text\n.local switch_to\nswitch_to:\n push %rbp\n push %rbx\n push %r12\n push %r13\n push %r14\n push %r15\n mov %rsp,(%rdi)\n mov %rsi,%rsp\n pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbx\n pop %rbp\n ret\n");
extern void switch_to(void **save, void *to) __asm__("switch_to");
static void leave(Thread *t, int state) { t->state = state; switch_to(&t->sp, t->block->main_sp); }
static __thread Thread *starting;
static void first(void) { Thread *t = starting; body(t->block->l, t); t->state = ENDED; for (;;) switch_to(&t->sp, t->block->main_sp); }
enum { STACK = 64 << 10 };

static void warp_op(Thread *warp, unsigned n);   // runs an instruction that all threads of a warp take part in
enum { SHFL_IDX, SHFL_UP, SHFL_DOWN, SHFL_BFLY, BALLOT, WMMA_F32, WMMA_OTHER, REDUX_ADD, REDUX_MIN, REDUX_MAX, REDUX_AND, REDUX_OR, REDUX_XOR, SYNC_WARP };
typedef struct { int m, n, k, a_kind, b_kind; } Mma; // kinds: 0 f16, 1 bf16, 2 tf32
static float element(Thread *warp, int base, int index, int kind) {
    int lane = index % 32, e = index / 32; unsigned *r = warp[lane].in + base;
    if (kind == 2) return F(r[e]);
    uint16_t h = r[e / 2] >> (16 * (e % 2)); return kind == 1 ? B(h) : H(h);
}
static void warp_op(Thread *w, unsigned n) {
    int op = -1; for (unsigned i = 0; i < n; i++) if (w[i].state == IN_WARP) { op = w[i].op; break; }
    unsigned here = 0; for (unsigned i = 0; i < n; i++) if (w[i].state == IN_WARP && w[i].op == op) here |= 1u << i;
    if ((op & 255) >= SHFL_IDX && (op & 255) <= SHFL_BFLY) {
        for (unsigned i = 0; i < n; i++) if (here >> i & 1) {
            unsigned b = w[i].in[1] & 31, c = w[i].in[2], seg = c >> 8 & 31, clamp = c & 31;
            unsigned max = (i & seg) | (clamp & ~seg), min = i & seg; int j; int ok;
            switch (op) {
            case SHFL_UP: j = (int)i - (int)b; ok = j >= (int)max; break;
            case SHFL_DOWN: j = i + b; ok = j <= (int)max; break;
            case SHFL_BFLY: j = i ^ b; ok = j <= (int)max; break;
            default: j = min | (b & ~seg & 31); ok = j <= (int)max; break;
            }
            if (!ok) j = i;
            w[i].out[0] = j < (int)n ? w[j].in[0] : w[i].in[0]; w[i].out[1] = ok;
        }
    } else if (op == BALLOT) {
        unsigned bits = 0; for (unsigned i = 0; i < n; i++) if ((here >> i & 1) && w[i].in[0]) bits |= 1u << i;
        for (unsigned i = 0; i < n; i++) if (here >> i & 1) { w[i].out[0] = bits; w[i].out[1] = here; }
    } else if (op >= REDUX_ADD && op <= REDUX_XOR) {
        int any = 0; unsigned v = 0;
        for (unsigned i = 0; i < n; i++) if (here >> i & 1) {
            unsigned x = w[i].in[0]; int s = w[i].in[1];
            if (!any) v = x; else switch (op) {
            case REDUX_ADD: v += x; break; case REDUX_AND: v &= x; break; case REDUX_OR: v |= x; break; case REDUX_XOR: v ^= x; break;
            case REDUX_MIN: v = s ? ((int)x < (int)v ? x : v) : x < v ? x : v; break;
            case REDUX_MAX: v = s ? ((int)x > (int)v ? x : v) : x > v ? x : v; break; }
            any = 1;
        }
        for (unsigned i = 0; i < n; i++) if (here >> i & 1) w[i].out[0] = v;
    } else if (op == WMMA_F32) {
        // in: 0..7 A, 8..15 B, 16..23 C (f32); in[24] m, 25 n, 26 k, 27 kind. This file and ptx_to_c.py define the
        // layout of fragments.
        int m = w[0].in[24], nn = w[0].in[25], k = w[0].in[26], kind = w[0].in[27];
        for (int i = 0; i < m * nn; i++) {
            int row = i / nn, col = i % nn; float sum = F(w[i % 32].in[16 + i / 32]);
            for (int j = 0; j < k; j++) sum += element(w, 0, row * k + j, kind) * element(w, 8, j * nn + col, kind);
            w[i % 32].out[i / 32] = FI(sum);
        }
    }
    else if (op != SYNC_WARP) stub_fail("an unknown operation of a warp in " KERNEL);
    for (unsigned i = 0; i < n; i++) if (here >> i & 1) w[i].state = RUNS;
}
static void collective(Thread *t, int op) { t->op = op; leave(t, IN_WARP); }
static void barrier(Thread *t) { leave(t, AT_BARRIER); }

static void run_fibers(Block *b) {
    for (unsigned i = 0; i < b->n; i++) {
        Thread *t = &b->threads[i];
        void **top = (void **)((char *)t->stack + STACK - 64);
        *--top = 0; *--top = (void *)first; for (int r = 0; r < 6; r++) *--top = 0;
        t->sp = top; t->state = RUNS;
    }
    for (;;) {
        unsigned ended = 0, moved = 0, at_barrier = 0;
        for (unsigned w = 0; w < b->n; w += 32) {
            unsigned n = b->n - w < 32 ? b->n - w : 32;
            for (;;) {
                int ran = 0;
                for (unsigned i = w; i < w + n; i++) if (b->threads[i].state == RUNS) { starting = &b->threads[i]; switch_to(&b->main_sp, b->threads[i].sp); ran = 1; }
                int in_warp = 0; for (unsigned i = w; i < w + n; i++) in_warp += b->threads[i].state == IN_WARP;
                if (in_warp) { warp_op(b->threads + w, n); ran = 1; }
                moved |= ran;
                if (!ran) break;
            }
        }
        for (unsigned i = 0; i < b->n; i++) { ended += b->threads[i].state == ENDED; at_barrier += b->threads[i].state == AT_BARRIER; }
        if (ended == b->n) return;
        if (ended + at_barrier == b->n) for (unsigned i = 0; i < b->n; i++) { if (b->threads[i].state == AT_BARRIER) b->threads[i].state = RUNS; }
        else if (!moved) stub_fail("the threads of a block wait for each other forever in " KERNEL);
    }
}
static void setup(void);
void run(Launch *l) {
    setup();
    unsigned n = l->bx * l->by * l->bz;
    static __thread Block block; static __thread Thread *threads; static __thread unsigned room; static __thread char *shared, *locals; static __thread Site *sites;
    if (room < n) { threads = calloc(n, sizeof(Thread)); room = n; locals = 0; }
    if (!shared) shared = mmap(0, 512 << 10, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
    if (!locals) locals = calloc(needs_fibers ? room : 1, local_bytes + 64);
    if (!sites) sites = calloc(N_SITES_MAX, sizeof(Site));
    block = (Block){l, threads, n, sites, 0, 0};
    if (needs_fibers && !threads[n - 1].stack)
        for (unsigned i = 0; i < n; i++) if (!threads[i].stack) threads[i].stack = mmap(0, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    long n_blocks = (long)l->gx * l->gy * l->gz, done = 0, most = getenv("CUDA_STUB_SECTORS") ? atol(getenv("CUDA_STUB_SECTORS")) : 1, every = n_blocks / most + 1, counted = 0;
    for (unsigned cz = 0; cz < l->gz; cz++) for (unsigned cy = 0; cy < l->gy; cy++) for (unsigned cx = 0; cx < l->gx; cx++, done++) {
        traces = l->sectors && done % every == 0; counted += traces;
        memset(shared, 0xA5, block_shared + l->shared);
        unsigned i = 0;
        for (unsigned z = 0; z < l->bz; z++) for (unsigned y = 0; y < l->by; y++) for (unsigned x = 0; x < l->bx; x++, i++) {
            Thread *t = &threads[i];
            t->tx = x; t->ty = y; t->tz = z; t->cx = cx; t->cy = cy; t->cz = cz; t->lane = i % 32; t->block = &block; t->shared = shared;
            t->local = (char *)(((uintptr_t)locals + (needs_fibers ? i * (unsigned long)(local_bytes + 64) : 0) + 31) / 32 * 32);
            if (!needs_fibers) { body(l, t); if (traces && (t->lane == 31 || i + 1 == n)) count_warp(l, sites); }
        }
        if (needs_fibers) { int was = traces; traces = 0; run_fibers(&block); traces = was; }
    }
    if (l->sectors && counted) for (int i = 0; i < 6; i++) l->sectors[i] = (long)((double)l->sectors[i] * n_blocks / counted);
}
