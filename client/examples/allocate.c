/* Allocates blocks of device memory of any size, in the order of a stream, in plain C:
     allocate_c [BYTES] */
#include <gpumem.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { BLOCKS = 8 };

static void must(gpumem_status status) {
  if (status == GPUMEM_OK) return;
  fprintf(stderr, "%s: %s\n", gpumem_status_name((int)status), gpumem_last_error());
  exit(1);
}

int main(int argc, char** argv) {
  const uint64_t size = argc > 1 ? strtoull(argv[1], NULL, 10) : UINT64_C(64) << 20;
  gpumem_session_options who = GPUMEM_SESSION_OPTIONS_INIT;
  who.label = "allocate in C";
  gpumem_session* session = NULL;
  must(gpumem_session_connect(&who, &session));

  gpumem_allocator_options how = GPUMEM_ALLOCATOR_OPTIONS_INIT;
  how.wait_ms = 10000; /* for what others hold now */
  gpumem_allocator* allocator = NULL;
  must(gpumem_allocator_open(session, &how, &allocator));

  gpumem_stream stream = NULL; /* the default stream; any cudaStream_t or CUstream */
  gpumem_address blocks[BLOCKS];
  for (int i = 0; i < BLOCKS; ++i) must(gpumem_allocate(allocator, size / BLOCKS, stream, &blocks[i]));
  gpumem_statistics held = GPUMEM_STATISTICS_INIT;
  must(gpumem_allocator_statistics(allocator, &held));
  printf("%d blocks at 0x%" PRIx64 " ...: %" PRIu64 " bytes in use, %" PRIu64 " lent by the broker\n", BLOCKS,
         blocks[0], held.in_use, held.committed);

  /* Work given to the stream so far may still use them. They serve the stream again at once, and others after
   * it. */
  for (int i = 0; i < BLOCKS; ++i) must(gpumem_deallocate(allocator, blocks[i], size / BLOCKS, stream));
  must(gpumem_allocator_close(allocator));
  must(gpumem_session_close(session));
  return 0;
}
