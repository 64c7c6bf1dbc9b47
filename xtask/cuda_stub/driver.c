// A stub of the CUDA driver (libcuda.so.1) for machines without a GPU. It reports H200 or A100 devices, translates the
// PTX of every kernel to C (ptx_to_c.py), compiles that with the system's C compiler, runs it on the CPU (runtime.c),
// and writes a trace of launches, copies, waits and allocations.
//
// The stub is strict. A kernel that cannot be translated, a driver function that it does not implement, a pointer to
// the memory of another device and an access past an allocation each end the process with status 99 and a line in
// CUDA_STUB_DIR/errors.
//
//   CUDA_STUB_DIR      the folder for kernels, traces and errors (default: cuda-stub). Translated kernels are reused.
//   CUDA_STUB_ARCH     the compute capability of the devices without its point: 90, an H200 (default), or 80, an A100
//   CUDA_STUB_DEVICES  the number of devices (default: 1, at most 8)
//   CUDA_STUB_TRACE    the file for the trace (default: trace.PID in CUDA_STUB_DIR)
//   CUDA_STUB_SECTORS  the number of blocks per launch, evenly spaced, in which accesses to device memory and operations
//                      are counted (default: 0, the fastest)
//   CUDA_STUB_SKIP     an extended regular expression (POSIX). Launches of kernels whose name it matches are checked and
//                      recorded, but of their blocks only the counted ones are executed, and what these write to device
//                      memory is discarded (default: all blocks of all launches are executed)
//   CUDA_STUB_PARTIAL_WARPS  1: partial warps (default: 0). On a GPU, lanes of a warp that took different branches may stay
//                      apart until an instruction synchronizes all of them. In this mode, they do: `activemask` returns
//                      the lanes that took the same branches since the last `bar.warp.sync` of all lanes, or barrier of
//                      the block. Without it, it returns all lanes that come to this place.
//
// In both modes, shuffles, votes and reductions execute when all lanes of their mask have come. A lane of the mask that
// never comes, and a value read from a lane outside of the mask, are errors.
//
// The trace has a line per call: `SECONDS tTHREAD CALL ...`. That of a launch is
//
//   launch NAME HASH grid X Y Z block X Y Z shared BYTES qQUEUE dDEVICE ms TIME [skipped] COUNTS
//
// with `skipped` where CUDA_STUB_SKIP matches the name. COUNTS is empty unless blocks are counted:
//
//   longest N site N largest BYTES OPS read N requests N sectors N bytes wrote N requests N sectors N bytes
//
// `longest` is the largest number of accesses (loads, stores, atomics; a vector is one) of one thread, and `site` the
// largest number of one thread at one place of the code. `largest` has two maxima over the counted blocks: the bytes that
// a block moves (32 per sector that a warp touches, no cache considered), and its floating-point operations, of which a
// fused multiply-add is two, one on a pair of halves twice as many, and a matrix instruction of a warp 2 m n k. What was
// read and written is estimated for all blocks. Atomics count as writes.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <regex.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "ptx.h"

typedef int Result;  // CUresult
enum { SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, INVALID_DEVICE = 101, INVALID_CONTEXT = 201, NOT_FOUND = 500, NOT_READY = 600, NOT_SUPPORTED = 801 };
typedef unsigned long long DevicePtr;

static FILE *trace;
static char dir[512];
static int n_devices = 1, n_counted, arch = 90, is_h200 = 1, has_skip, has_partial_warps;
static regex_t skip;
// The bytes of shared memory that a block may have.
static int max_shared = 232448;
static size_t memory_bytes = 143771ull << 20;
static double started;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec;
}

static int thread_id(void) {
    static __thread int id;
    static int n;
    if (!id) id = __atomic_add_fetch(&n, 1, __ATOMIC_SEQ_CST);
    return id;
}

static void record(const char *format, ...) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    if (!trace) return;
    va_list args;
    va_start(args, format);
    pthread_mutex_lock(&lock);
    fprintf(trace, "%.6f t%d ", now() - started, thread_id());
    vfprintf(trace, format, args);
    fputc('\n', trace);
    fflush(trace);
    pthread_mutex_unlock(&lock);
    va_end(args);
}

// Appends the error to the file in which `cargo xtask` looks for errors, and ends the process. It does not return an
// error code, because a runtime may ignore it.
__attribute__((noreturn, format(printf, 1, 2))) static void fail(const char *format, ...) {
    char line[1024], path[600];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    fprintf(stderr, "cuda stub: %s\n", line);
    snprintf(path, sizeof path, "%s/errors", dir);
    FILE *file = fopen(path, "a");
    if (file) {
        fprintf(file, "pid %d: %s\n", getpid(), line);
        fclose(file);
    }
    record("error %s", line);
    _exit(99);
}

void stub_fail(const char *what, const char *kernel) { fail("%s: %s", kernel, what); }

static void on_crash(int signal, siginfo_t *info, void *context);

// Returns the number in an environment variable, or `unset` if the variable is not set.
static int number_in(const char *name, int unset, int least, int most) {
    char *end;
    const char *value = getenv(name);
    if (!value) return unset;
    long n = strtol(value, &end, 10);
    if (!*value || *end || n < least || most < n) fail("%s is `%s`, expected %d to %d", name, value, least, most);
    return n;
}

__attribute__((constructor)) static void init(void) {
    char path[600];
    const char *value;
    started = now();
    value = getenv("CUDA_STUB_DIR");
    if (!realpath(value ? value : "cuda-stub", dir)) {
        mkdir(value ? value : "cuda-stub", 0777);
        if (!realpath(value ? value : "cuda-stub", dir)) fail("the folder CUDA_STUB_DIR cannot be created");
    }
    n_devices = number_in("CUDA_STUB_DEVICES", n_devices, 0, 8);
    arch = number_in("CUDA_STUB_ARCH", arch, 80, 90);
    if (arch != 80 && arch != 90) fail("CUDA_STUB_ARCH is %d, expected 80 or 90", arch);
    if (arch == 80) is_h200 = 0, max_shared = 166912, memory_bytes = 80ull << 30;
    has_partial_warps = number_in("CUDA_STUB_PARTIAL_WARPS", 0, 0, 1);
    n_counted = number_in("CUDA_STUB_SECTORS", n_counted, 0, 1 << 20);
    if ((value = getenv("CUDA_STUB_SKIP"))) {
        char why[200];
        int error = *value ? regcomp(&skip, value, REG_EXTENDED | REG_NOSUB) : REG_BADPAT;
        regerror(error, &skip, why, sizeof why);
        if (error) fail("CUDA_STUB_SKIP is `%s`, which is not an extended regular expression: %s", value, why);
        has_skip = 1;
    }
    struct sigaction action = {.sa_sigaction = on_crash, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    sigaction(SIGSEGV, &action, 0);
    sigaction(SIGBUS, &action, 0);
    snprintf(path, sizeof path, "%s/trace.%d", dir, getpid());
    value = getenv("CUDA_STUB_TRACE");
    trace = fopen(value ? value : path, "we");
}

// --- devices and contexts ----------------------------------------------------------------------------------------------
typedef struct { int device; } Context;
static Context contexts[8] = {{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}};
static __thread Context *current;

static Result check_device(int device) { return 0 <= device && device < n_devices ? SUCCESS : INVALID_DEVICE; }

// Returns the device of the calling thread's context. Calls that allocate, load or create objects need a context.
static int current_device(const char *call) {
    if (!current) fail("%s was called without a current context", call);
    return current->device;
}

Result cuInit(unsigned flags) { return SUCCESS; }
Result cuDriverGetVersion(int *version) { *version = 13000; return SUCCESS; }
Result cuDeviceGet(int *device, int ordinal) { *device = ordinal; return check_device(ordinal); }
Result cuDeviceGetCount(int *n) { *n = n_devices; return SUCCESS; }
Result cuDeviceGetName(char *name, int room, int device) { snprintf(name, room, is_h200 ? "NVIDIA H200 (stub)" : "NVIDIA A100 (stub)"); return check_device(device); }
static Result uuid(char *uuid, int device) { memset(uuid, 1 + device, 16); return check_device(device); }
Result cuDeviceGetUuid(char *to, int device) { return uuid(to, device); }
Result cuDeviceGetUuid_v2(char *to, int device) { return uuid(to, device); }
Result cuDeviceTotalMem_v2(size_t *n, int device) { *n = memory_bytes; return check_device(device); }
Result cuMemGetInfo_v2(size_t *n_free, size_t *total) { *n_free = *total = memory_bytes; return SUCCESS; }
Result cuDeviceGetPCIBusId(char *id, int room, int device) { snprintf(id, room, "0000:%02x:00.0", 1 + device); return check_device(device); }
Result cuDeviceCanAccessPeer(int *can, int device, int peer) { *can = 0; return check_device(device); }

Result cuDeviceGetAttribute(int *value, int attribute, int device) {
    switch (attribute) {
    case 1: case 2: case 3: *value = 1024; break;  // threads per block, and per axis
    case 4: *value = 64; break;
    case 5: *value = 2147483647; break;            // blocks per axis
    case 6: case 7: *value = 65535; break;
    case 8: *value = 49152; break;                 // shared memory per block
    case 10: *value = 32; break;                   // warp size
    case 12: *value = 65536; break;                // registers per block
    case 13: *value = is_h200 ? 1980000 : 1410000; break;             // clock rate
    case 16: *value = is_h200 ? 132 : 108; break;               // multiprocessors
    case 36: *value = is_h200 ? 3201000 : 1593000; break;             // memory clock
    case 37: *value = is_h200 ? 6144 : 5120; break;               // memory bus
    case 38: *value = (is_h200 ? 60 : 40) << 20; break;            // L2 cache
    case 39: *value = 2048; break;                 // threads per multiprocessor
    case 75: *value = arch / 10; break;            // compute capability
    case 76: *value = arch % 10; break;
    case 81: *value = max_shared + 1024; break;    // shared memory per multiprocessor
    case 82: *value = 65536; break;                // registers per multiprocessor
    case 97: *value = max_shared; break;           // shared memory per block, opt-in
    case 115: *value = 1; break;                   // memory pools
    default: fail("cuDeviceGetAttribute %d is not implemented", attribute);
    }
    return check_device(device);
}

Result cuGetErrorName(Result error, const char **name) { *name = "STUB_ERROR"; return SUCCESS; }
Result cuGetErrorString(Result error, const char **text) { *text = "an error of the stub driver"; return SUCCESS; }
Result cuDevicePrimaryCtxRetain(Context **context, int device) {
    if (check_device(device)) return INVALID_DEVICE;
    *context = &contexts[device];
    return SUCCESS;
}
Result cuDevicePrimaryCtxRelease_v2(int device) { return check_device(device); }
Result cuCtxSetCurrent(Context *context) { current = context; return SUCCESS; }
Result cuCtxGetCurrent(Context **context) { *context = current; return SUCCESS; }
Result cuCtxGetDevice(int *device) { *device = current_device("cuCtxGetDevice"); return SUCCESS; }
Result cuCtxSynchronize(void) { record("wait context d%d", current_device("cuCtxSynchronize")); return SUCCESS; }
Result cuCtxGetStreamPriorityRange(int *least, int *greatest) { *least = 0; *greatest = -5; return SUCCESS; }

// --- memory --------------------------------------------------------------------------------------------------------------
// Every device has its own range of addresses. An allocation ends at a page that cannot be accessed, and a freed one
// cannot be accessed at all.
enum { PAGE = 4096, ALIGNMENT = 512 };
static const size_t arena_bytes = 96ull << 30;
typedef struct { char *start, *next; } Arena;
static Arena arenas[8];
typedef struct { char *at; size_t n_bytes, n_page_bytes; int device; } Allocation;
static Allocation *allocations;
static int n_allocations;
static pthread_mutex_t memory_lock = PTHREAD_MUTEX_INITIALIZER;

static Result allocate(DevicePtr *to, size_t n_bytes, int device) {
    pthread_mutex_lock(&memory_lock);
    Arena *arena = &arenas[device];
    if (!arena->start) {
        void *start = mmap(0, arena_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (start == MAP_FAILED) fail("the addresses of device %d cannot be reserved", device);
        arena->start = arena->next = start;
    }
    size_t room = (n_bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    size_t pages = (room + PAGE - 1) / PAGE * PAGE;
    if (arena->start + arena_bytes < arena->next + pages + PAGE) {
        pthread_mutex_unlock(&memory_lock);
        return OUT_OF_MEMORY;
    }
    if (mprotect(arena->next, pages, PROT_READ | PROT_WRITE)) fail("mprotect: %s", strerror(errno));
    char *at = arena->next + pages - room;
    // A GPU does not zero the memory that a program allocates.
    memset(at, 0xA5, room);
    arena->next += pages + PAGE;
    allocations = realloc(allocations, sizeof *allocations * (n_allocations + 1));
    allocations[n_allocations++] = (Allocation){at, n_bytes, pages, device};
    pthread_mutex_unlock(&memory_lock);
    *to = (DevicePtr)at;
    return SUCCESS;
}

static Result release(DevicePtr pointer) {
    int found = 0;
    pthread_mutex_lock(&memory_lock);
    for (int i = 0; i < n_allocations && !found; i++)
        if (allocations[i].at == (char *)pointer) {
            char *first = (char *)(pointer / PAGE * PAGE);
            madvise(first, allocations[i].n_page_bytes, MADV_DONTNEED);
            mprotect(first, allocations[i].n_page_bytes, PROT_NONE);
            allocations[i] = allocations[--n_allocations];
            found = 1;
        }
    pthread_mutex_unlock(&memory_lock);
    if (!found) fail("%llx was freed, but is not allocated", pointer);
    return SUCCESS;
}

// Returns the device whose range contains the address, or -1 for an address of the host.
static int device_of(uint64_t address) {
    for (int device = 0; device < n_devices; device++) {
        char *start = arenas[device].start;
        if (start && (char *)address >= start && (char *)address < start + arena_bytes) return device;
    }
    return -1;
}

static void on_crash(int signal, siginfo_t *info, void *context) {
    int device = device_of((uint64_t)info->si_addr);
    if (0 <= device) fail("address %p of device %d was accessed, but is outside of all allocations", info->si_addr, device);
    fail("signal %d at address %p", signal, info->si_addr);
}

Result cuMemAlloc_v2(DevicePtr *to, size_t n) {
    int device = current_device("cuMemAlloc");
    record("alloc sync %zu d%d", n, device);
    return allocate(to, n, device);
}
Result cuMemAllocAsync(DevicePtr *to, size_t n, void *stream) {
    int device = current_device("cuMemAllocAsync");
    record("alloc async %zu d%d", n, device);
    return allocate(to, n, device);
}
Result cuMemFree_v2(DevicePtr p) { record("free"); return release(p); }
Result cuMemFreeAsync(DevicePtr p, void *stream) { record("free async"); return release(p); }
Result cuMemAllocHost_v2(void **to, size_t n) {
    record("alloc host %zu", n);
    *to = aligned_alloc(ALIGNMENT, (n + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
    return *to ? SUCCESS : OUT_OF_MEMORY;
}
Result cuMemFreeHost(void *p) { free(p); return SUCCESS; }

// --- streams and events: all work is synchronous, except the operations that the stub of NCCL adds to a stream -------
typedef struct { int number, device, n_pending; } Stream;
static Result new_stream(Stream **to) {
    static int n;
    *to = calloc(1, sizeof **to);
    (*to)->number = __atomic_add_fetch(&n, 1, __ATOMIC_SEQ_CST);
    (*to)->device = current_device("cuStreamCreate");
    record("stream q%d d%d", (*to)->number, (*to)->device);
    return SUCCESS;
}
static int number(const Stream *stream) { return stream ? stream->number : 0; }
// The legacy default stream belongs to the current context.
static int device_of_stream(const Stream *stream, const char *call) { return stream ? stream->device : current_device(call); }

Result cuStreamCreate(Stream **to, unsigned flags) { return new_stream(to); }
Result cuStreamCreateWithPriority(Stream **to, unsigned flags, int priority) { return new_stream(to); }
Result cuStreamDestroy_v2(Stream *stream) { return SUCCESS; }
// Called by the stub of NCCL: an operation was added to the stream (1), or has finished (-1).
void cuda_stub_pending(Stream *stream, int change) { __atomic_add_fetch(&stream->n_pending, change, __ATOMIC_SEQ_CST); }
static int is_pending(Stream *stream) { return stream && __atomic_load_n(&stream->n_pending, __ATOMIC_SEQ_CST); }
Result cuStreamQuery(Stream *stream) { return is_pending(stream) ? NOT_READY : SUCCESS; }
Result cuStreamSynchronize(Stream *stream) {
    record("wait stream q%d", number(stream));
    while (is_pending(stream)) usleep(50);
    return SUCCESS;
}
Result cuStreamWaitEvent(Stream *stream, void *event, unsigned flags) { record("queue-waits q%d", number(stream)); return SUCCESS; }
typedef struct { double at; int queue; } Event;
static int n_events;
Result cuEventCreate(Event **to, unsigned flags) {
    *to = calloc(1, sizeof **to);
    record("event-create %d held", __atomic_add_fetch(&n_events, 1, __ATOMIC_SEQ_CST));
    return SUCCESS;
}
Result cuEventRecord(Event *event, Stream *stream) {
    if (stream && current_device("cuEventRecord") != stream->device) fail("cuEventRecord in another context than the stream's");
    event->at = now();
    event->queue = number(stream);
    record("event q%d", number(stream));
    return SUCCESS;
}
Result cuEventSynchronize(Event *event) { record("wait event q%d", event->queue); return SUCCESS; }
Result cuEventQuery(Event *event) { return SUCCESS; }
Result cuEventDestroy_v2(Event *event) {
    record("event-destroy %d held", __atomic_sub_fetch(&n_events, 1, __ATOMIC_SEQ_CST));
    free(event);
    return SUCCESS;
}
Result cuEventElapsedTime(float *ms, Event *a, Event *b) { *ms = 1e3 * (b->at - a->at); return SUCCESS; }
Result cuEventElapsedTime_v2(float *ms, Event *a, Event *b) { return cuEventElapsedTime(ms, a, b); }

// --- copies --------------------------------------------------------------------------------------------------------------
// Ends the process if the memory is not on the stream's device, because a GPU could access such memory only as a peer.
static void check_memory(const void *at, size_t n, const Stream *stream, const char *call) {
    if (n && device_of((uint64_t)at) != device_of_stream(stream, call))
        fail("%s: %p is not memory of device %d", call, at, device_of_stream(stream, call));
}
// Called by the stub of NCCL.
int cuda_stub_device_of(uint64_t address) { return device_of(address); }

static void copy(const char *how, void *to, const void *from, size_t n, const Stream *stream) {
    record("copy %s %zu q%d", how, n, number(stream));
    if (how[2] == 'd') check_memory(to, n, stream, "cuMemcpy, to");
    if (how[0] == 'd') check_memory(from, n, stream, "cuMemcpy, from");
    memmove(to, from, n);
}
Result cuMemcpyHtoDAsync_v2(DevicePtr to, const void *from, size_t n, Stream *stream) { copy("h2d", (void *)to, from, n, stream); return SUCCESS; }
Result cuMemcpyDtoHAsync_v2(void *to, DevicePtr from, size_t n, Stream *stream) { copy("d2h", to, (void *)from, n, stream); return SUCCESS; }
Result cuMemcpyDtoDAsync_v2(DevicePtr to, DevicePtr from, size_t n, Stream *stream) { copy("d2d", (void *)to, (void *)from, n, stream); return SUCCESS; }
Result cuMemcpyHtoD_v2(DevicePtr to, const void *from, size_t n) { copy("h2d", (void *)to, from, n, 0); return SUCCESS; }
Result cuMemcpyDtoH_v2(void *to, DevicePtr from, size_t n) { copy("d2h", to, (void *)from, n, 0); return SUCCESS; }
Result cuMemsetD8Async(DevicePtr to, unsigned char byte, size_t n, Stream *stream) {
    record("memset %zu q%d", n, number(stream));
    check_memory((void *)to, n, stream, "cuMemsetD8Async");
    memset((void *)to, byte, n);
    return SUCCESS;
}
typedef struct {
    size_t src_x, src_y; int src_type; const void *src_host; DevicePtr src_device; void *src_array; size_t src_pitch;
    size_t dst_x, dst_y; int dst_type; void *dst_host; DevicePtr dst_device; void *dst_array; size_t dst_pitch;
    size_t width, height;
} Copy2d;
Result cuMemcpy2DAsync_v2(const Copy2d *c, Stream *stream) {
    enum { HOST = 1 };
    record("copy 2d %zu q%d", c->width * c->height, number(stream));
    const char *from = c->src_type == HOST ? c->src_host : (const char *)c->src_device;
    char *to = c->dst_type == HOST ? c->dst_host : (char *)c->dst_device;
    if (c->src_x || c->src_y || c->dst_x || c->dst_y) fail("cuMemcpy2DAsync with an offset is not implemented");
    if (c->src_type != HOST) check_memory(from, c->width * c->height, stream, "cuMemcpy2DAsync, from");
    if (c->dst_type != HOST) check_memory(to, c->width * c->height, stream, "cuMemcpy2DAsync, to");
    for (size_t y = 0; y < c->height; y++) memcpy(to + y * c->dst_pitch, from + y * c->src_pitch, c->width);
    return SUCCESS;
}

// --- kernels ---------------------------------------------------------------------------------------------------------------
enum { MAX_PARAMS = 256, MAX_PARAM_BYTES = 8192 };
typedef struct {
    char name[256], base[700];
    uint64_t hash;
    int device, n_params, n_param_bytes, size[MAX_PARAMS], offset[MAX_PARAMS], is_ready, is_partial;
    void (*run)(Launch *);
} Kernel;

static uint64_t hash_of(const char *text) {
    uint64_t hash = 1469598103934665603ul;  // FNV-1a
    for (; *text; text++) hash = (hash ^ (unsigned char)*text) * 1099511628211ul;
    return hash;
}

// Returns the folder of this library, which contains the translator.
static const char *home(void) {
    static char path[512];
    Dl_info info;
    if (!*path && dladdr((void *)home, &info)) {
        snprintf(path, sizeof path, "%s", info.dli_fname);
        char *end = strrchr(path, '/');
        if (end) *end = 0; else strcpy(path, ".");
    }
    return path;
}

Result cuModuleLoadData(void **to, const void *image) {
    const char *ptx = image, *entry = strstr(ptx, ".entry");
    char path[720];
    if (!entry) fail("the module has no entry");
    Kernel *kernel = calloc(1, sizeof *kernel);
    kernel->device = current_device("cuModuleLoadData");
    sscanf(entry, ".entry %255[^( \n]", kernel->name);
    kernel->hash = hash_of(ptx);
    // The code of other kernels does not depend on the mode.
    kernel->is_partial = has_partial_warps && strstr(ptx, "activemask");
    snprintf(kernel->base, sizeof kernel->base, "%s/%016lx", dir, kernel->hash);
    snprintf(path, sizeof path, "%s.%d.%d.tmp", kernel->base, getpid(), thread_id());
    FILE *file = fopen(path, "we");
    if (!file) fail("%s: %s", path, strerror(errno));
    fputs(ptx, file);
    if (fclose(file)) fail("%s: %s", path, strerror(errno));
    char ptx_path[720];
    snprintf(ptx_path, sizeof ptx_path, "%s.ptx", kernel->base);
    if (rename(path, ptx_path)) fail("%s: %s", ptx_path, strerror(errno));
    // Parameters in order: `.param .u64 … name` or `.param .align A .b8 name[N]`.
    const char *p = strchr(entry, '('), *end = strchr(p, ')');
    for (; (p = strstr(p, ".param")) && p < end; p++) {
        char one[512];
        size_t n = strcspn(p, ",)");
        snprintf(one, sizeof one, "%.*s", (int)(n < 511 ? n : 511), p);
        // A type begins with a dot, which no name contains.
        int size = 0, align = 0;
        const char *array = strchr(one, '['), *aligned = strstr(one, ".align");
        if (array) {
            size = atoi(array + 1);
            align = aligned ? atoi(aligned + 6) : 1;
        } else {
            const char *types[] = {".u64", ".b64", ".s64", ".f64", ".u32", ".b32", ".s32", ".f32"};
            for (int i = 0; i < 8 && !size; i++)
                if (strstr(one, types[i])) size = align = i < 4 ? 8 : 4;
        }
        if (!size) fail("%s has the parameter `%s`, of an unknown type", kernel->name, one);
        if (kernel->n_params == MAX_PARAMS) fail("%s has more than %d parameters", kernel->name, MAX_PARAMS);
        int offset = (kernel->n_param_bytes + align - 1) / align * align;
        kernel->offset[kernel->n_params] = offset;
        kernel->size[kernel->n_params++] = size;
        kernel->n_param_bytes = offset + size;
        if (MAX_PARAM_BYTES < kernel->n_param_bytes) fail("%s has more than %d bytes of parameters", kernel->name, MAX_PARAM_BYTES);
    }
    record("module %016lx %s d%d", kernel->hash, kernel->name, kernel->device);
    *to = kernel;
    return SUCCESS;
}

// Starts the translator, a process that lives as long as this one, and returns the pipes to and from it.
static void start_translator(FILE **to, FILE **from) {
    int in[2], out[2];
    pid_t pid;
    char script[600];
    posix_spawn_file_actions_t actions;
    if (pipe2(in, O_CLOEXEC) || pipe2(out, O_CLOEXEC)) fail("pipe: %s", strerror(errno));
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in[0], 0);
    posix_spawn_file_actions_adddup2(&actions, out[1], 1);
    snprintf(script, sizeof script, "%s/ptx_to_c.py", home());
    // Python starts faster without its site packages, and must not load the stub.
    char *args[] = {"env", "-u", "LD_LIBRARY_PATH", "-u", "LD_PRELOAD", "python3", "-I", "-S", script, (char *)home(), 0};
    if (posix_spawnp(&pid, "env", &actions, 0, args, environ)) fail("the translator cannot be started");
    posix_spawn_file_actions_destroy(&actions);
    close(in[0]);
    close(out[1]);
    *to = fdopen(in[1], "w");
    *from = fdopen(out[0], "r");
}

// Translates and compiles a kernel. The caller holds the lock of all kernels.
static void build(const Kernel *kernel) {
    static FILE *to, *from;
    char answer[1000];
    if (!to) start_translator(&to, &from);
    fprintf(to, "%s%s\n", kernel->base, kernel->is_partial ? " partial" : "");
    fflush(to);
    if (!fgets(answer, sizeof answer, from)) fail("%s: the translator ended: see %s.ptx", kernel->name, kernel->base);
    answer[strcspn(answer, "\n")] = 0;
    if (strcmp(answer, "ok")) fail("%s: %s: see %s.ptx", kernel->name, answer, kernel->base);
}

// Translates and compiles the kernel, unless this was done before for the same PTX, and loads it.
static void prepare(Kernel *kernel) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    if (__atomic_load_n(&kernel->is_ready, __ATOMIC_ACQUIRE)) return;
    pthread_mutex_lock(&lock);
    if (!kernel->is_ready) {
        char library[720];
        snprintf(library, sizeof library, "%s%s.so", kernel->base, kernel->is_partial ? ".partial" : "");
        if (access(library, R_OK)) build(kernel);
        void *handle = dlopen(library, RTLD_NOW);
        if (handle) kernel->run = (void (*)(Launch *))dlsym(handle, "run");
        if (!kernel->run) fail("%s: %s", kernel->name, dlerror());
        __atomic_store_n(&kernel->is_ready, 1, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&lock);
}

Result cuModuleUnload(void *module) { return SUCCESS; }
Result cuModuleGetFunction(Kernel **to, Kernel *module, const char *name) { *to = module; return strcmp(module->name, name) ? NOT_FOUND : SUCCESS; }
Result cuFuncSetAttribute(Kernel *kernel, int attribute, int value) { return SUCCESS; }
Result cuFuncGetAttribute(int *value, int attribute, Kernel *kernel) { *value = 0; return SUCCESS; }

Result cuLaunchKernel(Kernel *kernel, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                      unsigned shared, Stream *stream, void **params, void **extra) {
    char block[MAX_PARAM_BYTES] __attribute__((aligned(64))) = {0};
    int device = device_of_stream(stream, "cuLaunchKernel");
    if (kernel->device != device) fail("%s of device %d is launched on device %d", kernel->name, kernel->device, device);
    if (current_device("cuLaunchKernel") != device) fail("%s is launched on device %d, but the current context is another one", kernel->name, device);
    // The driver rejects these launches with CUDA_ERROR_INVALID_VALUE.
    if (!gx || !gy || !gz || !bx || !by || !bz || 1024 < (uint64_t)bx * by * bz || 65535 < gy || 65535 < gz || 0x7fffffff < gx || 64 < bz || (unsigned)max_shared < shared)
        fail("%s is launched with grid %u %u %u, block %u %u %u and %u bytes of shared memory", kernel->name, gx, gy, gz, bx, by, bz, shared);
    for (int i = 0; i < kernel->n_params; i++) memcpy(block + kernel->offset[i], params[i], kernel->size[i]);
    for (int at = 0; at + 8 <= kernel->n_param_bytes; at += 8) {
        uint64_t word;
        memcpy(&word, block + at, 8);
        int owner = device_of(word);
        if (0 <= owner && owner != device) fail("%s on device %d has an argument in the memory of device %d", kernel->name, device, owner);
    }
    Counts c = {0};
    int is_skipped = has_skip && !regexec(&skip, kernel->name, 0, 0, 0);
    Launch launch = {gx, gy, gz, bx, by, bz, shared, block, &c, n_counted, is_skipped};
    double before = now();
    if (!is_skipped || n_counted) {
        prepare(kernel);
        kernel->run(&launch);
    }
    char counts[400] = "";
    if (n_counted)
        snprintf(counts, sizeof counts, " longest %ld site %ld largest %ld %ld"
                 " read %ld requests %ld sectors %ld bytes wrote %ld requests %ld sectors %ld bytes",
                 c.longest, c.longest_site, 32 * c.largest_sectors, c.largest_ops,
                 c.reads.requests, c.reads.sectors, c.reads.bytes, c.writes.requests, c.writes.sectors, c.writes.bytes);
    record("launch %s %016lx grid %u %u %u block %u %u %u shared %u q%d d%d ms %.3f%s%s", kernel->name, kernel->hash,
           gx, gy, gz, bx, by, bz, shared, number(stream), device, 1e3 * (now() - before), is_skipped ? " skipped" : "", counts);
    return SUCCESS;
}

// Graph capture is not supported, and the runtime receives NOT_SUPPORTED.
Result cuStreamBeginCapture_v2(void *stream, int mode) { return NOT_SUPPORTED; }
Result cuStreamEndCapture(void *stream, void **graph) { return NOT_SUPPORTED; }
Result cuStreamIsCapturing(void *stream, int *status) { *status = 0; return SUCCESS; }

// All other functions that the bindings may load end the process. `cargo xtask` generates `unresolved.inc` from the
// bindings.
#define UNRESOLVED(name) Result name(void) { fail("%s is not implemented", #name); }
#include "unresolved.inc"
