// What a translated kernel consists of besides its body: types, conversions, and calls of the runtime (runtime.c). It is
// short because it is compiled with every kernel.
#include <fenv.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

// The accesses of warps to device memory: instructions, counted once per warp, 32-byte sectors that they touch, and bytes.
typedef struct { long requests, sectors, bytes; } Accesses;
// What a launch did, from the blocks in which it was counted. Vectors count as one access.
typedef struct {
    Accesses reads, writes;             // of all blocks, estimated from the counted ones
    long longest, longest_site;         // the most accesses of one thread: in all, and at one place of the code
    long largest_sectors, largest_ops;  // the most sectors and floating-point operations of one block
} Counts;
typedef struct { unsigned gx, gy, gz, bx, by, bz, shared; const char *params;
    Counts *counts; int n_counted;   // the number of blocks that are counted: evenly spaced ones, or 0
    int is_skipped;                  // whether no other block is executed
} Launch;
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
// A fused multiply-add with a rounding mode other than round-to-nearest.
float fma_rounded(float a, float b, float c, int mode);
static inline float sat(float x) { return x != x ? 0 : x < 0 ? 0 : x > 1 ? 1 : x; }
static inline uint32_t prmt(uint32_t a, uint32_t b, uint32_t s) {
    uint64_t all = (uint64_t)b << 32 | a; uint32_t d = 0;
    for (int i = 0; i < 4; i++) { uint32_t n = s >> (4 * i) & 15, v = all >> (8 * (n & 7)) & 255; if (n & 8) v = v & 128 ? 255 : 0; d |= v << (8 * i); }
    return d;
}
static inline uint32_t brev32(uint32_t x) { uint32_t y = 0; for (int i = 0; i < 32; i++) y |= (x >> i & 1) << (31 - i); return y; }

// Ends the process with an error.
__attribute__((noreturn)) void stub_fail(const char *what, const char *kernel);
// A GPU traps at an access that is not aligned to its width.
#define ALIGNED(at, n) do { if ((at) & ((n) - 1)) stub_fail("an access of " #n " bytes is misaligned", KERNEL); } while (0)


typedef struct Block Block;
typedef struct {
    unsigned tx, ty, tz, cx, cy, cz, lane, warp; Block *block; char *local; char *shared;
    int counts;   // whether accesses to device memory are counted
    long n_ops;   // the floating-point operations of a thread that has ended
    // These fields are used if the thread is a fiber.
    void *stack; void *sp; int state; unsigned in[32], out[32];
    int op, place; uint32_t mask; uint64_t path;   // the operation of a warp for which the thread waits
} Thread;

#define REC(site, address, n_bytes, store) do { if (__builtin_expect(t->counts, 0)) record_access(t, site, (uint64_t)(address), n_bytes, store); } while (0)
void record_access(Thread *t, int site, uint64_t address, int n_bytes, int store);

// Whether a thread's write is discarded: a block of a skipped launch is executed only to count what it does, and must not
// leave parts of results in device memory. It writes to its own shared and local memory.
enum { SHARED_ROOM = 512 << 10, LOCAL_ROOM = 1 << 20 };
static inline int is_of_block(const Thread *t, uint64_t at) {
    return at - (uint64_t)t->shared < SHARED_ROOM || at - (uint64_t)t->local < LOCAL_ROOM;
}
#define DISCARDED(at) (__builtin_expect(l->is_skipped, 0) && !is_of_block(t, (uint64_t)(at)))

// Operations of several threads. `place` is the place in the code, and `mask` has the lanes that take part.
enum { SHFL_IDX, SHFL_UP, SHFL_DOWN, SHFL_BFLY, BALLOT, ACTIVE_MASK, REDUX_ADD, REDUX_MIN, REDUX_MAX, REDUX_AND, REDUX_OR, REDUX_XOR,
    SYNC_WARP, WMMA_F32, WMMA_TILE };
enum { FULL_MASK = 0xffffffffu };
void collective(Thread *t, int op, int place, uint32_t mask);
void barrier(Thread *t);

// Adds a branch to the hash of the branches that a thread took since all lanes of its warp were last synchronized.
#define BRANCH(place, taken) path = (path ^ (2 * (place) + ((taken) != 0) + 1)) * 0x9e3779b97f4a7c15ull

// A kernel: its body, and what it needs.
typedef struct { const char *name; void (*body)(Launch *, Thread *); unsigned shared_bytes, n_sites, needs_fibers, local_bytes; } Code;
void run_blocks(Launch *l, const Code *code);
