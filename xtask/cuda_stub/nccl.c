// A stub of NCCL (libnccl.so.2) on top of the stub driver: communicators of ranks that are threads of one process. Sums
// are computed in the order of the ranks. Communicators are non-blocking: a call returns 7 (in progress), and until all
// ranks have called, the communicator reports 7 and its stream is busy. If a rank does not call, the others wait until
// they abort. Mismatched calls end the process.
//
//   NCCL_STUB_TRACE  a file that gets a line for each call
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int Result;  // ncclResult_t
enum { SUCCESS = 0, INTERNAL_ERROR = 3, INVALID_ARGUMENT = 4, INVALID_USAGE = 5, IN_PROGRESS = 7 };
enum { MAX_RANKS = 8, MAX_OPS = 64 };
typedef struct { char bytes[128]; } Id;

extern void cuda_stub_pending(void *stream, int change);
extern int cuda_stub_device_of(unsigned long long address);
extern Result cuCtxGetDevice(int *device);

// The operation of one rank: a sum, or the parts that the rank sends and receives.
typedef struct { void *at; size_t n; int peer; } Part;
typedef struct { int is_sum, n_sends, n_recvs; const void *from; void *to; size_t n; Part sends[MAX_RANKS], recvs[MAX_RANKS]; } Op;
typedef struct World World;
typedef struct { World *world; int rank, device, is_aborted, is_final; void *stream; Op op; int has_op, n_workers; } Comm;
typedef struct { size_t size; unsigned magic, version; int blocking; } Config;
struct World { Id id; int n_ranks, n_joined; Comm *comms[MAX_RANKS]; World *next; };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static World *worlds;
static __thread int group_depth, n_queued;
static __thread Result group_result;
static __thread Comm *queued[MAX_OPS];

__attribute__((noreturn)) void stub_fail(const char *what, const char *where);   // of the stub driver

static void record(const char *call, const Comm *comm, size_t n) {
    const char *path = getenv("NCCL_STUB_TRACE");
    FILE *file = path ? fopen(path, "a") : 0;
    if (!file) return;
    fprintf(file, "%s rank %d of %d device %d n %zu\n", call, comm->rank, comm->world->n_ranks, comm->device, n);
    fclose(file);
}

// Ends the process if the memory is not on the communicator's device.
static void check_memory(const Comm *comm, const void *at, size_t n) {
    if (n && cuda_stub_device_of((unsigned long long)at) != comm->device) stub_fail("a buffer is in the memory of another device", "NCCL");
}

const char *ncclGetErrorString(Result error) {
    switch (error) {
    case SUCCESS: return "no error";
    case INVALID_ARGUMENT: return "invalid argument";
    case INVALID_USAGE: return "invalid usage";
    default: return "internal error";
    }
}

Result ncclGetUniqueId(Id *id) {
    static unsigned long n;
    memset(id, 0, sizeof *id);
    snprintf(id->bytes, sizeof id->bytes, "stub %d %lu", getpid(), __atomic_add_fetch(&n, 1, __ATOMIC_SEQ_CST));
    return SUCCESS;
}

Result ncclCommInitRankConfig(Comm **to, int n_ranks, Id id, int rank, Config *config) {
    int device;
    Result result = SUCCESS;
    if (config->magic != 0xcafebeef || config->version < 21400 || config->size < 20) stub_fail("the configuration is invalid", "NCCL");
    if (config->blocking) stub_fail("the communicator is blocking: a deadline cannot end its calls", "NCCL");
    cuCtxGetDevice(&device);
    pthread_mutex_lock(&lock);
    if (n_ranks < 1 || MAX_RANKS < n_ranks || rank < 0 || n_ranks <= rank) result = INVALID_ARGUMENT;
    World *world = worlds;
    while (world && memcmp(&world->id, &id, sizeof id)) world = world->next;
    if (!world && !result) {
        world = calloc(1, sizeof *world);
        world->id = id;
        world->n_ranks = n_ranks;
        world->next = worlds;
        worlds = world;
    }
    if (!result && (world->n_ranks != n_ranks || world->comms[rank])) result = INVALID_USAGE;
    for (int other = 0; !result && other < n_ranks; other++)
        if (world->comms[other] && world->comms[other]->device == device) result = INVALID_USAGE;
    if (!result) {
        Comm *comm = calloc(1, sizeof *comm);
        *comm = (Comm){.world = world, .rank = rank, .device = device};
        world->comms[rank] = comm;
        world->n_joined++;
        *to = comm;
        record(group_depth ? "init-in-group" : "init", comm, 0);
    }
    pthread_mutex_unlock(&lock);
    if (group_depth && result) group_result = result;
    return result ? result : IN_PROGRESS;
}

static int all_have_called(World *world) {
    if (world->n_joined < world->n_ranks) return 0;
    for (int rank = 0; rank < world->n_ranks; rank++)
        if (!world->comms[rank] || !world->comms[rank]->has_op) return 0;
    return 1;
}

// Runs the operation of all ranks. The worker of the last rank that called runs it and holds the lock.
static void run(World *world) {
    Comm **comms = world->comms;
    for (int rank = 1; rank < world->n_ranks; rank++)
        if (comms[rank]->op.is_sum != comms[0]->op.is_sum || comms[rank]->op.n != comms[0]->op.n)
            stub_fail("ranks call different operations, or sum different numbers of values", "NCCL");
    if (comms[0]->op.is_sum) {
        size_t n = comms[0]->op.n;
        float *sums = malloc(n * sizeof *sums + 1);
        memcpy(sums, comms[0]->op.from, n * sizeof *sums);
        for (int rank = 1; rank < world->n_ranks; rank++)
            for (size_t i = 0; i < n; i++) sums[i] += ((const float *)comms[rank]->op.from)[i];
        for (int rank = 0; rank < world->n_ranks; rank++) memcpy(comms[rank]->op.to, sums, n * sizeof *sums);
        free(sums);
    } else
        for (int to = 0; to < world->n_ranks; to++)
            for (int r = 0; r < comms[to]->op.n_recvs; r++) {
                Part recv = comms[to]->op.recvs[r];
                Op *from = &comms[recv.peer]->op;
                int n_matching = 0;
                for (int s = 0; s < from->n_sends; s++)
                    if (from->sends[s].peer == to && from->sends[s].n == recv.n && ++n_matching) memcpy(recv.at, from->sends[s].at, recv.n);
                if (n_matching != 1) stub_fail("a rank receives data that no rank sends", "NCCL");
            }
    for (int rank = 0; rank < world->n_ranks; rank++) comms[rank]->has_op = 0;
    pthread_cond_broadcast(&changed);
}

static void *work(void *argument) {
    Comm *comm = argument;
    pthread_mutex_lock(&lock);
    if (all_have_called(comm->world)) run(comm->world);
    while (comm->has_op && !comm->is_aborted) pthread_cond_wait(&changed, &lock);
    comm->has_op = 0;
    cuda_stub_pending(comm->stream, -1);
    comm->n_workers--;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    return 0;
}

static Result start(Comm *comm) {
    pthread_t thread;
    pthread_mutex_lock(&lock);
    // A rank may call again before its worker has seen the end of the previous call.
    while (comm->n_workers) pthread_cond_wait(&changed, &lock);
    comm->has_op = comm->n_workers = 1;
    cuda_stub_pending(comm->stream, 1);
    pthread_mutex_unlock(&lock);
    if (pthread_create(&thread, 0, work, comm)) return INTERNAL_ERROR;
    pthread_detach(thread);
    return IN_PROGRESS;
}

Result ncclGroupStart(void) { group_depth++; return SUCCESS; }

Result ncclGroupEnd(void) {
    if (--group_depth) return SUCCESS;
    Result result = group_result;
    for (int i = 0; i < n_queued && !result; i++) {
        Result started = start(queued[i]);
        if (started != IN_PROGRESS) result = started;
    }
    group_result = n_queued = 0;
    return result ? result : IN_PROGRESS;
}

Result ncclAllReduce(const void *from, void *to, size_t n, int type, int op, Comm *comm, void *stream) {
    enum { FLOAT32 = 7, SUM = 0 };
    if (type != FLOAT32 || op != SUM || comm->is_aborted || group_depth) return INVALID_ARGUMENT;
    record("all-reduce", comm, n);
    check_memory(comm, from, n);
    check_memory(comm, to, n);
    comm->stream = stream;
    comm->op = (Op){.is_sum = 1, .from = from, .to = to, .n = n};
    return start(comm);
}

// Returns the communicator's operation in this thread's group, to which sends and receives are added.
static Op *queue(Comm *comm, void *stream) {
    for (int i = 0; i < n_queued; i++)
        if (queued[i] == comm) return &comm->op;
    queued[n_queued++] = comm;
    comm->stream = stream;
    comm->op = (Op){0};
    return &comm->op;
}

Result ncclSend(const void *at, size_t n, int type, int peer, Comm *comm, void *stream) {
    if (!group_depth || comm->is_aborted) return INVALID_USAGE;
    check_memory(comm, at, n);
    Op *op = queue(comm, stream);
    op->sends[op->n_sends++] = (Part){(void *)at, n, peer};
    record("send", comm, n);
    return SUCCESS;
}

Result ncclRecv(void *at, size_t n, int type, int peer, Comm *comm, void *stream) {
    if (!group_depth || comm->is_aborted) return INVALID_USAGE;
    check_memory(comm, at, n);
    Op *op = queue(comm, stream);
    op->recvs[op->n_recvs++] = (Part){at, n, peer};
    record("recv", comm, n);
    return SUCCESS;
}

Result ncclCommGetAsyncError(Comm *comm, Result *error) {
    pthread_mutex_lock(&lock);
    World *world = comm->world;
    int is_busy = world->n_joined < world->n_ranks || comm->has_op;
    pthread_mutex_unlock(&lock);
    *error = is_busy ? IN_PROGRESS : SUCCESS;
    return SUCCESS;
}

// As with NCCL, a rank finalizes alone: the other ranks are not notified, and wait for it in their next call.
Result ncclCommFinalize(Comm *comm) {
    pthread_mutex_lock(&lock);
    record("finalize", comm, 0);
    comm->is_final = 1;
    pthread_mutex_unlock(&lock);
    return IN_PROGRESS;
}

Result ncclCommDestroy(Comm *comm) {
    pthread_mutex_lock(&lock);
    record("destroy", comm, 0);
    if (!comm->is_final || comm->has_op) stub_fail("a communicator was destroyed before it was finalized", "NCCL");
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}

// As with NCCL, the other ranks are not notified: they wait until they abort, too.
Result ncclCommAbort(Comm *comm) {
    pthread_mutex_lock(&lock);
    record("abort", comm, 0);
    if (comm->is_aborted) stub_fail("a communicator was aborted twice", "NCCL");
    comm->is_aborted = 1;
    pthread_cond_broadcast(&changed);
    while (comm->n_workers) pthread_cond_wait(&changed, &lock);
    comm->world->comms[comm->rank] = 0;
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}
