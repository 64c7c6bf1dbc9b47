// Loads a PTX file and launches its kernel on the stub driver: `launch FILE CUBES UNITS VALUES`. The kernel's arguments
// are an array of values, the numbers 0, 1, 2, ..., and the number of values. Prints the values after the launch.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int cuInit(unsigned flags);
int cuDevicePrimaryCtxRetain(void **context, int device);
int cuCtxSetCurrent(void *context);
int cuModuleLoadData(void **module, const void *image);
int cuModuleGetFunction(void **kernel, void *module, const char *name);
int cuMemAlloc_v2(uint64_t *pointer, size_t n_bytes);
int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t n_bytes);
int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t n_bytes);
int cuLaunchKernel(void *kernel, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void *stream, void **params, void **extra);

static void check(int error, const char *call) {
    if (!error) return;
    fprintf(stderr, "%s failed: %d\n", call, error);
    exit(1);
}

int main(int argc, char **args) {
    static char ptx[1 << 16];
    if (argc != 5) return 2;
    FILE *file = fopen(args[1], "r");
    if (!file || fread(ptx, 1, sizeof ptx - 1, file) == 0) return 2;
    unsigned n_cubes = atoi(args[2]), n_units = atoi(args[3]), n_values = atoi(args[4]);
    uint32_t *values = malloc(4 * n_values);
    for (unsigned i = 0; i < n_values; i++) values[i] = i;
    void *context, *module, *kernel;
    uint64_t array;
    check(cuInit(0), "cuInit");
    check(cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
    check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    check(cuModuleLoadData(&module, ptx), "cuModuleLoadData");
    check(cuModuleGetFunction(&kernel, module, "kernel"), "cuModuleGetFunction");
    check(cuMemAlloc_v2(&array, 4 * n_values), "cuMemAlloc");
    check(cuMemcpyHtoD_v2(array, values, 4 * n_values), "cuMemcpyHtoD");
    void *params[] = {&array, &n_values};
    check(cuLaunchKernel(kernel, n_cubes, 1, 1, n_units, 1, 1, 0, 0, params, 0), "cuLaunchKernel");
    check(cuMemcpyDtoH_v2(values, array, 4 * n_values), "cuMemcpyDtoH");
    for (unsigned i = 0; i < n_values; i++) printf("%u\n", values[i]);
    return 0;
}
