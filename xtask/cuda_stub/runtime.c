// The runtime of translated kernels: the threads of a block (which run one after the other, or as fibers if they wait
// for each other), operations of warps, and the counting of accesses. It is a part of the stub driver's library.
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "ptx.h"

// The processor's instruction obeys the mode.
float fma_rounded(float a, float b, float c, int mode) {
    int before = fegetround();
    volatile float x = a, y = b, z = c, result;
    fesetround(mode);
    result = fmaf(x, y, z);
    fesetround(before);
    return result;
}

enum { N_TIMES = 512, N_WARPS_MAX = 32, STACK = 64 << 10 };
enum { RUNS, AT_BARRIER, IN_WARP, ENDED };
// The accesses of a warp at one place of the code: their number per lane, and the addresses of every 2^shift-th access,
// at[(time >> shift) * 32 + lane], so that accesses of any number need memory for N_TIMES.
typedef struct { int n[32]; unsigned shift; uint64_t *at; unsigned char size; unsigned char is_store; } Site;
struct Block { Launch *l; const Code *code; Thread *threads; unsigned n; Site *sites; void *main_sp; };

void record_access(Thread *t, int site, uint64_t address, int n_bytes, int store) {
    Site *s = &t->block->sites[t->warp * t->block->code->n_sites + site];
    if (!s->at) s->at = malloc(8ul * 32 * N_TIMES);
    s->size = n_bytes; s->is_store = store;
    int time = s->n[t->lane]++;
    if (time & ((1 << s->shift) - 1)) return;
    if (time >> s->shift == N_TIMES) {
        for (int i = 1; i < N_TIMES / 2; i++) memcpy(s->at + 32 * i, s->at + 64 * i, 8 * 32);
        s->shift++;
    }
    s->at[(time >> s->shift) * 32 + t->lane] = address;
}

static long larger(long a, long b) { return a < b ? b : a; }

// Returns the accesses at a site, whose sectors are estimated if not all addresses were kept, and clears it.
static Accesses count_site(Site *s) {
    int most = 0, n_kept = 0; long n_sectors = 0, n_accesses = 0;
    for (int lane = 0; lane < 32; lane++) { most = larger(most, s->n[lane]); n_accesses += s->n[lane]; }
    for (; (long)n_kept << s->shift < most; n_kept++) {
        uint64_t seen[128]; int n_seen = 0;
        for (int lane = 0; lane < 32; lane++) {
            if (n_kept << s->shift >= s->n[lane]) continue;
            uint64_t first = s->at[n_kept * 32 + lane] / 32, last = (s->at[n_kept * 32 + lane] + s->size - 1) / 32;
            for (uint64_t sector = first; sector <= last; sector++) {
                int k = 0; while (k < n_seen && seen[k] != sector) k++;
                if (k == n_seen && n_seen < 128) seen[n_seen++] = sector;
            }
        }
        n_sectors += n_seen;
    }
    memset(s->n, 0, sizeof s->n); s->shift = 0;
    return (Accesses){most, n_kept ? (long)((double)n_sectors * most / n_kept) : 0, n_accesses * s->size};
}

// Adds the accesses and operations of a block to those of the launch, and clears its sites.
static void count_block(Counts *c, Block *block) {
    long n_sectors = 0, n_ops = 0;
    for (unsigned warp = 0; 32 * warp < block->n; warp++) {
        Site *sites = block->sites + warp * block->code->n_sites;
        long of_lanes[32] = {0};
        for (unsigned i = 0; i < block->code->n_sites; i++) {
            Site *s = &sites[i]; if (!s->at) continue;
            for (int lane = 0; lane < 32; lane++) {
                of_lanes[lane] += s->n[lane];
                c->longest_site = larger(c->longest_site, s->n[lane]);
            }
            Accesses *total = s->is_store ? &c->writes : &c->reads, of_site = count_site(s);
            total->requests += of_site.requests; total->sectors += of_site.sectors; total->bytes += of_site.bytes;
            n_sectors += of_site.sectors;
        }
        for (int lane = 0; lane < 32; lane++) c->longest = larger(c->longest, of_lanes[lane]);
    }
    for (unsigned i = 0; i < block->n; i++) n_ops += block->threads[i].n_ops;
    c->largest_sectors = larger(c->largest_sectors, n_sectors);
    c->largest_ops = larger(c->largest_ops, n_ops);
}

// Switches stacks, for kernels whose threads wait for each other.
__asm__(".text\n.local switch_to\nswitch_to:\n push %rbp\n push %rbx\n push %r12\n push %r13\n push %r14\n push %r15\n mov %rsp,(%rdi)\n mov %rsi,%rsp\n pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbx\n pop %rbp\n ret\n");
extern void switch_to(void **save, void *to) __asm__("switch_to");
static void leave(Thread *t, int state) { t->state = state; switch_to(&t->sp, t->block->main_sp); }
static __thread Thread *starting;
static void first(void) { Thread *t = starting; t->block->code->body(t->block->l, t); t->state = ENDED; for (;;) switch_to(&t->sp, t->block->main_sp); }

static float element(Thread *warp, int base, int index, int kind) {
    int lane = index % 32, e = index / 32; unsigned *r = warp[lane].in + base;
    if (kind == 2) return F(r[e]);
    uint16_t h = r[e / 2] >> (16 * (e % 2)); return kind == 1 ? B(h) : H(h);
}
// Ends the process with an error of a lane in an operation of a warp. Operations are numbered in the order of the code.
static void fail_in_lane(const Thread *t, const char *what, unsigned lane, const char *why) {
    char text[200];
    snprintf(text, sizeof text, "lane %u %s lane %u, which %s %08x (operation %d of a warp)", t->lane, what, lane, why, t->mask, t->place);
    stub_fail(text, t->block->code->name);
}

// Returns the lanes that wait for the same operation with the same mask, or, to read the mask of the active lanes, at the
// same place after the same branches.
static uint32_t lanes_with(const Thread *w, unsigned n, const Thread *t) {
    uint32_t lanes = 0;
    for (unsigned i = 0; i < n; i++) {
        int is_same = t->op == ACTIVE_MASK ? w[i].place == t->place && w[i].path == t->path : w[i].mask == t->mask;
        if (w[i].state == IN_WARP && w[i].op == t->op && is_same) lanes |= 1u << i;
    }
    return lanes;
}

// Returns the lanes of a mask that have not ended.
static uint32_t living(const Thread *w, unsigned n, uint32_t mask) {
    uint32_t lanes = 0; for (unsigned i = 0; i < n; i++) if (w[i].state != ENDED) lanes |= 1u << i;
    return lanes & mask;
}

// Executes an operation of a warp for which all lanes of its mask have come, and returns false if there is none. Of
// several, the first in the code is executed, so that lanes that took a longer path come to the place of the others.
static int warp_op(Thread *w, unsigned n) {
    const Thread *first = 0;
    for (unsigned i = 0; i < n; i++) {
        if (w[i].state != IN_WARP || first && first->place <= w[i].place) continue;
        if (w[i].op == ACTIVE_MASK || lanes_with(w, n, &w[i]) == living(w, n, w[i].mask)) first = &w[i];
    }
    if (!first) return 0;
    int op = first->op; uint32_t here = lanes_with(w, n, first);
    if (op >= SHFL_IDX && op <= SHFL_BFLY) {
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
            if (!(here >> j & 1)) fail_in_lane(&w[i], "reads a value of", j, "is not in its mask");
            w[i].out[0] = w[j].in[0]; w[i].out[1] = ok;
        }
    } else if (op == BALLOT || op == ACTIVE_MASK) {
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
    else if (op != SYNC_WARP && op != WMMA_TILE) stub_fail("an unknown operation of a warp", w[0].block->code->name);
    for (unsigned i = 0; i < n; i++) if (here >> i & 1) w[i].state = RUNS;
    return 1;
}
void collective(Thread *t, int op, int place, uint32_t mask) {
    t->op = op; t->place = place; t->mask = mask;
    if (op != ACTIVE_MASK && !(mask >> t->lane & 1)) fail_in_lane(t, "takes part as", t->lane, "is not in its mask");
    leave(t, IN_WARP);
}
void barrier(Thread *t) { leave(t, AT_BARRIER); }

// Ends the process with the reason for which no thread of a block can continue.
static void fail_of_wait(Block *b) {
    for (unsigned i = 0; i < b->n; i++) {
        const Thread *t = &b->threads[i];
        if (t->state != IN_WARP) continue;
        unsigned first = i / 32 * 32, n = b->n - first < 32 ? b->n - first : 32;
        uint32_t missing = living(b->threads + first, n, t->mask) & ~lanes_with(b->threads + first, n, t);
        fail_in_lane(t, "waits for", __builtin_ctz(missing), "never comes, but is in its mask");
    }
    stub_fail("the threads of a block wait for each other forever", b->code->name);
}

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
                ran |= warp_op(b->threads + w, n);
                moved |= ran;
                if (!ran) break;
            }
        }
        for (unsigned i = 0; i < b->n; i++) { ended += b->threads[i].state == ENDED; at_barrier += b->threads[i].state == AT_BARRIER; }
        if (ended == b->n) return;
        if (ended + at_barrier == b->n) for (unsigned i = 0; i < b->n; i++) { if (b->threads[i].state == AT_BARRIER) b->threads[i].state = RUNS; }
        else if (!moved) fail_of_wait(b);
    }
}

void run_blocks(Launch *l, const Code *code) {
    static __thread Thread *threads;
    static __thread Site *sites;
    static __thread unsigned n_sites, room, locals_room;
    static __thread char *shared, *locals;
    unsigned n = l->bx * l->by * l->bz, local_bytes = (code->local_bytes + 63) / 32 * 32;
    if (room < n) { threads = realloc(threads, n * sizeof *threads); memset(threads + room, 0, (n - room) * sizeof *threads); room = n; }
    if (!shared) shared = mmap(0, SHARED_ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
    unsigned locals_needed = (code->needs_fibers ? n : 1) * local_bytes;
    if (locals_room < locals_needed) { free(locals); locals = aligned_alloc(32, locals_needed); locals_room = locals_needed; }
    if (l->n_counted && n_sites < N_WARPS_MAX * code->n_sites) {
        sites = realloc(sites, N_WARPS_MAX * code->n_sites * sizeof *sites);
        memset(sites + n_sites, 0, (N_WARPS_MAX * code->n_sites - n_sites) * sizeof *sites);
        n_sites = N_WARPS_MAX * code->n_sites;
    }
    Block block = {l, code, threads, n, sites, 0};
    if (code->needs_fibers)
        for (unsigned i = 0; i < n; i++) if (!threads[i].stack) threads[i].stack = mmap(0, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    long n_blocks = (long)l->gx * l->gy * l->gz, n_counted = l->n_counted < n_blocks ? l->n_counted : n_blocks;
    long at = 0, counted = 0;
    for (unsigned cz = 0; cz < l->gz; cz++) for (unsigned cy = 0; cy < l->gy; cy++) for (unsigned cx = 0; cx < l->gx; cx++, at++) {
        int counts = counted < n_counted && at == counted * n_blocks / n_counted;
        if (l->is_skipped && !counts) continue;
        counted += counts;
        memset(shared, 0xA5, code->shared_bytes + l->shared);
        unsigned i = 0;
        for (unsigned z = 0; z < l->bz; z++) for (unsigned y = 0; y < l->by; y++) for (unsigned x = 0; x < l->bx; x++, i++) {
            Thread *t = &threads[i];
            t->tx = x; t->ty = y; t->tz = z; t->cx = cx; t->cy = cy; t->cz = cz; t->lane = i % 32; t->warp = i / 32; t->counts = counts; t->n_ops = 0;
            t->block = &block; t->shared = shared; t->local = locals + (code->needs_fibers ? i * local_bytes : 0);
            if (!code->needs_fibers) code->body(l, t);
        }
        if (code->needs_fibers) run_fibers(&block);
        if (counts) count_block(l->counts, &block);
    }
    long *estimated[] = {&l->counts->reads.requests, &l->counts->reads.sectors, &l->counts->reads.bytes,
                         &l->counts->writes.requests, &l->counts->writes.sectors, &l->counts->writes.bytes};
    if (counted) for (int i = 0; i < 6; i++) *estimated[i] = (long)((double)*estimated[i] * n_blocks / counted);
}
