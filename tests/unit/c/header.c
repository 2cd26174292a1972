#include "gpumem.h" /* first, so that it stands on its own */

#include "header.h"

size_t sum_of_sizes_set_by_macros(void) {
  const gpumem_session_options session = GPUMEM_SESSION_OPTIONS_INIT;
  const gpumem_slice_options slice = GPUMEM_SLICE_OPTIONS_INIT;
  const gpumem_grow_options grow = GPUMEM_GROW_OPTIONS_INIT;
  const gpumem_allocator_options allocator = GPUMEM_ALLOCATOR_OPTIONS_INIT;
  const gpumem_placement placement = GPUMEM_PLACEMENT_INIT;
  const gpumem_statistics statistics = GPUMEM_STATISTICS_INIT;
  const gpumem_denial denial = GPUMEM_DENIAL_INIT;
  const gpumem_grow_step step = GPUMEM_GROW_STEP_INIT;
  const gpumem_job_options job = GPUMEM_JOB_OPTIONS_INIT;
  const gpumem_job_account account = GPUMEM_JOB_ACCOUNT_INIT;
  return job.struct_size + account.struct_size + denial.struct_size + step.struct_size + session.struct_size +
         slice.struct_size + grow.struct_size + allocator.struct_size + placement.struct_size +
         statistics.struct_size;
}

const size_t* struct_sizes_in_c(void) {
  static const size_t sizes[] = GPUMEM_TEST_STRUCT_SIZES;
  return sizes;
}
