/* A program that knows the driver alone. Takes blocks of the first GPU until there are no more, says what it
 * has, and keeps it until its input ends. */
#include <cuda.h>
#include <stdio.h>

enum { BLOCK_MIB = 64 };

static int failed(const char* call, CUresult result) {
  fprintf(stderr, "%s: %d\n", call, (int)result);
  return 1;
}

int main(void) {
  CUresult result = cuInit(0);
  CUdevice device = 0;
  CUcontext context = NULL;
  CUdeviceptr block = 0;
  size_t total = 0;
  unsigned held = 0;
  if (result != CUDA_SUCCESS) return failed("cuInit", result);
  if ((result = cuDeviceGet(&device, 0)) != CUDA_SUCCESS) return failed("cuDeviceGet", result);
  if ((result = cuDevicePrimaryCtxRetain(&context, device)) != CUDA_SUCCESS)
    return failed("cuDevicePrimaryCtxRetain", result);
  if ((result = cuCtxSetCurrent(context)) != CUDA_SUCCESS) return failed("cuCtxSetCurrent", result);
  if ((result = cuDeviceTotalMem(&total, device)) != CUDA_SUCCESS) return failed("cuDeviceTotalMem", result);
  while ((result = cuMemAlloc(&block, (size_t)BLOCK_MIB << 20)) == CUDA_SUCCESS) ++held;
  printf("%u MiB of %zu; then error %d\n", held * BLOCK_MIB, total >> 20, (int)result);
  fflush(stdout);
  while (getchar() != EOF) continue;
  return 0;
}
